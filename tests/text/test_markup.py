"""Markup and layout of pasted texts, and what is said."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from voicelab.tags import read_tags
from voicelab.text import normalize

READ = {
    "Write to Ann <ann@example.org> today.": "Write to Ann ann at example dot org today.",
    "Press <Enter> then <Ctrl+C>.": "Press Enter then Ctrl plus C.",
    "Map<String, List<Integer>> scores": "Map String, List Integer scores",
    "<https://a.b> and press <Ctrl+C> now": "ay dot B and press Ctrl plus C now",
    "cp <source> <target>, the </body> tag": "cp source target, the body tag",
    "let x: Option<&str>; Array<{id: number}>": "let x: Option and str; Array, id: number",
    '<img src="a.jpg" alt="A cat"> sleeps': "A cat sleeps",
    "<details><summary>More</summary>Text</details>": "More. Text",
    ":thumbs_up: it works": "thumbs up it works",
    "if a <b then c> d": "if a less than b then c greater than d",
    "The `<div>` element and the `List<T>` type": "The div element and the List T type",
    "[12:04] <bob> hello there": "twelve oh four, bob hello there",
    "<p>Hello <b>world</b></p><p>Next<br/>line</p>": "Hello world. Next, line",
    '<speak><sub alias="World Wide Web">W3</sub> <rant>now</rant></speak>': "World Wide Web now",
    "Tom &amp; Jerry is on at 5&nbsp;pm; it&#39;s &euro;5": "Tom and Jerry is on at five P M; it's five euros",
    "AT&T, R&D, x?a=1&copy=2": "ay T and T, R and D, x? ay equals one and copy equals two",
    "see the [user guide](https://en.example.org/a_(b)) now": "see the user guide now",
    "See [the docs][docs].\n\n[docs]: https://example.org/docs": "See the docs.",
    "[![build](https://a.b/c.svg)](https://ci.org) Done": "build Done",
    "==key== ~~old~~ **bold** *it* `x`": "key old bold it x",
    "Results\n=======\nThey hold.": "Results. They hold.",
    "| Name | Age |\n|---|---|\n| Bob | 5 |": "Name, Age. Bob, five.",
    "- [x] Milk\n- [ ] Eggs": "Milk. Eggs",
    "2*3*4 = 24, 2**10": "two times three times four equals twenty-four, two to the power of ten",
    "1\n00:00:01,000 --> 00:00:03,500\nI never thought\nthat you came.": "I never thought that you came.",
    "Red\nBlue\nGreen": "Red, Blue, Green",
    "Roses are red\nViolets are blue": "Roses are red, Violets are blue",
    "Overview\nThe fan is quiet at night.": "Overview. The fan is quiet at night.",
    "Ann Lee\n12 Main St\nParis, TX 75460": "Ann Lee, twelve Main Street, Paris, TX seven five four six zero",
    "a nega-\ntive and a well-\nknown one": "a negative and a well-known one",
    "her mother-\nin-law, mother-in-\nlaw": "her mother-in-law, mother-in-law",
    "Rest 10-15 min.\n3. Fry.": "Rest ten to fifteen minutes. three, Fry.",
    "Cut 2 in.\n3. Fold": "Cut two inches. three, Fold",
    "Add salt, etc.\n\n2. Stir": "Add salt, et cetera. two, Stir",
    "Leave at 5 p.m.\n- Rest": "Leave at five P M. Rest",
    "a\tb\t\nc\td": "a, b. c, d",
    "a\tb\n/c\td": "a, b. slash C, d",
    "Mon\tTue\n9:00\t10:00": "Monday, Tuesday, nine o'clock, ten o'clock",
    "[00:01:02] Hello [00:01:05] there": "one minute and two seconds, Hello, one minute and five seconds, there",
    r"where $\alpha$ and $x^2$ hold, so \(E=mc^2\)": "where alpha and x squared hold, so E equals m c squared",
    r"$$\sum_{i=1}^{n} i = \frac{n(n+1)}{2}$$": "sum from i equals one to n of i equals n, n plus one, over two",
    r"\[ \int_0^1 x\,dx = 1/2 \] and $\frac{\sqrt{x}}{a_i}$": (
        "integral from zero to one of x d x equals one half and square root of x over ay sub i"
    ),
    r"$e^{i\pi} + 1 = 0$, $10^{-3}$, $\vec{v} \in \mathbb{R}^n$": (
        "e to the power of i pi plus one equals zero, ten to the power of minus three, vector v in R to the power of n"
    ),
    r"\section{Intro} See \textbf{a bold} word \cite{foo2020}, \frac{a}{b} and x_{i}^{2} or e^{iπ}": (
        "Intro See a bold word, ay over b and x sub i squared or e to the power of i pi"
    ),
    "\\begin{itemize}\n\\item First, 50\\% of it;\n\\item A \\& B.\n\\end{itemize}": "First, fifty percent of it; A and B.",
    r"\maketitle H\"older, Erd\H{o}s and Fran\c{c}ois\footnote{All three.} at \url{http://x.org}": (
        "Holder, Erdos and Francois, All three. at"
    ),
    "$5 and $6, $5-$6, $HOME and $PATH": "five dollars and six dollars, five to six dollars, dollar HOME and dollar PATH",
    "A sentence that a mail program has wrapped at the\nend of its line flows on.": (
        "A sentence that a mail program has wrapped at the end of its line flows on."
    ),
}


@pytest.mark.parametrize(("written", "said"), READ.items())
def test_markup_and_lines(written: str, said: str) -> None:
    tagged = read_tags(written)
    assert normalize(tagged.said).text == said
    assert tagged.tags == ()


_MARKED: st.SearchStrategy[str] = st.lists(
    st.sampled_from(
        "<b> </b> <x <y> &amp; & ` ** * _ ~~ ](b.c) [ ] ( ) | \n - # 1. word \t < > == ``` </ <!-- -->".split(" ")
    )
).map("".join)


@settings(max_examples=300, deadline=None)
@given(_MARKED)
def test_no_word_vanishes_in_markup(text: str) -> None:
    result = normalize(text)
    noted = " ".join(result.notes)
    assert result.text.count("word") or "word" not in text or "word" in noted, (text, result)


def test_links_and_check_boxes_are_not_like_tags() -> None:
    assert read_tags("- [x] Done.\n- [ ] Open.", "s2-pro").notes == ()
    assert read_tags("See the [guide](https://x.org).", "s2-pro").notes == ()

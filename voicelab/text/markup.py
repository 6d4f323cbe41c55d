"""Conversion of HTML, SSML, Markdown, entities and line breaks to plain text, before segmentation and normalization.

Tags match CommonMark's grammar, entities HTML's table, and Markdown is parsed by markdown-it. Other text in angle brackets
(addresses, keys, type parameters) is read. Line breaks become pauses, except those of hard-wrapped prose.
"""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from voicelab.tags import listed
from voicelab.text.clean import FREQUENT, HAN, Normalized, pairs, rows, word_lists
from voicelab.text.segments import LISTS

if TYPE_CHECKING:
    from markdown_it.token import Token

_ENTITY: Final = re.compile(r"&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z]\w{1,31});")
_ATTRIBUTE: Final = r"\s{1,9}[\w:.-]{1,40}\s?=\s?(?:\"[^\"<>]{0,400}\"|'[^'<>]{0,400}'|[^\s\"'=<>`]{1,400})"
_BRACKETS: Final = re.compile(
    rf"<!--(?P<comment>(?:(?!-->)[^\0]){{0,4000}})-->|<(?P<end>/)?(?P<name>[A-Za-z][\w:-]{{0,40}})(?P<attributes>(?:{_ATTRIBUTE}){{0,20}}"
    r"(?:\s{1,9}(?:disabled|checked|hidden|controls|required|selected|async|defer|open)){0,3})\s{0,9}/?>"
    r"|(?P<generic>(?<=\w))?<(?P<body>[A-Za-z/~.&{{](?:[^<>\n]{0,200}[^<>\n\s])?)>(?!=)"
    r"|<(?P<code>[?!](?:xml|DOCTYPE|doctype)[^<>]{0,200})>"
)
_ALIAS: Final = re.compile(
    r"<sub\b[^<>]{0,100}\balias=([\"'])(?P<alias>[^<>\"']{0,200})\1[^<>]{0,100}>[^<>]{0,200}</sub>"
)
_ALT: Final = re.compile(r"\balt\s?=\s?([\"'])(?P<text>[^\"'<>]+)\1")
_BLOCKS, _CELLS, _INLINE, _VOID, _WORDS = word_lists("tags").values()
_IN_PLACE_OF_TAG: Final = dict.fromkeys(_BLOCKS, "\n\n") | dict.fromkeys(_CELLS, ", ") | {"br": "\n", "wbr": ""}
_RAW: Final = re.compile(r"<(script|style)\b[^<>]{0,200}>(?:(?!</\1)[^\0]){0,20000}</\1>", re.IGNORECASE)
_INEQUALITY: Final = re.compile(r"(?<![\w<>])(?P<left>[A-Za-z]|\d+(?:\.\d+)?) ?<(?P<right>[A-Za-z])(?= )(?! ?>)")
_GREATER: Final = re.compile(r"(?<![^\s(])(?P<left>[A-Za-z]|\d+(?:\.\d+)?)> (?=[\w.])")

_MARKDOWN: Final = re.compile(
    r"\]\(|\*\*|__|~~|==\S|`|(?<![\w*])\*(?=[^\s*])|(?<![\w_])_(?=[^\s_])|^ {0,3}(?:#{1,6}[ \t]|\+[ \t]|\[[^\]\n]{1,80}\]:|"
    r"(?:[-=*_][ \t]*){3,}$)|^\|.{0,400}\||^[^\n|]{0,200}\|[^\n]{0,400}\n[ |:-]{3,400}$|\\[\\*_`#>\[\]~-]|"
    r"^[ \t]*[-*+] \[[ xX]\] |[A-Za-z)]~\d{1,3}~|[\w)]\^(?:\d{1,3}|st|nd|rd|th)\^",
    re.MULTILINE,
)
_SCRIPT: Final = re.compile(
    r"(?<=[A-Za-z)])~(?P<low>\d{1,3})~|(?<=[\w)])\^(?:(?P<high>\d{1,3})|(?P<ending>st|nd|rd|th))\^(?![\w(])"
)
"""Pandoc's subscripts and superscripts: H~2~O, x^2^, 10^th^."""
_OPERATORS: Final = re.compile(r"(?<=[\w)])(\*{1,2})(?=[\w(])")
_HIGHLIGHT: Final = re.compile(r"(?<![\w=])==(?=\S)([^=\n]{1,200})(?<=\S)==(?![\w=])")
_ESCAPE: Final = re.compile(r"\\(?:[!-/:-@\[-`{-~]|(?=\n))")
_TASK: Final = re.compile(r"\A\[[ xX]\] ")
_SUBTITLE: Final = re.compile(
    r"(?:^\d{1,5}[ \t]*\n)?^(?:\d\d:)?\d\d:\d\d[,.]\d{3} --> (?:\d\d:)?\d\d:\d\d[,.]\d{3}[^\n]{0,80}\n|"
    r"\AWEBVTT\b[^\n]{0,80}\n",
    re.MULTILINE,
)
_FORMULA: Final = re.compile(
    r"\\begin\{(?P<name>(?:equation|align|math|displaymath|gather|multline)\*?)\}(?P<body>[^\0]{1,2000}?)\\end\{(?P=name)\}"
    r"|\\\((?P<round>[^\n]{1,400}?)\\\)|\\\[(?P<square>[^\0]{1,2000}?)\\\]|\$\$(?P<display>[^$]{1,2000})\$\$"
    r"|(?<![\w$\\])\$(?P<inline>(?![\s\d.,]+(?:\$|\s))(?=[A-Za-z]'?\$|[^$\n]{0,400}[\\^_=<>])[^$\n]{0,400}[^$\s=])\$(?![\d$])"
    r"|(?P<bare>\\(?:[dt]?frac|sqrt)(?:\s?\{(?:[^{}\n]|\{[^{}\n]{0,80}\}){0,200}\}){1,2}|(?<![A-Za-z\d\\])[A-Za-z](?:[_^]\{[^{}\n]{1,40}\})+)"
)
_TEXT_COMMAND: Final = re.compile(
    r"\\(?:(?P<reference>cite\w{0,5}|ref|eqref|label|url|href|documentclass|usepackage|bibliography\w{0,5}|input|include)"
    r"|text(?:bf|it|tt|sc)|emph|underline|(?:sub){0,2}section|chapter|title|author|caption|(?P<note>footnote))\*?"
    r"(?:\[[^\]\n]{0,80}\])?\{(?P<text>[^{}\n]{0,400})\}"
)
_LATEX_MARK: Final = re.compile(
    r"\\(?:begin|end)\{(?!(?:equation|align|math|displaymath|gather|multline)\b)[A-Za-z]{1,30}\*?\}(?:\[[^\]\n]{0,80}\])?"
    r"|\\(?:(?P<item>item)|maketitle|noindent|centering|newpage)(?![A-Za-z])|\\(?=[%&])"
)
_LATEX_ACCENT: Final = re.compile(
    r"""(?:(?<=[A-Za-z])\\(?P<mark>["'`^~])(?P<letter>[aeiounAEIOUN])|\\(?P<name>["'`^~=.cvHukr])\{(?P<base>[A-Za-z])\})"""
)
_ACCENTS: Final = dict(
    zip("\"'`^~=.cvHukr", "\u0308\u0301\u0300\u0302\u0303\u0304\u0307\u0327\u030c\u030b\u0306\u0328\u030a", strict=True)
)
_FORMULA_STEPS: Final = tuple(
    (re.compile(pattern.replace("ARG", r"\s?(?:\{\s*([^{}]*?)\s*\}|(\\[A-Za-z]+|[^\s{}\\]))")), words)
    for pattern, words in rows("latex_steps")
)
_COMMAND: Final = re.compile(r"\\([A-Za-z]+)|\\.|[{}&]")
_COMMANDS: Final = {
    command: words.strip("-") for names, words in pairs("latex").items() for command in names.split(" ")
}
_MARKS: Final = ("strong_open", "em_open", "s_open", "code_inline", "fence", "hr")
_ASTERISK: Final = "\ue000"
"""Replaces an asterisk between operands while Markdown is parsed."""


def plain(text: str) -> Normalized:
    """Remove markup from `text` and convert line breaks to pauses; notes state what was left out. Never raises."""
    notes: list[str] = []
    request_text = text
    if "\\" in text:
        text = _LATEX_ACCENT.sub(_accented, text)
    if commands := list(_TEXT_COMMAND.finditer(text) if "\\" in text else ()):
        left_out = [m.group() if m["reference"] else m.group().partition("{")[0] for m in commands]
        notes.append(f"LaTeX left out: {listed(left_out)}")
        text = _TEXT_COMMAND.sub(
            lambda m: "" if m["reference"] else f" ({m['text']})" if m["note"] else m["text"], text
        )
    if any(mark in text for mark in ("$", "\\", "_{", "^{")) and (
        formulas := [m.group() for m in _FORMULA.finditer(text)]
    ):
        notes.append(f"LaTeX read in words: {listed(formulas)}")
        text = _FORMULA.sub(_formula, text)
    if "\\" in text and (marks := [m.group() for m in _LATEX_MARK.finditer(text)]):
        notes.append(f"LaTeX marks left out: {listed(marks)}")
        text = _LATEX_MARK.sub(lambda m: "\n- " if m["item"] else "\n" * (m.group() != "\\"), text)
    if "&" in text:
        text = _ENTITY.sub(lambda m: html.unescape(m.group()), text)
    text = text.replace("&&", " and ")
    if "<" in text or "＜" in text:
        text = _without_tags(text.replace("＜", "<").replace("＞", ">"), notes)
    if "-->" in text and (times := [m.group() for m in _SUBTITLE.finditer(text)]):
        notes.append(f"numbers and times of subtitles left out: {listed(times)}")
        text = _SUBTITLE.sub("\n", text)
    if _MARKDOWN.search(text):
        text = _without_markdown(text, notes)
    if not any(map(str.isalnum, text)):
        return Normalized(request_text)  # the text has only markup to speak
    return Normalized(_paused(text) if "\n" in text or "\r" in text or "\t" in text else text, tuple(notes))


def _accented(m: re.Match[str]) -> str:
    """Convert an accented letter of LaTeX to the letter itself."""
    return unicodedata.normalize("NFC", (m["letter"] or m["base"]) + _ACCENTS[m["mark"] or m["name"]])


def _formula(m: re.Match[str]) -> str:
    """Convert a LaTeX formula to words and symbols that the normalizer reads; commands become their names."""
    formula = next(filter(None, (m["body"], m["round"], m["square"], m["display"], m["inline"], m["bare"])))
    for _ in range(3):  # nested braces
        for pattern, words in _FORMULA_STEPS:
            formula = pattern.sub(words, formula)
    formula = _COMMAND.sub(lambda m: f" {_COMMANDS.get(m[1], m[1])} " if m[1] else " ", formula)
    formula = re.sub(r"(?<![A-Za-z])a(?![A-Za-z])", "ay", formula)
    return re.sub(r"\s+\^", "^", re.sub(r"\s+", " ", formula)).strip()


def _without_tags(text: str, notes: list[str]) -> str:
    dropped: list[str] = []
    raw: list[str] = []
    closed = {name.lower() for name in re.findall(r"</\s?([A-Za-z][\w:-]{0,40})\s?>", text)}
    opened = {name.lower() for name in re.findall(r"<([A-Za-z][\w:-]{0,40})[\s/>]", text)}

    def drop_raw(m: re.Match[str]) -> str:
        raw.append(m.group())
        return " "

    def replace(m: re.Match[str]) -> str:
        name = (m["name"] or "").lower()
        if m["comment"] is not None or m["code"] is not None or (name and _is_tag(m, name, opened, closed)):
            dropped.append(m.group())
            if name == "img" and (alternative := _ALT.search(m["attributes"])):
                return f" {alternative['text']} "
            return _IN_PLACE_OF_TAG.get(name, " " if m.group().endswith("/>") else "")
        body = (m["body"] or m.group()[1:-1].strip("/ ")).replace("mailto:", "")
        # "List<String>" is read "List String"; "<Enter>" is read "Enter".
        return f" {body}" if m.start() and m.string[m.start() - 1].isalnum() else body

    text = _RAW.sub(drop_raw, text)
    text = _ALIAS.sub(lambda m: m["alias"], text)
    text = _INEQUALITY.sub(r"\g<left> < \g<right>", text)
    text = _GREATER.sub(r"\g<left> > ", text)
    for _ in range(3):  # Map<String, List<Integer>>
        text, count = _BRACKETS.subn(replace, text)
        if not count:
            break
    notes.extend(f"text in angle brackets left out: {listed(items)}" for items in [[*raw, *dropped]] if items)
    return text.strip("\n")


def _is_tag(m: re.Match[str], name: str, opened: set[str], closed: set[str]) -> bool:
    if m.string[m.start() - 1 : m.start()] == "`" == m.string[m.end() : m.end() + 1]:
        return False  # a tag that the text is about
    written, is_html = m["name"], name in _BLOCKS | _CELLS | _INLINE
    if name in opened if m["end"] else (m["attributes"] or m.group().endswith("/>") or name in closed):
        return True
    if re.match(r" (?:tags?|elements?)\b", m.string[m.end() : m.end() + 9]) or m.string[: m.start()].endswith("tag "):
        return False
    if m["end"]:
        return is_html
    if m.start() and m.string[m.start() - 1].isalnum() and not (written.islower() and name in _BLOCKS | _INLINE):
        return False  # List<String>, Map<Object>
    return (written.islower() or (written.isupper() and name in _VOID)) and is_html and name not in _WORDS


def _without_markdown(text: str, notes: list[str]) -> str:
    from markdown_it import MarkdownIt  # imported here: it takes 40 ms

    parser = MarkdownIt("commonmark", {"maxNesting": 20}).enable(["table", "strikethrough"])
    parser.disable(["code", "html_block", "html_inline", "entity"])
    text = _OPERATORS.sub(lambda m: _ASTERISK * len(m[1]), text.replace(_ASTERISK, ""))
    scripts = [m.group()[0] for m in _SCRIPT.finditer(text)]
    text = _SCRIPT.sub(lambda m: m["low"] or m["ending"] or f"^{m['high']}", text)
    highlighted = text
    text = _HIGHLIGHT.sub(r"\1", text)
    env: dict[str, object] = {}
    addresses: list[str] = []
    tokens = parser.parse(text, env)
    marks = [t.markup + (t.info if t.type == "fence" else "") for t in _flat(tokens) if t.type in _MARKS]
    if text != highlighted:
        marks.append("==")
    marks += scripts
    marks += _ESCAPE.findall(text)
    if marks:
        notes.append(f"Markdown marks left out: {listed(marks)}")
    lines = "".join(_blocks(tokens, addresses)).replace(_ASTERISK, "*")
    if addresses:
        notes.append(f"addresses of links left out: {listed(addresses)}")
    return lines.strip("\n")


def _flat(tokens: Sequence[Token]) -> Iterator[Token]:
    for token in tokens:
        yield token
        yield from token.children or ()


def _blocks(tokens: Sequence[Token], addresses: list[str]) -> Iterator[str]:
    """Yield the text of block tokens: an item per line, a table row per line, paragraphs separated by blank lines."""
    lists: list[str | int] = []
    begin = ""
    cells = 0
    for token in tokens:
        match token.type:
            case "bullet_list_open":
                lists.append("-")
            case "ordered_list_open":
                lists.append(int(token.attrs.get("start", 1)))
            case "bullet_list_close" | "ordered_list_close":
                lists.pop()
                yield "" if lists else "\n"
            case "list_item_open":
                mark = lists[-1]
                begin = "- " if isinstance(mark, str) else f"{token.info or mark}{token.markup} "
            case "tr_open":
                cells = 0
            case "tr_close":
                yield ".\n"
            case "th_open" | "td_open":
                begin, cells = ", " if cells else "", cells + 1
            case "inline":
                content = _TASK.sub("", "".join(_inlines(token.children or (), addresses)))
                yield begin + content if content or begin.strip() else ""
                begin = ""
            case "fence" | "code_block":
                yield f"{begin}{token.content}\n"
                begin = ""
            case "paragraph_close":
                yield "\n" if lists else "\n\n"
            case "heading_close" | "table_close":
                yield "\n\n"
            case _:
                pass


def _inlines(tokens: Sequence[Token], addresses: list[str]) -> Iterator[str]:
    for token in tokens:
        match token.type:
            case "softbreak" | "hardbreak":
                yield "\n"
            case "image":
                if source := token.attrs.get("src"):
                    addresses.append(str(source))
                yield token.content
            case "link_open":
                if token.info != "auto":
                    addresses.append(str(token.attrs.get("href", "")))
            case _:
                yield token.content


_HAN: Final = re.compile(f"[{HAN}]")
_ENDS: Final = re.compile(r"[.!?…:;,。！？：；，、—–/&(\[{=+-][\"'”’)\]]*\Z")
_JOINED: Final = re.compile(
    r"(?<=[a-z]{2})(?<!\bwell)(?<!\bself)(?<!\bhalf)(?<!\bhigh)(?<!\blow)(?<!\blong)(?<!\bshort)(?<!\bnon)"
    r"(?<!-[a-z]{2})(?<!-[a-z]{3})-\n[ \t]*(?=[a-z]{2})(?!(?:in|of|to|the|and|by|on|up|at|for)-)"
)
_ABBREVIATED: Final = re.compile(
    r"(?:\b(?:Ave|Blvd|Rd|Ln|Ct|Pl|Sq|Hwy|Pkwy|Inc|Ltd|Co|Corp|Jr|Sr|Esq|(?:Ph|M|D)\.[CD])|\d.{1,40} (?:St|Dr))\.\Z"
)
"""End of a line whose period belongs to an abbreviation, as in an address."""
_ITEM: Final = re.compile(r"[ \t]*(?:[-*+•>]|\d{1,3}[.)]|#{1,6})[ \t]")
_BEFORE_PARAGRAPH: Final = re.compile(r"(?<=[A-Za-z]\.)(?=[ \t]*\n[ \t]*\n\s*(?:[-*+•]|\d{1,3}[.)])[ \t])")
_PIECE: Final = re.compile(r"[A-Za-z']+")
_ROW: Final = re.compile(r"^([^\n]*[^\s][ ]*\t[^\n]*?)(?:[ ]*\t[ \t]*\n(?=[^\n]*\t)|\n(?=/[^\n]*\t))", re.MULTILINE)
"""A row of cells separated by tabs that ends in an empty cell, or before a row that begins with a slash."""
_STOP: Final = ",."
"""A period after a period: an abbreviation does not contain the comma, and `tidy` reduces the three marks to a period."""
_MIN_WRAPPED_WIDTH: Final = 45
_MAX_HEADING_WORDS: Final = 8
_FUNCTION_WORDS: Final = FREQUENT["English"] - {"no", "see", "go", "two", "water", "day", "people", "may", "one"}


def _paused(text: str) -> str:
    """Add a punctuation mark to each line that is a unit: a list item, a verse, a heading, or a line of an address."""
    text = _JOINED.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
    text = re.sub(r"(?<=[a-z])-\n[ \t]*(?=[a-z])", "-", text)
    text = _ROW.sub(lambda m: f"{m[1]}{_STOP}\n", text)
    text = re.sub(r"(?<=[^\s,.;:])[ ]*\t[ \t]*(?=\S)", ", ", text)
    paragraphs = re.split(r"(\n[ \t]*\n\s*)", text)
    pieces = [p if i % 2 else _paused_paragraph(p) for i, p in enumerate(paragraphs)]
    return _BEFORE_PARAGRAPH.sub(_STOP, "".join(pieces))


def _paused_paragraph(text: str) -> str:
    lines = text.split("\n")
    if len(lines) < 2:
        return text
    width = max(map(len, lines))
    out: list[str] = []
    for line, after in zip(lines, [*lines[1:], ""], strict=True):
        out.append(line.rstrip() + _mark(line.strip(), after.strip(), width))
    return "\n".join(out)


def _mark(line: str, after: str, width: int) -> str:
    """Return the punctuation mark between two lines of a paragraph: "" if the sentence continues, "," or "." otherwise."""
    goes_on = re.match(r"\d|[A-Z]\w*", after)
    abbreviated = _ABBREVIATED.search(line) and goes_on and goes_on.group() not in LISTS["starters"]
    ended = _ENDS.search(line) and not abbreviated
    if re.search(r"[A-Za-z]\.\Z", line) and _ITEM.match(after):
        return _STOP
    if not line or not after or ended or _ITEM.match(after) or _HAN.search(line[-1] + after[0]):
        return ""
    words, following = _PIECE.findall(line), _PIECE.findall(after)
    first_word = after.split(maxsplit=1)[0]
    if after[0] in ",.;:!?)" or not any(map(str.isalnum, line)):
        return ""
    if width >= _MIN_WRAPPED_WIDTH and len(line) + 1 + len(first_word) > 0.8 * width and not _ITEM.match(line):
        return ""
    if line[-1].isdigit() and first_word.islower():  # 5 km
        return ""
    flows = first_word[0].islower() and following and following[0] in _FUNCTION_WORDS
    if flows or (words and words[-1].islower() and words[-1] in _FUNCTION_WORDS and first_word[0].islower()):
        return ""
    is_heading = len(words) <= _MAX_HEADING_WORDS and line[0].isupper() and re.search(r"[.!?]['\"”)]*\Z", after)
    return "." if is_heading and len(following) > len(words) else ","

"""Check that prose and names use the field's terms: `make check` fails above the limits.

    python .ci/language.py            # one line per rule over its limit, then the totals
    python .ci/language.py --list     # every match

A match is a passage to read again, not a verdict; the limits leave room for true uses of the words.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PROSE_PER_1000_WORDS = 1.5
NAMES_PER_1000_LINES = 3.0
# Quotations: the interface's own words, and sentences whose recordings calibrate the speakers.
BRITISH_QUOTATIONS = 3
FOLDERS = ("voicelab", "docs", "training", "bench", "README.md", "CONTRIBUTING.md")
SKIPPED = re.compile(
    r"(^|/)(static|weights|corpus|locked|results|recordings|data|images|sounds|tables?)/|CHANGELOG|LICENSE|\.ipynb$"
)
PROSE = {
    "clause instead of a noun": (
        r"\b(return|returns|says?|said|tells?|knows?|of|is|are|for|by|from|and|or|with|to) "
        r"(what|who|whoever|whatever|whose|which is|how much|how many|how long)\b|^(what|who|whatever|whoever|how)\b"
    ),
    "nothing, nobody, no X is": (
        r"\b(nobody|somebody|whoever|nothing (is|was|that|of)|there is none|is none|are none|is no [a-z]+|are no [a-z]+|"
        r"has no [a-z]+ of)\b"
    ),
    "living machine": (
        r"\b(bears?|lets go|letting go|gives? up|given up|goes on|go on|went on|is let in|let in|hears?|heard by|"
        r"listens? to a|stands? (for|in|beside|before|behind)|comes? (of|by|out)|speaks? of|are told|is told|"
        r"tell apart|told from|told apart|makes? anew|made anew|dear|thinkable)\b"
    ),
    "plain word for a term": (
        r"\b(word errors?|opinions?|likeness|ears?|the chance (that|of)|by chance|halting|misheard|buried in noise|"
        r"the voice before|as it stands|of its own|in the place of|beside (each|it|the)|a hundredth|how (dear|often))\b"
    ),
    "British spelling": (
        r"\b\w*(analys(e|ed|ing)\b|recognis|normalis|summaris|colour|behaviour|favour|neighbour|licence|centre\b|catalogue|"
        r"serialis|optimis|randomis|initialis|quantis|tokenis)\w*"
    ),
}
VAGUE = set(
    "one place part own said named spoken given kept wanted left asked heard meant taken shown written whole other others "
    "both these those what who now then first last most least some many few apart aside again".split()
)
ADJECTIVES = re.compile(
    r"^_?(LONGEST|SHORTEST|MOST|LEAST|NOTHING|SHORT|LONG|SILENT|QUIET|LOUD|SIX|FAR|NEAR|TOGETHER|LATE|EARLY|SAMPLED|SPOILED|"
    r"SPELLED|SAID|WRITTEN|MARKED|LOGGED|KEPT|KNOWN|SURE|FEW|MANY|ALL|NONE|SAME|OTHER|FIRST|LAST|BEST|WORST|SMALL|LARGE|SLOW|QUICK|FAST|ENOUGH|TOO_\w+|"
    r"AT_(MOST|LEAST))$"
)


@dataclass(frozen=True)
class Match:
    """One passage that matches a rule."""

    rule: str
    path: Path
    line: int
    text: str


def prose(path: Path, source: str) -> Iterator[tuple[int, str]]:
    """Yield every line of prose with its number: comments, docstrings, messages, paragraphs outside code."""
    if path.suffix != ".py":
        fenced = False
        for number, line in enumerate(source.splitlines(), 1):
            fenced ^= line.startswith("```")
            if not fenced and not line.startswith("<!--"):
                yield number, re.sub(r"`[^`]*`|<!--.*?-->", "", line)
        return
    for number, line in enumerate(source.splitlines(), 1):
        if comment := re.search(r"(?<!['\"\w])#\s(.*)", line):
            yield number, comment[1]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value.strip():
            for offset, line in enumerate(node.value.split("\n")):
                yield node.lineno + offset, re.sub(r"`[^`]*`", "", line.strip())


def identifiers(path: Path, tree: ast.Module) -> Iterator[Match]:
    """Yield vague names of variables and arguments, and constants that are adjectives."""
    for node in ast.walk(tree):
        name = node.id if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) else getattr(node, "arg", None)
        if isinstance(node, ast.Name | ast.arg) and name in VAGUE:
            yield Match("vague name", path, node.lineno, name)
    for statement in tree.body:
        target = statement.targets[0] if isinstance(statement, ast.Assign) else getattr(statement, "target", None)
        if isinstance(target, ast.Name) and ADJECTIVES.match(target.id):
            yield Match("adjective constant", path, statement.lineno, target.id)


def main() -> int:
    """Count the matches, print those over a limit, and return the exit status."""
    command = ["git", "ls-files", *FOLDERS]
    listed = subprocess.run(command, capture_output=True, check=True, text=True).stdout.split("\n")
    matches: list[Match] = []
    words = lines = 0
    for path in map(Path, filter(None, listed)):
        if SKIPPED.search(str(path)) or path.suffix not in {".py", ".md", ".pyi"} or not path.is_file():
            continue
        source = path.read_text(encoding="utf-8")
        for number, text in prose(path, source):
            words += len(text.split())
            for rule, pattern in PROSE.items():
                matches += [Match(rule, path, number, hit[0]) for hit in re.finditer(pattern, text, re.IGNORECASE)]
        if path.suffix == ".py":
            lines += source.count("\n")
            matches += identifiers(path, ast.parse(source))
    counts = {
        rule: sum(match.rule == rule for match in matches) for rule in (*PROSE, "vague name", "adjective constant")
    }
    prose_rate = 1000 * sum(counts[rule] for rule in PROSE) / max(words, 1)
    name_rate = 1000 * counts["vague name"] / max(lines, 1)
    over = prose_rate > PROSE_PER_1000_WORDS or name_rate > NAMES_PER_1000_LINES
    over = over or counts["adjective constant"] > 0 or counts["British spelling"] > BRITISH_QUOTATIONS
    if over or "--list" in sys.argv:
        for match in matches:
            print(f"{match.path}:{match.line}: {match.rule}: {match.text}")
    print(", ".join(f"{rule} {count}" for rule, count in counts.items()))
    print(f"{prose_rate:.2f} per 1,000 words of prose (at most {PROSE_PER_1000_WORDS})")
    print(f"{name_rate:.2f} vague names per 1,000 lines (at most {NAMES_PER_1000_LINES:g})")
    return int(over)


if __name__ == "__main__":
    sys.exit(main())

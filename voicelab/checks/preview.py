"""What remains of an output on a code host, which shows saved notebooks without scripts, styles and sound."""

from __future__ import annotations

from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any, Final

from voicelab.checks.finding import code_cells, outputs_of

__all__ = ["invisible", "visible"]

# Taken out with all that is in them; what is in a template is shown by scripts only.
_STRIPPED: Final = frozenset({"audio", "canvas", "iframe", "object", "script", "style", "svg", "template", "video"})
_PICTURES: Final = ("image/png", "image/jpeg", "image/gif", "image/svg+xml")


class _Reader(HTMLParser):
    """Collects the words that a page shows when what hosts strip is gone."""

    def __init__(self) -> None:
        super().__init__()
        self.words: list[str] = []
        self.pictures = 0
        self._inside: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _STRIPPED:
            self._inside.append(tag)
        elif tag == "img" and not self._inside:
            told = dict(attrs)
            self.pictures += (told.get("src") or "").startswith("data:image/")
            self.words.append(told.get("alt") or "")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in _STRIPPED:
            self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        if tag in self._inside:
            del self._inside[self._inside.index(tag) :]

    def handle_data(self, data: str) -> None:
        if not self._inside:
            self.words.append(data)


def visible(html: str) -> tuple[str, int]:
    """Return the words that a code host shows of some HTML, those in place of pictures too, and how many pictures."""
    reader = _Reader()
    reader.feed(html)
    reader.close()
    return " ".join(" ".join(reader.words).split()), reader.pictures


def invisible(notebook: Any) -> Iterator[tuple[int, str, str]]:
    """Yield outputs of which nothing is seen on a code host: no picture, and no word of HTML, where that comes first."""
    for number, cell in code_cells(notebook):
        for place, output in enumerate(outputs_of(cell), start=1):
            data = output.get("data", {})
            page = data.get("text/html")
            if page is None or any(mime in data for mime in _PICTURES):
                continue
            words, pictures = visible(page)
            if not words and not pictures:
                message = (
                    f"output {place} is scripts or sound alone: a code host shows nothing of it; add words or a PNG"
                )
                yield number, "preview", message

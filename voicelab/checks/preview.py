"""What remains of an output on a code host, which shows saved notebooks without scripts, styles and sound."""

from __future__ import annotations

from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any, Final

from voicelab.checks.finding import code_cells, outputs_of

__all__ = ["empty", "invisible", "visible"]

# Taken out with all that is in them; what is in a template is shown by scripts only.
_STRIPPED: Final = frozenset({"audio", "canvas", "iframe", "object", "script", "style", "svg", "template", "video"})
_PICTURES: Final = ("image/png", "image/jpeg", "image/gif", "image/svg+xml")


class _Reader(HTMLParser):
    """Collects the words that a page shows when what hosts strip is gone."""

    def __init__(self) -> None:
        super().__init__()
        self.words: list[str] = []
        self.pictures = 0
        self.lost = False
        self._inside: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _STRIPPED:
            self._inside.append(tag)
            self.lost |= tag != "style"
        elif tag == "img" and not self._inside:
            told = dict(attrs)
            inline = (told.get("src") or "").startswith("data:image/")
            self.pictures += inline
            self.lost |= not inline
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


def _read(html: str) -> _Reader:
    reader = _Reader()
    reader.feed(html)
    reader.close()
    return reader


def visible(html: str) -> tuple[str, int]:
    """Return the words that a code host shows of some HTML, those in place of pictures too, and how many pictures."""
    reader = _read(html)
    return " ".join(" ".join(reader.words).split()), reader.pictures


def empty(html: str) -> bool:
    """Say whether some HTML shows nothing, sounds nothing and runs nothing anywhere: a place kept for later."""
    reader = _read(html)
    return not reader.lost and not reader.pictures and not any(word.strip() for word in reader.words)


def invisible(notebook: Any) -> Iterator[tuple[int, str, str]]:
    """Yield outputs of which nothing is seen on a code host: no picture, and no word of HTML, where that comes first."""
    for number, cell in code_cells(notebook):
        for place, output in enumerate(outputs_of(cell), start=1):
            data = output.get("data", {})
            page = data.get("text/html")
            if page is None or empty(page) or any(mime in data for mime in _PICTURES):
                continue
            words, pictures = visible(page)
            if not words and not pictures:
                message = (
                    f"output {place} is scripts or sound alone: a code host shows nothing of it; add words or a PNG"
                )
                yield number, "preview", message

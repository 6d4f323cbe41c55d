"""mkdocs hooks: generated pages, pages from outside docs/, links, players for sounds."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import reference
import rendered
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
ELSEWHERE = {
    "CHANGELOG.md": "project/changelog.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "README.md": "index.md",
    "training/LICENSES.md": "project/licenses.md",
    "training/README.md": "project/model-card.md",
}
"""Pages outside docs/ and their paths in the site."""

_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s#]+)(#[^)]*)?\)")
_PICTURE = re.compile(r"!\[([^\[\]]*)\]\(https?://[^)]*\)")
# Resources that a browser fetches automatically; external links are allowed.
_FETCHED = re.compile(
    r"""<(?:img|script|audio|source|iframe)\b[^>]*\bsrc=["']?(?:https?:)?//[^>]*>|<link\b[^>]*stylesheet[^>]*//[^>]*>"""
)
_SOUND = re.compile(r'<a href="([^"]+\.mp3)">(.*?)</a>')


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Expand "folder/*" in the navigation."""
    pages = {path.relative_to(config.docs_dir).as_posix() for path in Path(config.docs_dir).rglob("*.md")}
    pages |= set(reference.PAGES)
    config.nav = list(_written_out(config.nav or [], pages, set(_named(config.nav or []))))
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add generated pages, pages from outside docs/, and notebooks; README is the home page."""
    for uri, make in reference.PAGES.items():
        files.append(File.generated(config, uri, content=make()))
    for name, uri in ELSEWHERE.items():
        if files.get_file_from_path(uri) is None:
            files.append(File.generated(config, uri, content=(ROOT / name).read_text(encoding="utf-8")))
    for notebook in rendered.NOTEBOOKS:
        files.append(File.generated(config, f"notebooks/{notebook.stem}.html", content=rendered.page(notebook)))
    return files


def on_page_markdown(markdown: str, *, page: Page, **_: Any) -> str:
    """Rewrite links out of docs/ to pages of the site; links to other files become text."""
    uri = page.file.src_uri
    origin = next(
        (name for name, target in ELSEWHERE.items() if target == uri and page.file.generated_by), f"docs/{uri}"
    )

    def rewrite(link: re.Match[str]) -> str:
        picture, words, target, anchor = link[1], link[2], link[3], link[4] or ""
        if "://" in target or target.startswith("mailto:"):
            return link[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(origin), target))
        target_page = (
            ELSEWHERE.get(path)
            or ("notebooks.md" if path == "notebooks" else None)
            or (path.removesuffix(".ipynb") + ".html" if path.startswith("notebooks/") else None)
            or (path.removeprefix("docs/") if path.startswith("docs/") else None)
        )
        if target_page is None or ((ROOT / path).is_dir() and target_page != "notebooks.md"):
            return words if (ROOT / path).exists() else link[0]
        return f"{picture}[{words}]({posixpath.relpath(target_page, posixpath.dirname(uri) or '.')}{anchor})"

    # Remote pictures (badges) become their alternative text: the site works offline.
    return _LINK.sub(rewrite, _PICTURE.sub(r"\1", markdown))


def on_page_content(html: str, **_: Any) -> str:
    """Replace links to sounds with players."""
    return _SOUND.sub(r'<span class="sound"><audio controls preload="none" src="\1"></audio> \2</span>', html)


def on_post_page(output: str, *, page: Page, **_: Any) -> str:
    """Raise PluginError for a page that loads remote resources."""
    if found := _FETCHED.search(output):
        raise PluginError(f"{page.file.src_uri} loads a remote resource: {found[0]}")
    return output


def _named(nav: Any) -> Iterator[str]:
    if isinstance(nav, str):
        yield nav
    elif isinstance(nav, dict):
        for value in nav.values():
            yield from _named(value)
    else:
        for item in nav:
            yield from _named(item)


def _written_out(nav: list[Any], pages: set[str], named: set[str]) -> Iterator[Any]:
    for item in nav:
        if isinstance(item, str) and item.endswith("/*"):
            folder = item.removesuffix("*")
            yield from sorted(page for page in pages - named if posixpath.dirname(page) + "/" == folder)
        elif isinstance(item, dict):
            yield {
                title: list(_written_out(value, pages, named)) if isinstance(value, list) else value
                for title, value in item.items()
            }
        else:
            yield item

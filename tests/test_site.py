"""docs/make/hooks.py: links that leave docs/, sounds, and nothing from a network. `make docs` builds the whole."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from mkdocs.exceptions import PluginError

ROOT = Path(__file__).parents[1]
# The commands of docs/make import each other as scripts do: from their own folder.
sys.path.insert(0, str(ROOT / "docs" / "make"))
import hooks  # noqa: E402
import rendered  # noqa: E402


def _page(uri: str, *, made: bool = False) -> Any:
    return SimpleNamespace(file=SimpleNamespace(src_uri=uri, generated_by="hook" if made else None))


@pytest.mark.parametrize(
    ("uri", "made", "markdown", "led"),
    [
        (
            "how-to/sweep.md",
            False,
            "[the card](../../training/README.md#limits)",
            "[the card](../project/model-card.md#limits)",
        ),
        ("how-to/sweep.md", False, "[speed](../../bench/speed.py)", "speed"),
        ("how-to/sweep.md", False, "[more](compare.md)", "[more](compare.md)"),
        ("tutorial.md", False, "[01](../notebooks/01_quickstart.ipynb)", "[01](notebooks/01_quickstart.html)"),
        ("index.md", True, "[all](notebooks)", "[all](notebooks.md)"),
        ("index.md", True, "![a clip](docs/images/clip.png)", "![a clip](images/clip.png)"),
        ("index.md", True, "[decisions](docs/decisions)", "decisions"),
        ("project/model-card.md", True, "![x](../docs/images/clip.png)", "![x](../images/clip.png)"),
        (
            "index.md",
            True,
            "[![Binder](https://mybinder.org/b.svg)](https://mybinder.org/x)",
            "[Binder](https://mybinder.org/x)",
        ),
        ("index.md", True, "[nowhere](docs/nowhere.py)", "[nowhere](nowhere.py)"),
    ],
)
def test_links_lead_to_where_their_page_stands(uri: str, *, made: bool, markdown: str, led: str) -> None:
    assert hooks.on_page_markdown(markdown, page=_page(uri, made=made)) == led


def test_a_link_to_a_sound_is_a_player() -> None:
    html = hooks.on_page_content('<p><a href="../sounds/a.mp3">take 1</a> <a href="b.html">b</a></p>')
    assert '<audio controls preload="none" src="../sounds/a.mp3"></audio> take 1' in html
    assert '<a href="b.html">b</a>' in html


def test_a_notebook_is_a_page_that_plays_and_loads_nothing_from_elsewhere() -> None:
    html = rendered.page(ROOT / "notebooks" / "05_clone_a_voice.ipynb")
    assert hooks._FETCHED.search(html) is None
    assert 'src="data:audio/mpeg;base64,' in html
    assert 'href="04_compare_voices.html"' in html
    assert ".ipynb" not in html
    assert 'href="../project/model-card.html"' in html
    assert 'href="../notebooks.html"' in html


@pytest.mark.parametrize(
    "html",
    [
        '<img alt="x" src="https://example.org/x.svg">',
        '<script src="//cdn.example.org/x.js"></script>',
        '<link rel="stylesheet" href="https://fonts.example.org/css">',
    ],
)
def test_a_page_that_loads_from_a_network_is_refused(html: str) -> None:
    with pytest.raises(PluginError, match="tutorial"):
        hooks.on_post_page(html, page=_page("tutorial.md"))


def test_a_link_for_people_to_follow_is_not() -> None:
    html = '<a href="https://example.org">there</a><img src="images/clip.png"><link rel="stylesheet" href="site.css">'
    assert hooks.on_post_page(html, page=_page("tutorial.md")) == html


def test_a_folder_in_the_menu_is_its_pages_that_are_not_named() -> None:
    pages = {"how-to/a.md", "how-to/b.md", "how-to/deep/c.md", "tutorial.md"}
    nav: list[Any] = ["tutorial.md", {"How to": ["how-to/b.md", "how-to/*"]}]
    assert list(hooks._written_out(nav, pages, set(hooks._named(nav)))) == [
        "tutorial.md",
        {"How to": ["how-to/b.md", "how-to/a.md"]},
    ]

"""Panels in the widget managers of other front ends: VS Code's own, and the one that Colab's is made of.

A plain page has the manager as it is published, a real kernel, and the marks by which each front end tells its theme; it has
none of JupyterLab's classes and variables. What these front ends put around it (content security policies, frames,
permissions, settings) is not here.
"""

from __future__ import annotations

import asyncio
import base64
import json
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

import pytest
from ipywidgets.embed import embed_data
from jupyter_client.manager import start_new_async_kernel

from tests.browser.conftest import LONG, ROOT, until
from tests.browser.front_ends import shows
from tests.tones import ToneBackend
from voicelab.lab import Lab

if TYPE_CHECKING:
    from jupyter_client.asynchronous.client import AsyncKernelClient
    from playwright.sync_api import Page, Route

FRONT_ENDS = Path(sys.prefix) / "front-ends"
FILES = {
    "/vscode.js": FRONT_ENDS / "jupyter-ipywidgets8" / "dist" / "ipywidgets.js",
    "/html-manager.js": FRONT_ENDS / "html-manager" / "dist" / "libembed-amd.js",
    "/require.js": FRONT_ENDS / "requirejs" / "require.js",
    "/anywidget.js": Path(sys.prefix) / "share" / "jupyter" / "nbextensions" / "anywidget" / "index.js",
    "/managers.js": Path(__file__).with_name("managers.js"),
}
HOSTS = {
    "vscode": '<html><body class="vscode-dark" data-vscode-theme-kind="vscode-dark" style="background:#1e1e1e;color:#ccc">'
    "<style>.cell-output-ipywidget-background { background: white !important }</style>",
    "colab": '<html theme="dark"><body style="background:#383838;color:#fff"><script src="/html-manager.js"></script>',
}
PAGE = (
    '<!doctype html>{host}<script src="/managers.js"></script>'
    '<div id="widgets"></div><div id="cells"></div></body></html>'
)
SETUP = """\
import voicelab as vl
from tests.tones import ToneBackend
from voicelab.lab import Lab
lab = Lab(ToneBackend())
"""

Run = Callable[[str], None]


class Kernel(threading.Thread):
    """A kernel, with what it says in ``came``, and what it is to be told in ``sent``: messages, their buffers in base64."""

    def __init__(self) -> None:
        super().__init__()
        self.came: SimpleQueue[dict[str, Any]] = SimpleQueue()
        self.sent: SimpleQueue[dict[str, Any]] = SimpleQueue()
        self.ended = threading.Event()

    def run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        manager, client = await start_new_async_kernel(cwd=str(ROOT))
        while not self.ended.is_set():
            while not self.sent.empty():
                self._send(client, self.sent.get())
            try:
                message = await client.get_iopub_msg(timeout=0.02)
            except Empty:
                continue
            buffers = [base64.b64encode(bytes(data)).decode("ascii") for data in message["buffers"]]
            kept = {name: message[name] for name in ("header", "parent_header", "content", "metadata")}
            self.came.put(json.loads(json.dumps({**kept, "buffers": buffers}, default=str)))
        client.stop_channels()
        await manager.shutdown_kernel(now=True)

    def _send(self, client: AsyncKernelClient, told: dict[str, Any]) -> None:
        message = client.session.msg(told["type"], told["content"], metadata=told["metadata"])
        message["header"]["msg_id"] = message["msg_id"] = told["id"]
        buffers = [base64.b64decode(data) for data in told["buffers"]]
        client.session.send(client.shell_channel.socket, message, buffers=buffers)


@pytest.fixture(scope="module")
def kernel() -> Iterator[Kernel]:
    thread = Kernel()
    thread.start()
    yield thread
    thread.ended.set()
    thread.join()


@pytest.fixture(params=HOSTS)
def run(request: pytest.FixtureRequest, page: Page, kernel: Kernel) -> Run:
    """Open a page with a widget manager on the kernel; gives what runs a cell in it."""
    if not all(file.is_file() for file in FILES.values()):
        pytest.skip("the widget managers are not here (make test-browser fetches them; so does .ci/front-ends .venv)")

    def answer(route: Route) -> None:
        path = route.request.url.removeprefix("https://front-end.test")
        if path == "/":
            host = HOSTS[request.param].replace("<body", '<head><script src="/require.js"></script></head><body')
            route.fulfill(body=PAGE.format(host=host), content_type="text/html")
        elif path in FILES:
            route.fulfill(path=FILES[path], content_type="text/javascript")
        else:  # fonts of icons
            route.fulfill(status=404)

    page.route("https://front-end.test/**", answer)
    page.expose_function("toShell", lambda message: kernel.sent.put(message))  # noqa: PLW0108 (Playwright takes none of C)
    page.expose_function("outbox", lambda: [kernel.came.get() for _ in range(kernel.came.qsize())])
    page.goto("https://front-end.test/")
    page.evaluate("(host) => start(host)", request.param)
    return lambda code: page.evaluate("(code) => run(code)", code)


@shows("Colab (html-manager 1.0.15, its basis)", "panel")
@shows("VS Code (its widget manager 1.0.9)", "panel")
def test_a_panel_speaks_plays_and_is_shown_once(run: Run, page: Page) -> None:
    run(SETUP + "panel = lab.panel('Four notes.')\npanel")
    page.locator("button.voicelab-speak").wait_for(timeout=LONG)
    page.locator(".voicelab-controls textarea").fill("Six notes.")
    page.locator("button.voicelab-speak").click()
    until(page, "+d.heard > 0.05 && d.state === 'ready' && d.spectrogram")
    page.locator(".voicelab-take").first.wait_for(timeout=LONG)
    assert "lab.speak('Six notes.'" in page.locator(".voicelab-code").inner_text()
    # What a saved notebook keeps of it comes a second later, and would be a second player on the page.
    page.locator(".voicelab-saved audio").wait_for(state="attached", timeout=LONG)
    assert not page.locator(".voicelab-saved").is_visible()
    ink = page.locator(".voicelab-player").first.evaluate(
        "(node) => getComputedStyle(node).getPropertyValue('--vl-heard')"
    )
    assert ink.strip() == ("#56b4e9" if page.locator("html[theme=dark]").count() else "#004b75")


@shows("Colab (html-manager 1.0.15, its basis)", "sweep", "compare", "voice")
@shows("VS Code (its widget manager 1.0.9)", "sweep", "compare", "voice")
def test_boxes_of_ipywidgets_and_comparisons_live(run: Run, page: Page, tmp_path: Path) -> None:
    run(SETUP + "lab.sweep('Four notes.', temperature=[0.2, 1.0]).panel()")
    page.get_by_role("button", name="Run").first.click(timeout=LONG)
    page.get_by_text("2 of 2 takes, done").wait_for(timeout=LONG)
    page.locator(".voicelab-facet .voicelab-hear[data-state=done]").nth(1).wait_for(timeout=LONG)
    run("vl.compare(a=lab.speak('Four notes.', seed=1), b=lab.speak('Six notes.', seed=2)).panel()")
    compare = page.locator(".voicelab-compare")
    compare.get_by_role("button", name="Play").first.click(timeout=LONG)
    page.wait_for_function("() => +document.querySelector('.voicelab-compare').dataset.heard > 0.05", timeout=LONG)
    page.screenshot(path=tmp_path / "panels.png", full_page=True)
    run("lab.voice_panel()")
    page.locator(".voicelab-recorder").first.wait_for(timeout=LONG)


@pytest.mark.parametrize("run", [host for host in HOSTS if host != "vscode"], indirect=True)
def test_a_page_without_a_kernel_says_so(run: Run, page: Page) -> None:
    """What nbconvert makes of a panel, with network: a manager, the saved states, and nobody to answer a button."""
    panel = Lab(ToneBackend()).sweep("Four notes.", temperature=[0.2, 1.0]).panel()
    state = embed_data(None, drop_defaults=False)["manager_state"]
    page.evaluate(
        """async ([state, id]) => {
          const manager = await ofPage();
          await manager.set_state(state);
          const model = await manager.get_model(id);
          await manager.display_view(await manager.create_view(model, {}), document.querySelector("#widgets"));
        }""",
        [json.loads(json.dumps(state)), panel.model_id],
    )
    said = page.locator(".voicelab-static")
    said.first.get_by_text("not live").wait_for(timeout=LONG)
    page.wait_for_timeout(300)
    assert said.count() == 1
    assert page.locator(".voicelab-sweep-panel").evaluate("(node) => node.inert")
    panel.close()

"""Panels in a page that is no JupyterLab: what VS Code, Colab, Voilà and marimo give an anywidget, and what they do not.

The page speaks the interface of anywidget (a model with get, set, on and send; buffers as DataViews), has none of
JupyterLab's classes and variables, and a theme as each of these names it. The widget is a real one in this process.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.browser import front_ends
from tests.browser.conftest import LONG
from tests.tones import ToneBackend
from voicelab.audio.words import Words, WordTime
from voicelab.clip import Clip
from voicelab.lab import Lab
from voicelab.views.controls import Controls
from voicelab.views.player import Player
from voicelab.views.scripts import PageWidget, inlined, styled

if TYPE_CHECKING:
    from playwright.sync_api import Page

HOST = """
const listeners = {};
const tell = (name, ...rest) => (listeners[name] ?? []).forEach((listener) => listener(...rest));
const model = {
  get: (name) => state[name],
  set: (name, value) => { state[name] = value; changed[name] = value; tell(`change:${name}`); },
  save_changes: () => { toKernel({ changed: { ...changed } }); for (const name in changed) delete changed[name]; },
  on: (name, listener) => (listeners[name] ??= []).push(listener),
  off: (name, listener) => (listeners[name] = (listeners[name] ?? []).filter((other) => other !== listener)),
  send: (message) => toKernel({ message }),
};
const changed = {};
window.fromKernel = ({ name, value, message, buffers }) => {
  if (name) { state[name] = value; return tell(`change:${name}`); }
  // As messages come: views into one larger buffer.
  const views = buffers.map((data) => {
    const bytes = Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0));
    const whole = new Uint8Array(bytes.length + 8);
    whole.set(bytes, 8);
    return new DataView(whole.buffer, 8);
  });
  tell("msg:custom", message, views);
};
const url = URL.createObjectURL(new Blob([source], { type: "text/javascript" }));
const module = (await import(url)).default;
const widget = typeof module === "function" ? await module() : module;
await widget.initialize?.({ model });
await widget.render({ model, el: document.querySelector("#panel") });
setInterval(async () => { for (const sent of await outbox()) fromKernel(sent); }, 20);
"""
PAGE = """<html {html}><head><style>{css}</style></head><body {body}>
<div class="{box}"><div style="{cell}"><div id="panel"></div></div><div class="voicelab-saved">kept</div></div>
<div class="cell_container"><div class="voicelab-saved">of another cell</div></div></body></html>"""
HOSTS = {
    # What is white below widgets in VS Code's dark themes, unless a user takes that away.
    "vscode": {"html": "", "body": 'class="vscode-dark" style="background:#1e1e1e"', "cell": "background:white"},
    "vscode-transparent": {"html": "", "body": 'class="vscode-dark" style="background:#1e1e1e"', "cell": ""},
    "colab": {"html": 'theme="dark"', "body": 'style="background:#383838"', "cell": ""},
    "unpainted": {"html": 'style="color-scheme:dark"', "body": 'style="color:#eee"', "cell": ""},
    "voila": {"html": "", "body": "", "cell": "", "box": "jp-Cell jp-OutputArea"},
}
DARK = {"vscode-transparent", "colab", "unpainted"}

Show = Callable[["PageWidget"], None]


@pytest.fixture(params=HOSTS)
def show(request: pytest.FixtureRequest, page: Page) -> Show:
    def show(widget: PageWidget) -> None:
        def to_kernel(sent: dict[str, Any]) -> None:
            if "message" in sent:
                widget._handle_custom_msg(sent["message"], [])
            for name, value in sent.get("changed", {}).items():
                setattr(widget, name, value)

        # The widget's threads may send whenever they like, Playwright may be called by its own alone: the page asks.
        waiting: SimpleQueue[dict[str, Any]] = SimpleQueue()

        def send(message: dict[str, Any], buffers: list[bytes] | None = None) -> None:
            encoded = [base64.b64encode(bytes(data)).decode("ascii") for data in buffers or ()]
            waiting.put({"message": message, "buffers": encoded})

        widget.send = send
        names = [
            name
            for name in widget.keys
            if not name.startswith("_") and name not in ("layout", "scripts", "tabbable", "tooltip")
        ]
        state = {name: getattr(widget, name) for name in names}
        page.goto("about:blank")
        css = styled(*widget.styles)
        page.set_content(PAGE.format(css=css, **{"box": "cell_container"} | HOSTS[request.param]))
        page.expose_function("toKernel", to_kernel)
        page.expose_function("outbox", lambda: [waiting.get() for _ in range(waiting.qsize())])
        source = f"async ({{ state, source }}) => {{{HOST}}}"
        page.evaluate(source, {"state": json.loads(json.dumps(state)), "source": inlined(widget.script)})
        page.wait_for_timeout(200)
        for name in names:
            widget.observe(
                lambda change: waiting.put({"name": change["name"], "value": change["new"]}),
                names=name,
            )

    return show


def test_a_player_plays_and_the_kept_output_is_hidden_while_it_lives(
    show: Show, page: Page, request: pytest.FixtureRequest
) -> None:
    samples = (0.5 * np.sin(np.arange(24_000) / 20)).astype(np.float32)
    show(Player(Clip(samples, 24_000, Words((WordTime("tone", 0.2, 0.8),)))))
    page.wait_for_selector(".voicelab-player[data-samples='24000']", timeout=LONG)
    page.locator(".voicelab-words button").click()
    page.wait_for_function("() => +document.querySelector('.voicelab-player').dataset.heard > 0.4", timeout=LONG)
    kept = page.locator(".voicelab-saved")
    assert [kept.nth(0).is_visible(), kept.nth(1).is_visible()] == [False, True]
    dark = request.node.callspec.params["show"] in DARK
    ink = page.locator(".voicelab-player").evaluate("(node) => getComputedStyle(node).getPropertyValue('--vl-heard')")
    assert ink.strip() == ("#56b4e9" if dark else "#004b75")


def test_controls_are_turned_and_pressed(show: Show, page: Page) -> None:
    pressed: list[str] = []
    changed: list[object] = []
    lab = Lab(ToneBackend(), seed=1)
    controls = Controls(lab, "Hello.", compact=True, changed=lambda: changed.append(1), pressed=pressed.append)
    show(controls)
    page.locator(".voicelab-field-temperature [type=number]").fill("0.25")
    page.locator(".voicelab-field-temperature [type=number]").blur()
    page.locator("textarea").fill("Good morning.")
    page.locator("button.voicelab-speak").click()
    page.locator("button.voicelab-draw").click()
    assert pressed == ["speak", "draw"]
    assert (controls.values["temperature"], controls.text) == (0.25, "Good morning.")
    page.locator(".voicelab-field-top_p button.voicelab-undo[disabled]").wait_for(timeout=LONG)
    ink, paper = page.locator("textarea").evaluate(
        "(node) => [getComputedStyle(node).color, getComputedStyle(node).backgroundColor]"
        ".map((colour) => colour.match(/[0-9.]+/g).slice(0, 3).reduce((sum, part) => sum + Number(part), 0))"
    )
    assert abs(ink - paper) > 300, "the text cannot be read"


def test_the_table_of_front_ends_is_that_of_the_tests() -> None:
    page = front_ends.PAGE.read_text(encoding="utf-8")
    assert page == front_ends.written(page), "run python -m tests.browser.front_ends"


# marimo gives each view models of its own, with the listeners and messages of all views of a widget.
BOXES = """async ([source, states]) => {
  const { default: boxes } = await import(URL.createObjectURL(new Blob([source], { type: "text/javascript" })));
  const [listeners, sent] = [new Map(), []];
  const change = (id, name, value) => {
    states[id][name] = value;
    for (const act of [...(listeners.get(`${id} change:${name}`) ?? [])]) act();
  };
  const view = (id) => {
    const acts = (name) => listeners.get(`${id} ${name}`) ?? listeners.set(`${id} ${name}`, new Set()).get(`${id} ${name}`);
    return {
      get: (name) => states[id][name],
      on: (name, act) => acts(name).add(act),
      off: (name, act) => acts(name).delete(act),
      send: (message) => sent.push([id, message.count]),
      widget_manager: { get_model: async (id) => view(id) },
    };
  };
  const host = { getWidget: async () => ({ render: async () => {} }) };
  const turn = () => new Promise((resolve) => setTimeout(resolve));
  const count = () => [...listeners.values()].reduce((sum, acts) => sum + acts.size, 0);
  const [counts, ends] = [[], []];
  for (const _ of [0, 1]) {
    ends.push(await boxes.render({ model: view("root"), el: document.body, host }));
    await turn();
  }
  counts.push(count());
  change("box", "children", []);
  await turn();
  counts.push(count());
  change("box", "children", ["IPY_MODEL_script"]);
  await turn();
  counts.push(count());
  for (const end of ends) end();
  return [counts, count(), sent];
}"""


def test_views_in_marimo_are_counted_and_leave_no_listeners(page: Page) -> None:
    layout = {"layout": "IPY_MODEL_layout"}
    states = {
        "root": {"root": "IPY_MODEL_box"},
        "box": {"_model_name": "VBoxModel", "children": ["IPY_MODEL_script"], **layout},
        "script": {"_model_name": "AnyModel", **layout},
        "layout": {"width": "3px"},
    }
    page.goto("about:blank")
    (whole, empty, again), left, sent = page.evaluate(BOXES, [inlined("boxes.js"), states])
    assert 0 < empty < whole == again
    assert left == 0
    assert sent == [["script", number] for number in (1, 2, 1, 0, 1, 2, 1, 0)]

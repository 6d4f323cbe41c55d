"""Displays of a notebook: cells that create a figure, player or panel without a saved output of it, and widget states.

The source of cells is parsed, not run: calls are recognized by name (pyplot, ``.plot()``, ``display()``, widgets, voicelab).
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

_PYPLOT: Final = frozenset({"plt", "pyplot"})
_PLOTTERS: Final = frozenset(
    "figure subplots subplot plot scatter bar barh hist boxplot violinplot imshow specgram errorbar fill_between pie "
    "semilogx semilogy loglog step stem contour contourf show".split()
)
_AXES_FACTORIES: Final = frozenset("subplots subplot gca axes add_subplot twinx twiny plot plot_clips".split())
_DISPLAY_FACTORIES: Final = frozenset(
    "speak compare compare_systems sweep panel explore voice_panel knob_panel systems_panel listen "
    "Clip load figure Audio Video Image SVG HTML Markdown YouTubeVideo IFrame "
    "interact interactive VBox HBox Box Tab Accordion Button Dropdown IntSlider FloatSlider".split()
)
# After these statements, figures are not displayed inline.
_NO_INLINE_FIGURES: Final = re.compile(
    r"\bioff\(|\bmatplotlib\.use\(|\bmpl\.use\(|^\s*%matplotlib (?!inline|widget|ipympl)", re.MULTILINE
)
_MAGIC: Final = re.compile(r"^(\s*)(?:[%!?].*|\S+\?+)$", re.MULTILINE)


@dataclass
class Displays:
    """Parser of a notebook's cells in order, with the variables bound to figures, clips, panels and axes."""

    _variables: set[str] = field(default_factory=set)
    _axes: set[str] = field(default_factory=set)
    _hidden: bool = False

    def expected(self, source: str) -> str:
        """Return the kind of display of the next cell, "a figure" or "a player or panel"; "" for neither or unknown."""
        self._hidden |= _NO_INLINE_FIGURES.search(source) is not None
        try:
            body = ast.parse(_MAGIC.sub(r"\1pass", source)).body
        except (SyntaxError, ValueError):
            return ""
        if source.lstrip().startswith("%%") or not body:
            return ""
        for statement in ast.walk(ast.Module(body, [])):
            if isinstance(statement, ast.Assign):
                self._bind(statement)
        calls, final = list(_calls(body)), body[-1]
        result = isinstance(final, ast.Expr) and not _ends_in_semicolon(source) and self._is_display(final.value)
        plots = not self._hidden and any(map(self._plots, calls)) and not any(_name(call) == "close" for call in calls)
        if plots:
            return "a figure"
        return "a player or panel" if result or any(_name(call) == "display" for call in calls) else ""

    def _plots(self, call: ast.Call) -> bool:
        function = call.func
        if _name(call) == "plot_clips":
            return not _into_axes(call)
        if not isinstance(function, ast.Attribute):
            return False
        if isinstance(function.value, ast.Name) and function.value.id in _PYPLOT:
            return function.attr in _PLOTTERS
        receiver = _root(function.value)
        return function.attr == "plot" and receiver not in self._axes and receiver[:2] != "ax" and not _into_axes(call)

    def _is_display(self, value: ast.expr) -> bool:
        return value.id in self._variables if isinstance(value, ast.Name) else _name(value) in _DISPLAY_FACTORIES

    def _bind(self, statement: ast.Assign) -> None:
        names = {node.id for target in statement.targets for node in ast.walk(target) if isinstance(node, ast.Name)}
        for variables, factories in ((self._variables, _DISPLAY_FACTORIES), (self._axes, _AXES_FACTORIES)):
            variables.difference_update(names)
            if _name(statement.value) in factories:
                variables.update(names)
        if _name(statement.value) == "subplots" and isinstance(statement.targets[0], ast.Tuple):
            self._variables.add(_root(statement.targets[0].elts[0]))


def lost_output(expected: str, outputs: list[Any]) -> bool:
    """Return True if the expected display is not among the outputs. A text such as ``<Axes: >`` is not a figure."""
    if expected != "a figure":
        return not outputs
    displays = [output.get("data", {}) for output in outputs if output.output_type != "stream"]
    texts = (data if set(data) == {"text/plain"} else None for data in displays)
    return all(
        data is not None and re.match(r"[\[(]*(?:array\()?[\[(]*<(?:Axes|Figure|matplotlib)", data["text/plain"])
        for data in texts
    )


def _calls(body: list[ast.stmt]) -> Iterator[ast.Call]:
    """Yield the calls that always run: not those in functions, branches, or context managers that may capture output."""
    for statement in body:
        if isinstance(statement, ast.For):
            yield from _calls(statement.body)
        elif isinstance(statement, ast.With):
            if all(re.search("style|rc_context", ast.unparse(item.context_expr)) for item in statement.items):
                yield from _calls(statement.body)
        elif isinstance(statement, ast.Expr | ast.Assign | ast.AnnAssign):
            nodes = list(ast.walk(statement))
            if not any(isinstance(node, ast.Lambda) for node in nodes):
                yield from (node for node in nodes if isinstance(node, ast.Call))


def _name(node: ast.AST) -> str:
    """Return the name of the called function or method, such as ``speak`` for ``lab.speak(…)``."""
    function = node.func if isinstance(node, ast.Call) else None
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _root(node: ast.AST) -> str:
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    return getattr(node, "id", "")


def _into_axes(call: ast.Call) -> bool:
    keyword = any(keyword.arg in {"ax", "axes"} for keyword in call.keywords)
    return keyword or any(_root(argument)[:2] == "ax" for argument in call.args)


def _ends_in_semicolon(source: str) -> bool:
    return source.rstrip().rpartition("\n")[2].partition("#")[0].rstrip().endswith(";")


VIEW: Final = "application/vnd.jupyter.widget-view+json"
_STATE: Final = "application/vnd.jupyter.widget-state+json"
_REFERENCE: Final = "IPY_MODEL_"

States = Mapping[str, Any]
"""Saved widget models by id."""


def saved_states(notebook: Any) -> States:
    """Return the models in a notebook's metadata; empty if no state was saved."""
    states: States = notebook.metadata.get("widgets", {}).get(_STATE, {}).get("state", {})
    return states


def models(model_id: str, states: States) -> Iterator[tuple[str, Any]]:
    """Yield the saved models of a displayed widget and of the widgets in it, each once, as (id, model), depth first."""
    stack, seen = [model_id], set()
    while stack:
        current = stack.pop()
        if current in states and current not in seen:
            seen.add(current)
            yield current, states[current]
            stack += reversed(list(_references(states[current].get("state", {}))))


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, str) and value.startswith(_REFERENCE):
        yield value.removeprefix(_REFERENCE)
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _references(item)
    elif isinstance(value, list):
        for item in value:
            yield from _references(item)


def properties(model: Any) -> Iterator[str]:
    """Yield the visible properties of a model, such as "IntSlider.value = 5".

    Properties with default values (null), private properties and nested ones are omitted.
    """
    name = model.get("model_name", "Widget").removesuffix("Model")
    for key, value in sorted(model.get("state", {}).items()):
        if value is None or key.startswith("_") or key in {"outputs", "msg_id"} or any(_references(value)):
            continue
        yield f"{name}.{key} = {value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}"


def stable_states(notebook: Any) -> Any:
    """Keep the states of displayed widgets that have no HTML fallback, with ids numbered in order instead of random."""
    states = saved_states(notebook)
    displayed: dict[str, Any] = {}
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            data = output.get("data", {})
            if VIEW in data and "text/html" not in data:
                displayed.update(models(data[VIEW].get("model_id", ""), states))
    notebook.metadata.pop("widgets", None)
    if not displayed:
        return notebook
    notebook.metadata["widgets"] = {_STATE: {"state": displayed, "version_major": 2, "version_minor": 0}}
    text = json.dumps(notebook)
    for number, model_id in enumerate(displayed, start=1):
        text = text.replace(model_id, f"{number:032x}")
    import nbformat

    return nbformat.from_dict(json.loads(text))

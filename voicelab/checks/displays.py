"""Find cells that show a figure, player or panel by their source, while nothing of it was saved.

Only the source is read, so only calls known by name count: pyplot's, ``.plot()``, ``display()``, widgets and voicelab's own.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

_PYPLOT: Final = frozenset({"plt", "pyplot"})
_DRAWING: Final = frozenset(
    "figure subplots subplot plot scatter bar barh hist boxplot violinplot imshow specgram errorbar fill_between pie "
    "semilogx semilogy loglog step stem contour contourf show".split()
)
_AXES: Final = frozenset("subplots subplot gca axes add_subplot twinx twiny plot plot_clips".split())
_VALUES: Final = frozenset(
    "speak compare compare_systems sweep panel explore voice_panel knob_panel systems_panel listen "
    "Clip load figure Audio Video Image SVG HTML Markdown YouTubeVideo IFrame "
    "interact interactive VBox HBox Box Tab Accordion Button Dropdown IntSlider FloatSlider".split()
)
# The output of what is drawn elsewhere: another backend, or a cell that keeps its output.
_ELSEWHERE: Final = re.compile(
    r"\bioff\(|\bmatplotlib\.use\(|\bmpl\.use\(|^\s*%matplotlib (?!inline|widget|ipympl)", re.MULTILINE
)
_MAGIC: Final = re.compile(r"^(\s*)(?:[%!?].*|\S+\?+)$", re.MULTILINE)


@dataclass
class Displays:
    """Reads the sources of a notebook's cells in order, and remembers what its names are bound to."""

    _values: set[str] = field(default_factory=set)
    _axes: set[str] = field(default_factory=set)
    _hidden: bool = False

    def expected(self, source: str) -> str:
        """Return what the next cell shows, "a figure" or "a player or panel"; "" for nothing, or where it cannot be told."""
        self._hidden |= _ELSEWHERE.search(source) is not None
        try:
            body = ast.parse(_MAGIC.sub(r"\1pass", source)).body
        except (SyntaxError, ValueError):
            return ""
        if source.lstrip().startswith("%%") or not body:
            return ""
        for statement in ast.walk(ast.Module(body, [])):
            if isinstance(statement, ast.Assign):
                self._bind(statement)
        calls, last = list(_calls(body)), body[-1]
        value = isinstance(last, ast.Expr) and not _quiet(source) and self._is_value(last.value)
        draws = not self._hidden and any(map(self._draws, calls)) and not any(_name(call) == "close" for call in calls)
        if draws:
            return "a figure"
        return "a player or panel" if value or any(_name(call) == "display" for call in calls) else ""

    def _draws(self, call: ast.Call) -> bool:
        function = call.func
        if _name(call) == "plot_clips":
            return not _into_axes(call)
        if not isinstance(function, ast.Attribute):
            return False
        if isinstance(function.value, ast.Name) and function.value.id in _PYPLOT:
            return function.attr in _DRAWING
        receiver = _root(function.value)
        return function.attr == "plot" and receiver not in self._axes and receiver[:2] != "ax" and not _into_axes(call)

    def _is_value(self, value: ast.expr) -> bool:
        return value.id in self._values if isinstance(value, ast.Name) else _name(value) in _VALUES

    def _bind(self, statement: ast.Assign) -> None:
        names = {node.id for target in statement.targets for node in ast.walk(target) if isinstance(node, ast.Name)}
        for kept, of in ((self._values, _VALUES), (self._axes, _AXES)):
            kept.difference_update(names)
            if _name(statement.value) in of:
                kept.update(names)
        if _name(statement.value) == "subplots" and isinstance(statement.targets[0], ast.Tuple):
            self._values.add(_root(statement.targets[0].elts[0]))


def lost_output(expected: str, outputs: list[Any]) -> bool:
    """Whether nothing of what a cell shows is among its outputs: a figure's text alone, ``<Axes: >``, is no figure."""
    shown = [output for output in outputs if output.output_type != "stream"]
    if expected != "a figure":
        return not outputs
    texts = (output.get("data", {}) if set(output.get("data", {})) == {"text/plain"} else None for output in shown)
    return all(
        data is not None and re.match(r"[\[(]*(?:array\()?[\[(]*<(?:Axes|Figure|matplotlib)", data["text/plain"])
        for data in texts
    )


def _calls(body: list[ast.stmt]) -> Iterator[ast.Call]:
    """Yield the calls that run whenever the cell does: none in functions, branches, or what catches output."""
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
    """Return the last name of what is called: ``speak`` of ``lab.speak(…)``."""
    function = node.func if isinstance(node, ast.Call) else None
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _root(node: ast.AST) -> str:
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    return getattr(node, "id", "")


def _into_axes(call: ast.Call) -> bool:
    given = any(keyword.arg in {"ax", "axes"} for keyword in call.keywords)
    return given or any(_root(argument)[:2] == "ax" for argument in call.args)


def _quiet(source: str) -> bool:
    return source.rstrip().rpartition("\n")[2].partition("#")[0].rstrip().endswith(";")

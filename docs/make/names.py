"""Reference pages of Python names, which mkdocstrings fills from docstrings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import voicelab
from voicelab import stats as statistics
from voicelab.metrics import METRICS

__all__ = ["PAGES", "Names", "public", "unplaced"]


@dataclass(frozen=True)
class Names:
    """A page: the public names whose paths start with ``prefixes``, then those of ``beside``."""

    title: str
    about: str
    prefixes: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    table: Callable[[], str] = str

    def __call__(self) -> str:
        """Format the page."""
        listed = [path for path in public() if path.startswith(self.prefixes)] if self.prefixes else []
        modules = tuple(f"{path}." for path in self.beside)
        listed = [path for path in listed if path not in self.beside and not path.startswith(modules)]
        directives = "".join(f"\n::: {path}\n" for path in [*listed, *self.beside])
        return f"# {self.title}\n\n{self.about}\n{directives}{self.table()}"


def public() -> list[str]:
    """List the public names of the package with their modules, except errors, which have a separate page."""
    found = [getattr(voicelab, name) for name in voicelab.__all__ if not name.startswith("__")]
    paths = [f"{item.__module__}.{item.__qualname__}" for item in found if callable(item)]
    return [path for path in paths if not path.startswith("voicelab.errors.")]


def unplaced() -> list[str]:
    """List the public names without a page."""
    placed = [prefix for page in PAGES.values() for prefix in page.prefixes]
    return [path for path in public() if not path.startswith(tuple(placed))]


def _metrics() -> str:
    lines = ["", "## All metrics", ""]
    lines += ["[Use, validation and pitfalls](../../explanation/metrics.md)", ""]
    lines += ["| name | unit | better | requires | definition |", "|---|---|---|---|---|"]
    for metric in METRICS.values():
        needs = ", ".join([*metric.needs, *([f"the extra `{metric.extra}`"] if metric.extra else [])])
        definition = " ".join(metric.doc.partition("\n\n")[0].split()).replace("|", "\\|")
        lines.append(f"| `{metric.name}` | {metric.unit} | {metric.better or ''} | {needs} | {definition} |")
    return "\n".join([*lines, ""])


_STATISTICS = tuple(
    f"{item.__module__}.{item.__qualname__}" for item in (getattr(statistics, name) for name in statistics.__all__)
)

PAGES: Mapping[str, Names] = {
    f"reference/python/{name}.md": page
    for name, page in {
        "lab": Names(
            "Lab", "`import voicelab as vl`; `vl.connect()` returns a `Lab`.", ("voicelab.lab", "voicelab.session.")
        ),
        "clip": Names(
            "Clip",
            "Audio as a value, and its analysis.",
            ("voicelab.audio.", "voicelab.voices."),
            ("voicelab.audio.analysis",),
        ),
        "requests": Names(
            "Requests and records", "The wire format. [Fields](../fields.md) has tables.", ("voicelab.schema.",)
        ),
        "backends": Names(
            "Backends",
            "Synthesis engines and services. [Add a backend](../../how-to/add-a-backend.md).",
            (
                "voicelab.backend.",
                "voicelab.call.",
                "voicelab.capabilities.",
                "voicelab.backends.",
                "voicelab.engine.",
                "voicelab.sweeps.knobs.",
            ),
        ),
        "sweeps": Names(
            "Sweeps",
            "A grid of requests. [How to sweep](../../how-to/sweep.md).",
            ("voicelab.sweeps.axes.", "voicelab.sweeps.run.", "voicelab.sweeps.sweep."),
        ),
        "runs": Names(
            "Takes, caches and runs",
            "Stored requests and results. [Reproduce a study](../../how-to/reproduce-a-study.md).",
            ("voicelab.clip.", "voicelab.runs.cache.", "voicelab.takes.table."),
            ("voicelab.takes.replay", "voicelab.runs.run.Run"),
        ),
        "metrics": Names(
            "Metrics",
            "Measurements of clips. [Add a metric](../../how-to/add-a-metric.md).",
            ("voicelab.metrics.", "voicelab.asr."),
            ("voicelab.metrics.metric", "voicelab.metrics.models"),
            _metrics,
        ),
        "statistics": Names(
            "Statistics",
            "Effects of parameters, and analysis of listening tests. `from voicelab.stats import …`",
            ("voicelab.stats.",),
            tuple(path for path in _STATISTICS if not path.endswith(".effects.effects")),
        ),
        "comparisons": Names(
            "Comparisons",
            "Comparison of clips. [How to compare](../../how-to/compare.md).",
            (
                "voicelab.takes.collection.",
                "voicelab.takes.comparison.",
                "voicelab.sweeps.systems.",
                "voicelab.sweeps.evaluation.",
            ),
        ),
        "listening": Names(
            "Listening tests",
            "[How to run one](../../how-to/listening-test.md).",
            ("voicelab.listening.",),
            (
                "voicelab.views.listening.listening_page",
                "voicelab.views.listening.ListeningWidget",
                "voicelab.listening.webmushra",
            ),
        ),
        "views": Names(
            "Views",
            "Panels, players and plots in a notebook. Most are displayed automatically, as the last value of a cell.",
            ("voicelab.views.",),
            (
                "voicelab.views.plots.plot_clips",
                "voicelab.views.plots.COLORS",
                "voicelab.views.player.Player",
                "voicelab.views.explore_panel.ExplorePanel",
                "voicelab.views.controls.Controls",
                "voicelab.views.sweep_panel.SweepPanel",
                "voicelab.views.comparison_panel.ComparePanel",
            ),
        ),
    }.items()
}
"""The pages by their path in the site."""

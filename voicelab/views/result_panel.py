"""ResultPanel: play, analyze, test blindly and export the takes of a table."""

from __future__ import annotations

import itertools
import math
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import ipywidgets as w
import traitlets

from voicelab.call import short_name
from voicelab.clip import Clip
from voicelab.listening.design import KINDS, WITH_REFERENCE
from voicelab.listening.results import ListeningResult, analyze, leads
from voicelab.listening.votes import Ballot
from voicelab.metrics import Metric, with_note
from voicelab.recordings import REPEAT
from voicelab.stats.effects import effects
from voicelab.takes.cards import TakeCard, card_of
from voicelab.takes.rows import TakeRow
from voicelab.takes.table import TakeTable
from voicelab.views.background import Task
from voicelab.views.bundles import effects_bundle, metric_label, table
from voicelab.views.controls import field_label
from voicelab.views.listening import ListeningWidget
from voicelab.views.panel import Message, SavedOutput, button, control, file_link, html, line
from voicelab.views.scripts import PageWidget
from voicelab.views.sweep_tables import SHOWN, table_bundle, write_page
from voicelab.views.takes import TakesView, take_labels

if TYPE_CHECKING:
    import pandas as pd

Tabs = Mapping[str, tuple[str, Callable[[TakeTable], Mapping[str, str]]]]
"""Further tabs of a result, each with the status text during computation and the function that creates the output."""

_LAYOUTS: Final = {
    "Audio files with a table and a page": (
        "files",
        "audio/ with every take as it was received, takes.csv with all columns, takes.html to play the takes in a browser.",
    ),
    "Run, for vl.load": (
        "run",
        "takes/ and run.jsonl with every request and result; vl.load(folder) opens them again.",
    ),
    "Hugging Face audiofolder": ("audiofolder", "audio/ (WAV), metadata.csv and a data card, for load_dataset."),
    "LJSpeech": ("ljspeech", "wavs/ and metadata.csv (id|text|text), for training."),
    "Kaldi": ("kaldi", "wav/ with wav.scp, text and utt2spk."),
    "LibriSpeech": ("librispeech", "SPEAKER/CHAPTER/ with FLAC and .trans.txt; SPEAKERS.TXT."),
    "LibriTTS": ("libritts", "SPEAKER/CHAPTER/ with WAV, NAME.normalized.txt and .trans.tsv; speakers.tsv."),
    "VCTK": ("vctk", "wav48/SPEAKER/ and txt/SPEAKER/."),
    "webMUSHRA": ("webmushra", "The configuration of a MOS test and its audio, for a webMUSHRA server."),
}
_UNITS: Final = {"first_audio_s": "s", "total_s": "s", "duration_s": "s"}
_DIGITS: Final = 4
_MAX_DECIMALS: Final = 4


def variable_of(value: object) -> str:
    """Return the name of a notebook's variable that holds a value; "panel" if there is none."""
    names = [name for name, held in vars(sys.modules["__main__"]).copy().items() if held is value]
    # IPython stores a panel that is the last value of a cell in a variable such as _3.
    named = [name for name in names if not name.startswith("_")] or [
        name for name in names if re.fullmatch(r"_\d+", name)
    ]
    return named[0] if named else "panel"


def _heading(name: str, units: Mapping[str, str]) -> str:
    if name == REPEAT:
        return "take"
    label = (
        metric_label(name)
        if name in units and name not in _UNITS
        else short_name(name).removesuffix("_s").replace("_", " ")
    )
    return f"{label}, {units.get(name, '')}".rstrip(", ")


class DataTable(PageWidget):
    """A table to sort, filter, copy and download; numbers of a column have the same number of decimals."""

    script = "table.js"
    styles = ("table.css",)

    columns: traitlets.List[dict[str, Any]] = traitlets.List().tag(sync=True)
    rows: traitlets.List[list[Any]] = traitlets.List().tag(sync=True)
    note = traitlets.Unicode("").tag(sync=True)

    def __init__(self, frame: pd.DataFrame, heads: Sequence[str], note: str) -> None:
        columns, values = [], []
        for name, head in zip(frame, heads, strict=True):
            column = frame[name]
            numeric = column.dtype.kind in "iufc"
            cells = [_cell(value, numeric=numeric) for value in column]
            columns.append({"title": head, "number": numeric, "decimals": _decimals(cells) if numeric else 0})
            values.append(cells)
        super().__init__(columns=columns, rows=[list(row) for row in zip(*values, strict=True)], note=note)

    def __repr__(self) -> str:
        return f"DataTable({len(self.rows)} rows, {len(self.columns)} columns)"


def _cell(value: Any, *, numeric: bool) -> float | str | None:
    """Return a table value for the page; integers that JavaScript would round, such as seeds, become text."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return None
    if not numeric:
        return str(value)
    exact = isinstance(value, int) or hasattr(value, "__index__")
    return str(int(value)) if exact else float(value)


def _decimals(cells: Sequence[float | str | None]) -> int:
    """Return the number of decimals with which the largest number has four digits; 0 for integers."""
    numbers = [abs(cell) for cell in cells if isinstance(cell, float)]
    if all(number == int(number) for number in numbers):
        return 0
    fewest = max(0, _DIGITS - 1 - math.floor(math.log10(max(numbers) or 1.0)))
    needed = max(len(f"{number:.{_MAX_DECIMALS}f}".rstrip("0").partition(".")[2]) for number in numbers)
    return min(fewest, needed)


def _votes_html(result: ListeningResult, ballot: str) -> str:
    """Return the results of a blind test: estimates with intervals, each listener's mean, and the Python code for them."""
    rows = []
    for pair in itertools.combinations(result.design["systems"], 2):
        values, _ = leads(result.frame, result.kind, pair)
        unit = "of choices" if result.kind in {"AB", "ABX"} else "points"
        rows += [
            (listener, f"{pair[0]} against {pair[1]}", len(own), f"{own['value'].mean():.2f} {unit}")
            for listener, own in values.groupby("listener")
        ]
    heads = ("listener", "systems", "responses", "mean")
    code = f"import voicelab as vl\nprint(vl.analyze({ballot}.test, {ballot}))"
    return (
        f'<div class="voicelab-heading">Results</div><pre class="voicelab-votes">{escape(str(result))}</pre>'
        f"{table(heads, rows)}<p>The same in Python:</p><pre class='voicelab-paste'>{escape(code)}</pre>"
    )


class ResultPanel(SavedOutput, TakesView):
    """Panel of a TakeTable, ``result``: play, filter, compare, analyze, test blindly and export its takes.

    Actions apply to the selected takes, or to all displayed takes if none is selected. ``frame()`` is the DataFrame with
    measurements. ``ballot`` has the ratings of the latest blind test. The notebook stores the static output of the table.
    """

    about = "a panel to play, sort and compare its takes"
    live: Callable[[], TakeTable]
    """Returns the table of the takes so far."""
    ballot: Ballot | None = None

    def __init__(
        self,
        result: TakeTable,
        *,
        metrics: Iterable[str | Metric] = SHOWN,
        tabs: Tabs = MappingProxyType({}),
    ) -> None:
        super().__init__(metrics=metrics)
        self._tested: pd.DataFrame | None = None
        self.owner: w.Widget = self
        """The panel that the user has in a variable."""
        self.kind = control(
            w.Dropdown, "Kind", options=[kind for kind in KINDS if kind not in WITH_REFERENCE], width="140px"
        )
        self.over = control(w.Dropdown, "Compare by", width="300px")
        self.test_button = button("Begin", self.listening_test, "blind-test")
        self.votes_button = button("Results so far", self.show_votes, "blind-results", disabled=True)
        self.layout_of = control(w.Dropdown, "Layout", "layout", options=[*_LAYOUTS], width="360px")
        self.layout_note = html("", "soft")
        self.folder = control(w.Text, "Folder", "folder", value="sweep", width="360px")
        self.export_button = button("Write to the folder", self.export, "export")
        self.zip_button = button("Download a zip", self.download, "zip", help="The same files, sent to the browser")
        self.add_tab("Effects", index=1, make=self.show_effects)
        asking = line(self.test_button, self.votes_button, name="buttons")
        about = "Begin plays the selected takes, or all, without their names, and stores the answers of each listener."
        self.add_tab("Blind test", html(f"<p>{about}</p>", "soft"), line(self.kind, self.over, asking))
        self.add_tab("Table", make=lambda: self.attempt(self.show_table))
        writing = line(self.export_button, self.zip_button, name="buttons")
        self.add_tab("Export", line(self.layout_of), self.layout_note, line(self.folder, writing))
        self.layout_of.observe(self._describe_layout, names="value")
        self._describe_layout()
        for name, (words, make) in tabs.items():
            self.add_tab(name, make=partial(self.fill_later, name, partial(self._output_of, make), words))
        self.show_result(result)

    @property
    def result(self) -> TakeTable:
        """Table of the takes so far."""
        return self.live()

    @property
    def selection(self) -> TakeTable:
        """Table of the selected takes, or of all displayed takes if none is selected."""
        rows = self.selected or self.grid.work.shown
        chosen = {row.id for row in rows}
        return self.result.pick(index for index, _ in enumerate(self.result.rows) if index in chosen)

    def show_result(self, result: TakeTable) -> None:
        """Show a table, with a card for each row, including rows without a take."""
        self.live = lambda: result
        self._names = [column.name for column in result.shown_columns]
        fetch = result.clip_of if result.matched and result.state == "done" else None
        cards = [self.card(index, row, fetch) for index, row in enumerate(result.rows)]
        self.begin(cards, result.columns)
        axes = [column for column in result.columns if column.name != REPEAT]
        self.over.options = [(field_label(column.name), column.name) for column in axes]
        self.over.value = axes[-1].name if axes else None
        self.test_button.disabled = not axes

    def card(self, index: int, row: TakeRow, fetch: Callable[[TakeRow], Clip] | None = None) -> TakeCard:
        """Create the card of a row; ``fetch``, if given, returns its clip instead of the take."""
        card = card_of(index, row, self._names, None if fetch is None else partial(fetch, row))
        labels = take_labels(card.labels)
        number = labels.get("take", "")
        # A number, so that the filter take>9 does not compare texts.
        values = {**card.values, "take": int(number)} if number.isdecimal() else card.values
        return replace(card, labels=labels, values=values)

    def listening_test(self) -> None:
        """Start a blind test of the selected takes; ratings are stored in a file next to the notebook."""

        def ask() -> None:
            test = self.selection.listening_test(self.kind.value, self.over.value)
            path = Path(f"votes-{datetime.now(UTC):%Y%m%d-%H%M%S}.sqlite3")
            # If the new ballot cannot be opened, the previous test continues.
            previous, self.ballot = self.ballot, Ballot(test, path)
            self.at_close(self.ballot.close)
            if previous is not None:
                previous.close()
            self.put("Blind test", ListeningWidget(self.ballot, finished=self.show_votes))
            self._contents["Blind test"].children += (html("", "blind-votes"),)
            self.votes_button.disabled = False
            self.say(f"The responses are stored in {path}. The results appear below the test at its end.")

        self.attempt(ask)

    def show_votes(self) -> None:
        """Show the results of the blind test so far: estimates with intervals, each listener's mean, and the Python code."""
        self.attempt(self._show_votes)

    def _show_votes(self) -> None:
        if self.ballot is not None:
            name = variable_of(self.owner)
            self.content("Blind test")[-1].value = _votes_html(analyze(self.ballot.test, self.ballot), f"{name}.ballot")

    def _describe_layout(self, _: object = None) -> None:
        _, described = _LAYOUTS[self.layout_of.value]
        self.layout_note.value = f"<p>{escape(described)}</p>"

    def export(self) -> Task:
        """Write the selected takes to the folder, in a thread."""
        folder = Path(self.folder.value)
        return self._export(f"to {folder}", lambda write: self._written(write(folder), folder))

    def download(self) -> Task:
        """Send the selected takes to the browser as a zip file, in a thread."""

        def send(write: Callable[[Path], int]) -> None:
            name = Path(self.folder.value).name or "takes"
            with TemporaryDirectory() as temporary:
                count = write(Path(temporary) / name)
                archive = shutil.make_archive(str(Path(temporary) / "zip"), "zip", temporary, name)
                data = Path(archive).read_bytes()
            self.grid.send_file(f"{name}.zip", "application/zip", data)
            self.say(f"{count} takes are in {name}.zip ({len(data) / 1e6:.1f} MB), sent to the browser.")

        return self._export("a zip file", send)

    def _written(self, count: int, folder: Path) -> None:
        links = ", ".join(file_link(path) for path in sorted(folder.iterdir()) if path.is_file())
        summary = f"{count} takes are in {folder.absolute()}"
        self.message.value = f'<div role="status">{escape(summary)}: {links}</div>'

    def _export(self, where: str, deliver: Callable[[Callable[[Path], int]], object]) -> Task:
        """Call ``deliver`` in a thread; its argument is a function that writes takes to a folder and returns their number."""
        selection, metrics = self.selection, self.grid.work.metrics
        layout, _ = _LAYOUTS[self.layout_of.value]
        buttons = (self.export_button, self.zip_button)

        def write(folder: Path) -> int:
            selection.export(folder, layout)
            if layout == "files":
                write_page(selection, folder / "takes.html", metrics)
            return len(selection.takes)

        def work() -> None:
            try:
                deliver(write)
            finally:
                for export_button in buttons:
                    export_button.disabled = False

        for export_button in buttons:
            export_button.disabled = True
        self.say(f"Writing {len(selection.takes)} takes {where} …")
        return self.in_background(work, "export")

    def frame(self) -> pd.DataFrame:
        """Measure the finished takes, and return the DataFrame of all takes with the measurements of the panel."""
        self.grid.work.finish()
        return self._measured_frame()

    def _measured_frame(self) -> pd.DataFrame:
        """Return the DataFrame of all takes with the measurements so far."""
        result = self.result  # while a sweep runs, each access returns another table
        frame = result.frame()
        figures = {row.id: row.figures for row in self.grid.work.rows}
        ids = [index for index, row in enumerate(result.rows) if row.state != "waiting"]
        for metric in self.grid.work.metrics:
            frame[metric.name] = [figures.get(key, {}).get(metric.name, float("nan")) for key in ids]
        return with_note(frame, self.grid.work.metrics)

    def _output_of(self, make: Callable[[TakeTable], Mapping[str, str]]) -> w.HTML:
        return html(make(self.result)["text/html"])

    def show_table(self) -> None:
        """Show the DataFrame, key columns and measurements first."""
        frame, metrics = self._measured_frame().drop(columns=["key", "digest"]), self.grid.work.metrics
        names = [*(column.name for column in self.result.columns), *(metric.name for metric in metrics)]
        if "duration" in names:  # measured, and reported by the backend
            frame = frame.drop(columns="duration_s", errors="ignore")
        columns = [name for name in dict.fromkeys([*names, *frame]) if name in frame and not frame[name].isna().all()]
        if REPEAT in columns and frame[REPEAT].nunique() == 1:
            columns.remove(REPEAT)
        units = {metric.name: metric.unit for metric in metrics} | _UNITS
        heads = [_heading(name, units) for name in columns]
        note = f"From {variable_of(self.owner)}.frame()" + ", where repeats count from 0" * (REPEAT in columns)
        # Takes are numbered from 1, as in Listen.
        shown = frame[columns].assign(**{REPEAT: frame[REPEAT] + 1} if REPEAT in columns else {})
        self.fill("Table", DataTable(shown, heads, note))

    def show_effects(self) -> None:
        """Test the effect of each axis on each measurement, in a thread: see ``vl.effects``."""
        names, blocks = (list(map(short_name, columns)) for columns in self.result.factors())
        measured = self._measured_frame().rename(columns=short_name)
        metrics = [metric.name for metric in self.grid.work.metrics]
        if self._tested is not None and self._tested.equals(measured) and self.content("Effects"):
            return  # already shown

        def make() -> Message:
            self._tested = frame = self.frame().rename(columns=short_name)
            table = Message(value=effects_bundle(effects(frame, names, metrics, blocks=blocks))["text/html"])
            table.on_msg(lambda _, message, __: self.order_by(message.get("pick", "")))
            return table

        self.fill_later("Effects", make, f"Testing the effects of {' and '.join(names)} on {', '.join(metrics)}…")

    def order_by(self, metric: str) -> None:
        """Sort and color the takes by a metric, and show them."""
        if metric in (shown.name for shown in self.grid.work.metrics):
            self.sort.value = self.color.value = metric
            self.tabs.selected_index = 0

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.result!r})"

    def saved_output(self) -> Mapping[str, str]:
        """Return the static output of the takes so far."""
        return table_bundle(self.result) if len(self.result) or self.result.failures else {}

"""TakeTable: takes with key columns. Metrics, comparisons, listening tests, pages and data sets start from it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from voicelab import stats
from voicelab.call import field_name, is_field
from voicelab.clip import UNKNOWN_TEXT, Clip, Take
from voicelab.display import Shown, view
from voicelab.errors import ArgumentError, NotFound, check_options, suggestion
from voicelab.guesses import Guided
from voicelab.listening.design import TEST_OPTIONS, Kind, ListeningTest, MatchedClips, match_loudness
from voicelab.listening.webmushra import export_webmushra
from voicelab.metrics import BASIC, MEASURE_OPTIONS, Metric, available, listener_note, measure_rows, with_note
from voicelab.metrics.metric import Results
from voicelab.recordings import REPEAT
from voicelab.runs.run import Run, take_columns
from voicelab.stats import Effects, Equivalence, equivalence
from voicelab.stats.effects import numeric_columns
from voicelab.storage import check_folder
from voicelab.takes.comparison import Comparison
from voicelab.takes.export import LAYOUTS, write_files, write_layout, write_run
from voicelab.takes.rows import SYSTEM, TAKE_COLUMNS, Column, TakeRow

if TYPE_CHECKING:
    import pandas as pd

Measures = Callable[[Sequence[Clip]], Iterable[Mapping[str, Any]]]
"""Function that measures all clips at once; it returns a mapping of measurements for each clip."""

_ITEMS: Final = ("item", "text")


@dataclass(frozen=True, repr=False, eq=False)
class TakeTable(Shown, metaclass=Guided):
    """Takes with key columns, as returned by sweeps, ``collect``, ``compare_systems`` and ``load``.

    Iterating yields the takes. Takes are paired by all key columns, including ``repeat``, except the compared column.

    Args:
        columns: key columns, with their values in order: the axes of a sweep; ``item``, ``system`` and your own columns
            of recordings; ``repeat`` last.
        rows: takes, failures, and takes that are not synthesized yet.
        metrics: metrics of ``frame()`` without arguments.
        matched: whether the clips of a pair, one of each ``system``, are loudness-matched for measurements and playback.
        notes: remarks on the takes, as sentences.
        excluded: a mapping for every excluded recording, which includes the ``reason``.
        state: state of the sweep: running, paused, done, cancelled, over budget or failed.
        run: record of the folder that the table was loaded from, None for other tables.
        measuring: options of ``vl.measure``: ``jobs``, ``tools``, ``progress``.
    """

    columns: tuple[Column, ...]
    rows: tuple[TakeRow, ...]
    metrics: tuple[str | Metric, ...] = ()
    matched: bool = False
    notes: tuple[str, ...] = ()
    excluded: tuple[Mapping[str, Any], ...] = ()
    state: str = "done"
    run: Run | None = None
    measuring: Mapping[str, Any] = field(default_factory=dict)
    _measurements: dict[tuple[str | Metric, ...], list[dict[str, Any]]] = field(init=False, default_factory=dict)

    def __len__(self) -> int:
        return len(self.takes)

    def __iter__(self) -> Iterator[Take]:
        return iter(self.takes)

    def __bool__(self) -> bool:
        return True  # a table without takes is still a table

    def __repr__(self) -> str:
        columns = ", ".join(f"{column.title}: {len(column)}" for column in self.shown_columns)
        waiting = len(self.rows) - len(self) - len(self.failures)
        counts = [f"{len(self)} takes"]
        counts += [f"{count} {word}" for count, word in ((len(self.failures), "failed"), (waiting, "missing")) if count]
        state = [self.state] * (self.state != "done")
        notes = [f"{len(self.notes)} note{'s'[: len(self.notes) > 1]}"] * bool(self.notes)
        return f"TakeTable({'; '.join([*filter(None, [columns]), ', '.join(counts), *state, *notes])})"

    @property
    def takes(self) -> tuple[Take, ...]:
        """Takes, in the order of the rows."""
        return tuple(row.take for row in self.rows if row.take is not None)

    @property
    def failures(self) -> tuple[TakeRow, ...]:
        """Rows of failed takes, each with its ``error``."""
        return tuple(row for row in self.rows if row.state == "failed")

    @property
    def systems(self) -> tuple[str, ...]:
        """Names of the systems, in order; the first is the baseline. () without a key column ``system``."""
        return next((column.labels for column in self.columns if column.name == SYSTEM), ())

    @property
    def shown_columns(self) -> tuple[Column, ...]:
        """Key columns; ``repeat`` is omitted if it has a single value."""
        return tuple(column for column in self.columns if column.name != REPEAT or len(column) > 1)

    def column(self, name: str, argument: str = "over") -> Column:
        """Find a key column by its name or short name. Raises ArgumentError on ``argument``."""
        for column in self.columns:
            if column.name in (name, name.replace("__", "."), field_name(name)):
                return column
        titles = [column.title for column in self.columns]
        near = suggestion(name, titles) or f"; the key columns are {', '.join(titles) or 'none'}"
        raise ArgumentError.of(argument, f"must be a key column, got {name!r}{near}")

    def select(self, **where: object) -> TakeTable:
        """Select rows by values or labels of their columns; a list selects several: ``select(voice="ada", repeat=[0, 1])``.

        Raises ArgumentError for an unknown column.
        """
        rows = self.rows
        for name, value in where.items():
            choices = value if isinstance(value, list | tuple | set) else [value]
            if rows and all(name in row.columns for row in rows):
                rows = tuple(row for row in rows if row.columns[name] in choices)
                continue
            column = self.column(name, name)
            labels = column.find(value)
            rows = tuple(row for row in rows if row.labels[column.name] in labels)
        return self._with_rows(rows)

    def pick(self, indices: Iterable[int]) -> TakeTable:
        """Select rows by index."""
        return self._with_rows(tuple(self.rows[index] for index in indices))

    def _with_rows(self, rows: tuple[TakeRow, ...]) -> TakeTable:
        columns = []
        for column in self.columns:
            present = {row.labels[column.name] for row in rows}
            pairs = [pair for pair in zip(column.values, column.labels, strict=True) if pair[1] in present]
            columns.append(Column(column.name, tuple(value for value, _ in pairs), tuple(label for _, label in pairs)))
        return replace(self, columns=tuple(columns), rows=rows)

    def rename(self, **names: str) -> TakeTable:
        """Rename key columns: ``rename(backend="system")``. Raises ArgumentError for an unknown column."""
        names = {self.column(name, name).name: new for name, new in names.items()}
        columns = tuple(replace(column, name=names.get(column.name, column.name)) for column in self.columns)
        return replace(self, columns=columns, rows=tuple(row.rename(names) for row in self.rows))

    def clip(self, **where: object) -> Clip:
        """Return the clip of the take with these values or labels, by default of the first repeat.

        Raises NotFound if no take matches, ArgumentError if several takes match, or for an unknown column.
        """
        chosen = self.select(**where)
        rows = [row for row in chosen.rows if row.take is not None]
        if REPEAT not in where:
            rows = [row for row in rows if row.labels[REPEAT] == rows[0].labels[REPEAT]]
        if not rows:
            raise NotFound(f"no take has these values; the table has {self._listed()}")
        if len(rows) > 1:
            names = ", ".join(column.title for column in chosen.columns if len(column) > 1 and column.name != REPEAT)
            raise ArgumentError.of("where", f"must select one take, got {len(rows)}; also specify {names}")
        return self.clip_of(rows[0])

    def clips(self, item: str | int | None = None, *, over: str | None = None, **where: object) -> Mapping[str, Clip]:
        """Return the clips of a pair by label of the compared column, loudness-matched if the table is ``matched``.

        Args:
            item: label, value or index of the item or text; the first one by default.
            over: the compared column; ``system``, or the only key column with several values, by default.
            **where: values of further key columns, such as ``speaker="anna"``; ``repeat`` is the first by default.

        Raises NotFound if a take is missing, ArgumentError if several pairs are selected.
        """
        column = self._compared(over)
        titles = {column.title: column.name for column in self.columns}
        where = {titles.get(name, name): value for name, value in where.items()}
        name = next((name for name in _ITEMS if any(key.name == name for key in self.columns)), None)
        if name is not None and name != column.name and name not in where:
            index = item if isinstance(item, int) else 0
            labels = self.column(name).labels
            where[name] = labels[index] if item is None or isinstance(item, int) else item
        chosen = self.select(**where)
        pairs = chosen.paired(column.name)
        if REPEAT not in where and column.name != REPEAT:
            repeat = next(iter(chosen.column(REPEAT).labels), None)
            pairs = {
                key: pair for key, pair in pairs.items() if all(row.labels[REPEAT] == repeat for row in pair.values())
            }
        levels = column.labels if column.name not in where else chosen.column(column.name).labels
        if len(pairs) > 1:
            excluded = {column.name, REPEAT}
            names = ", ".join(key.title for key in chosen.columns if len(key) > 1 and key.name not in excluded)
            raise ArgumentError.of("where", f"must select one pair, got {len(pairs)}; also specify {names}")
        pair = next(iter(pairs.values()), {})
        if missing := [label for label in levels if label not in pair]:
            raise NotFound(f"no take of {', '.join(missing)} has these values; the table has {self._listed()}")
        clips = {label: row.take.clip() for label, row in pair.items() if row.take is not None}
        return match_loudness(clips).clips if self.matched else clips

    def compare(self, item: str | int | None = None, *, over: str | None = None, **where: object) -> Comparison:
        """Compare the takes of one pair, aligned by words; arguments and errors are those of ``clips``."""
        return Comparison(self.clips(item, over=over, **where))

    def paired(self, over: str) -> dict[str, dict[str, TakeRow]]:
        """Pair takes that have the same values in all key columns except ``over``.

        Returns rows by pair name, then by label of ``over``. Raises ArgumentError, which names both takes, if two takes have
        the same values in all key columns.
        """
        column = self.column(over)
        groups: dict[str, dict[str, TakeRow]] = {}
        for row in self.rows:
            if row.take is None:
                continue
            name = self._pair_name(row, column.name)
            twin = groups.setdefault(name, {}).setdefault(row.labels[column.name], row)
            if twin is not row and twin.take is not None:
                takes = " and ".join(take.source or f"take {take.key[:12]}…" for take in (twin.take, row.take))
                keys = ", ".join(f"{key.title}={row.labels[key.name]}" for key in self.columns)
                raise ArgumentError.of("over", f"takes must differ in a key column; {takes} have the same keys: {keys}")
        return {
            name: {label: group[label] for label in column.labels if label in group} for name, group in groups.items()
        }

    def frame(
        self, *metrics: str | Metric | Measures | list[str], also: Iterable[str] = (), **options: Any
    ) -> pd.DataFrame:
        """Return a DataFrame with a row per take or failure: key columns, further columns, timing, metrics.

        Columns: the key columns (values other than numbers and texts are replaced by their labels), the source's
        columns, ``seed``, ``duration_s``, ``first_audio_s``, ``total_s``, ``rtf``, ``cached``, ``digest``, ``key``,
        ``error`` (recordings have duration and digest only), then the metrics. Needs pandas. ``df`` is the same method.

        Args:
            *metrics: names (or a list of them) or Metric objects, as for ``vl.measure``; or a function that takes all clips
                at once and returns a mapping for each, such as ``voicelab.metrics.measure_rows``. The table's own metrics by
                default.
            also: further columns of takes: ``host``, ``fingerprint``, ``device``, …
            **options: options of ``vl.measure``: ``reference``, ``text``, ``tools``, ``jobs``, ``progress``.

        Raises the same errors as ``vl.measure``, and ArgumentError for an unknown column.
        """
        import pandas as pd

        check_options(options, (*MEASURE_OPTIONS, "also"))
        listed = [entry for item in metrics for entry in (item if isinstance(item, list) else [item])] or self.metrics
        rows = [row for row in self.rows if row.state != "waiting"]
        records = [row.record() for row in rows]
        rendered = [record for record, row in zip(records, rows, strict=True) if row.take is not None]
        chosen = [*(BASIC if measure_rows in listed else ()), *(metric for metric in listed if not callable(metric))]
        figures: list[Iterable[Mapping[str, Any]]] = [(take_columns(take, also) for take in self)] if also else []
        figures += [self._measure(tuple(chosen), options)] if chosen else []
        functions = (metric for metric in listed if callable(metric) and metric is not measure_rows)
        figures += [measure([self.clip_of(row) for row in rows if row.take is not None]) for measure in functions]
        for measurements in figures:
            for record, measured in zip(rendered, measurements, strict=True):
                record.update(measured)
        names = [column.name for column in self.columns]
        names += chain.from_iterable(records) if records else TAKE_COLUMNS
        table = pd.DataFrame(records, columns=list(dict.fromkeys(names)))
        for name in ("seed", "seed_used"):
            seeds = [record.get(name) for record in records]
            if name in table and all(isinstance(seed, int | None) for seed in seeds):
                table[name] = pd.array(seeds, dtype="UInt64")  # a float would round seeds
        table.attrs["keys"] = [column.name for column in self.columns]
        return with_note(table, chosen, options.get("tools", self.measuring.get("tools")))

    df = frame

    def factors(self, over: str | Sequence[str] | None = None) -> tuple[list[str], list[str]]:
        """Split the key columns with several values, except ``repeat``, into tested axes and blocks.

        By default the axis is ``system``, or without it, all columns except ``item`` and ``text``.
        """
        varied = [column.name for column in self.columns if len(column) > 1 and column.name != REPEAT]
        if over is not None:
            axes = [self.column(name).name for name in ([over] if isinstance(over, str) else over)]
        else:
            axes = [SYSTEM] if SYSTEM in varied else [name for name in varied if name not in _ITEMS]
        return axes, [name for name in varied if name not in axes]

    def effects(
        self,
        over: str | Sequence[str] | None = None,
        metrics: str | Metric | Sequence[str | Metric] | None = None,
        **options: Any,
    ) -> Effects:
        """Test the effect of key columns on metrics, with the other key columns as blocks: see ``vl.effects``.

        Args:
            over: the tested columns; see ``factors`` for the default.
            metrics: metrics; the table's own by default, or else the metrics among its columns.
            **options: options of ``vl.effects``: ``confidence``, ``robust``, ``texts``, ``totals``.

        Raises ArgumentError if no column varies, or no metric has two values for each level.
        """
        axes, blocks = self.factors(over)
        if not axes:
            raise ArgumentError.of("over", f"a key column must have two values or more, got {self._listed()}")
        chosen = self._chosen(metrics)
        names = _names(chosen)
        totals = ["words"] if _POOLED & {*names} and "words" not in names else []
        frame = self.frame(*chosen, *totals)
        if names and len(axes) == 1:
            names = _comparable(frame, axes[0], names)
            if not names:
                problem = f"must have two values or more for each {axes[0]}; add texts or repeats"
                raise ArgumentError.of("metrics", problem)
        result = effects(frame, axes, names or None, blocks=blocks, **options)
        listed = _names(chosen) if len(axes) == 1 else ()
        return replace(result, notes=(*result.notes, *self._test_notes(frame, axes[0], listed)))

    def equivalence(
        self,
        margin: float | Mapping[str, float],
        over: str | Sequence[str] | None = None,
        metrics: str | Metric | Sequence[str | Metric] | None = None,
        **options: Any,
    ) -> Equivalence:
        """Test whether differences are within a margin: ``vl.equivalence`` of ``effects(over, metrics)``."""
        return equivalence(self.effects(over, metrics), margin, **options)

    def summary(
        self, over: str | None = None, metrics: str | Metric | Sequence[str | Metric] | None = None
    ) -> pd.DataFrame:
        """Summarize metrics: a row per metric, with the mean of each system, differences from the first, intervals and p.

        If there are several texts, intervals treat texts as a random effect. ``p`` is corrected over all metrics
        (Holm). If there are neither repeats nor several texts, the table has only means. ``attrs["note"]`` names metrics
        without a test, with the reason.

        Args:
            over: the compared column; ``system``, or the only key column with several values, by default.
            metrics: metrics; the table's own by default.
        """
        column = self._compared(over)
        chosen = self._chosen(metrics)
        names = _names(chosen)
        if not names:
            raise ArgumentError.of("metrics", "must be one metric or more, got none")
        frame, tools = self.frame(*chosen), self.measuring.get("tools")
        levels = list(dict.fromkeys(row.keys[column.name] for row in self.rows))
        means = frame.groupby(column.name)[names].mean().loc[levels]
        comparable = _comparable(frame, column.name, names)
        if not comparable or len(column) < 2:
            return with_note(means.T, chosen, tools)
        result = self.effects(column.name, chosen)
        tested, contrasts = result.frame.set_index("metric"), result.contrasts
        ending = "_texts" if "low_texts" in contrasts else ""
        table = means.T.rename_axis(columns=None)
        for level, rows in contrasts.set_index("metric").groupby("level", sort=False):
            for name, head in (("estimate", "difference"), ("low", "low"), ("high", "high")):
                table[f"{level} {head}"] = rows[f"{name}{ending}"]
        table["p"] = tested["p_texts_holm" if "p_texts_holm" in tested else "p_holm"]
        notes = [listener_note(chosen, tools), *self._test_notes(frame, column.name, names)]
        from voicelab.metrics.table import noted

        return noted(table, " ".join(filter(None, notes)))

    def _test_notes(self, frame: pd.DataFrame, column: str, names: Sequence[str]) -> list[str]:
        """Return notes on metrics that are undefined for a level of a column, and on loudness after matching."""
        notes: list[str] = []
        counts = frame.groupby(column)[list(names)].count()
        for name in (name for name in names if counts[name].min() < 2):
            level = counts[name].idxmin()
            undefined = frame.loc[frame[column] == level, "undefined"] if "undefined" in frame else ()
            reasons = [text for cell in undefined for text in str(cell).split("; ") if text.startswith(f"{name}: ")]
            reason = f" ({reasons[0].removeprefix(f'{name}: ')})" if reasons else ""
            notes.append(f"{name} is not tested: {level} has {counts[name].min()} of the 2 required values{reason}.")
        if self.matched and "loudness" in names:
            notes.append("loudness is measured after it was matched, so its test does not compare the original levels.")
        return notes

    def listening_test(
        self,
        kind: Kind = "AB",
        over: str | None = None,
        *,
        name: str = "Listening test",
        reference: object = None,
        **options: Any,
    ) -> ListeningTest:
        """Create a blind test that compares the values of one key column; an item is a pair with a take of each value.

        Args:
            kind: AB, ABX, MOS, SMOS, DMOS, CMOS, MUSHRA, MUSHRA-NMR or BWS.
            over: the compared column; ``system``, or the only key column with several values, by default.
            name: title of the test, which listeners see.
            reference: value or label of the column that SMOS, DMOS and MUSHRA use as the reference.
            **options: options of ListeningTest: ``seed``, ``checks``, ``question``, ``lufs``, … If texts are unknown,
                ``texts`` has by default the same label for the repeats of an item.

        Raises ArgumentError for an unknown column or reference, or if no pair is complete.
        """
        check_options(options, ("kind", "name", *TEST_OPTIONS))
        column = self._compared(over)
        pairs = self.paired(column.name)
        levels = [label for label in column.labels if any(label in pair for pair in pairs.values())]
        if len(levels) < 2 and kind != "MOS":
            problem = f"must be a key column with two values or more; {column.title} has {', '.join(levels) or 'none'}"
            raise ArgumentError.of("over", problem)
        items = {
            pair_name: {label: row.take.clip() for label, row in pair.items() if row.take is not None}
            for pair_name, pair in pairs.items()
            if len(pair) == len(levels)
        }
        if not items:
            raise ArgumentError.of("over", f"no pair has a take of every {column.title}")
        texts = {} if kind == "transcription" else _repeated({name: pairs[name] for name in items}, column.name)
        options = {"texts": texts, **options}
        if reference is None:
            return ListeningTest(name, kind, items, **options)
        chosen = next((label for label in column.find(reference) if label in levels), None)
        if chosen is None:
            raise ArgumentError.of("reference", f"must be one of {', '.join(levels)}, got {reference!r}")
        references = {item: clips.pop(chosen) for item, clips in items.items()}
        return ListeningTest(name, kind, items, references, **options)

    def panel(self, **options: Any) -> Any:
        """Return the panel of the takes: play, sort, filter and compare; ``metrics`` names the measurements.

        Raises MissingExtra if widgets are not installed.
        """
        check_options(options, ("metrics",))
        return view("TakeTable.panel")(self, **options)

    def page(
        self,
        path: str | Path = "takes.html",
        metrics: Iterable[str | Metric] = (),
        sounds: Literal["inside", "beside"] = "inside",
    ) -> Path:
        """Write an HTML page with the summary and a table, in which every take can be played and every column sorted.

        The audio is MP3 at 64 kbit/s, "inside" the HTML file (a hundred sentences take 4 MB), or "beside" it in the folder
        NAME-sounds, for thousands of takes. Raises StoreError if a file cannot be written, ArgumentError for an unknown
        metric.
        """
        page: Path = view("TakeTable.page")(self, path, metrics, sounds)
        return page

    def export(self, folder: str | Path, layout: str = "files", **options: Any) -> Path:
        """Write the takes as a data set; return the path of its table.

        Args:
            folder: the folder to write.
            layout: ``files`` (audio as received, and takes.csv), ``run`` (see ``save``), ``audiofolder`` (Hugging Face),
                ``ljspeech``, ``kaldi``, ``librispeech``, ``libritts``, ``vctk``, or ``webmushra`` (the configuration of
                ``listening_test(**options)``, MOS by default).
            **options: options of ``listening_test``, for ``webmushra``.

        An earlier export of the same takes is replaced. Raises StoreError if the folder cannot be written, has other takes
        or files, or has the recordings themselves, ArgumentError for an unknown layout or option, or if there are no
        takes for a layout of another tool.
        """
        folder = Path(folder)
        check_folder(folder)
        if layout == "webmushra":
            return export_webmushra(self.listening_test(**{"kind": "MOS", **options}), folder)
        check_options(options, ())
        if layout == "run":
            return write_run(folder, self.rows, self._about())
        if layout == "files":
            return write_files(folder, self.frame(), [row for row in self.rows if row.state != "waiting"])
        if layout not in LAYOUTS:
            raise ArgumentError.of(
                "layout", f"must be one of files, run, {', '.join(LAYOUTS)}, webmushra, got {layout!r}"
            )
        return write_layout(folder, layout, self.columns, self.rows)

    def save(self, folder: str | Path) -> Path:
        """Write a run folder, which ``vl.load`` reads; return the folder. Failures are not written."""
        return self.export(folder, "run").parent

    def clip_of(self, row: TakeRow) -> Clip:
        """Fetch the clip of a row, at the loudness of its pair if the table is matched. Raises NotFound if it has no take."""
        return self._audible(row).clip()

    @property
    def is_measured(self) -> bool:
        """Whether the table's own metrics are already measured, so that its summary needs no measurements."""
        return tuple(self.metrics) in self._measurements

    @cached_property
    def loudness_note(self) -> str:
        """Phrase on loudness matching, which names the takes whose loudness is undefined and whose level is unchanged."""
        if not self.matched:
            return "at its original level"
        unmatched = []
        for name, group in self._groups.items():
            if group.unmatched is None:  # matched in other processes, or not yet
                _matched(group)
            unmatched += [f"{system} {name} ({reason})" for system, reason in (group.unmatched or {}).items()]
        return f"loudness-matched, except {'; '.join(unmatched)}" if unmatched else "loudness-matched"

    def _chosen(self, metrics: str | Metric | Sequence[str | Metric] | None) -> tuple[str | Metric, ...]:
        return (metrics,) if isinstance(metrics, str | Metric) else tuple(metrics or self.metrics)

    def _compared(self, over: str | None) -> Column:
        if over is not None:
            return self.column(over)
        if self.systems:
            return self.column(SYSTEM)
        varied = [column for column in self.columns if len(column) > 1 and column.name != REPEAT]
        axes = [column for column in varied if column.name not in _ITEMS] or varied
        if len(axes) != 1:
            names = ", ".join(column.title for column in axes or self.columns)
            raise ArgumentError.of("over", f"must be the compared column, one of {names}, got none")
        return axes[0]

    def _pair_name(self, row: TakeRow, over: str) -> str:
        """Name a pair by its labels of the other key columns, except columns with a single value."""
        columns = [column for column in self.columns if len(column) > 1 and column.name != over]
        if len(columns) == 1 and columns[0].name != REPEAT:
            return row.labels[columns[0].name]
        return ", ".join(f"{column.title}={row.labels[column.name]}" for column in columns) or "all"

    def _audible(self, row: TakeRow) -> Take | _MatchedTake:
        if row.take is None:
            raise NotFound("the row has no take")
        if not self.matched:
            return row.take
        return _MatchedTake(self._groups[self._pair_name(row, SYSTEM)], row.labels[SYSTEM])

    @cached_property
    def _groups(self) -> Mapping[str, _Group]:
        return {
            name: _Group({label: row.take for label, row in pair.items() if row.take is not None})
            for name, pair in self.paired(SYSTEM).items()
        }

    def _measure(self, metrics: tuple[str | Metric, ...], options: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Measure every take; measurements without options are cached."""
        if not options and metrics in self._measurements:
            return self._measurements[metrics]
        # Clips are fetched one by one: all at once may exceed the memory.
        takes = [self._audible(row) for row in self.rows if row.take is not None]
        measured = measure_rows(takes, metrics, **{**self.measuring, **options})
        if not options:
            self._measurements[metrics] = measured
        return measured

    def _about(self) -> dict[str, Any]:
        names = [column.name for column in self.columns if column.name != REPEAT]
        described = {"columns": names, "metrics": _names(self.metrics), "matched": self.matched, "state": self.state}
        described |= {"notes": list(self.notes), "excluded": [dict(recording) for recording in self.excluded]}
        return {"table": described}

    def _listed(self) -> str:
        return "; ".join(f"{column.title}: {', '.join(column.labels)}" for column in self.columns)


def _names(metrics: Iterable[str | Metric]) -> list[str]:
    return [metric if isinstance(metric, str) else metric.name for metric in metrics]


def _repeated(pairs: Mapping[str, Mapping[str, TakeRow]], over: str) -> dict[str, str]:
    """Return labels that only pairs of repeats share, if there are such pairs and texts are unknown; otherwise {}."""
    rows = {name: next(iter(pair.values())) for name, pair in pairs.items()}
    if all(row.take is not None and row.take.request.text != UNKNOWN_TEXT for row in rows.values()):
        return {}
    labels = {
        name: ", ".join(label for key, label in row.labels.items() if key not in {over, REPEAT})
        for name, row in rows.items()
    }
    return labels if 1 < len({*labels.values()}) < len(labels) else {}


def _comparable(frame: pd.DataFrame, column: str, names: Sequence[str]) -> list[str]:
    """Return the metrics with two values or more for each level of a column."""
    counts = frame.groupby(column)[list(names)].count().min()
    return [name for name in names if counts[name] > 1]


@dataclass(eq=False)
class _Group:
    """Takes of one pair by system. ``unmatched`` has the reasons for undefined loudness; it is None before matching."""

    takes: dict[str, Take]
    unmatched: Mapping[str, str] | None = None


@lru_cache(maxsize=2)
def _matched(group: _Group) -> MatchedClips:
    matched = match_loudness({name: take.clip() for name, take in group.takes.items()})
    group.unmatched = matched.unmatched
    return matched


@dataclass(frozen=True, eq=False)
class _MatchedTake:
    """Take of a pair whose clip is fetched at the loudness of the pair."""

    group: _Group
    system: str

    def clip(self) -> Clip:
        return _matched(self.group).clips[self.system]

    @property
    def levels(self) -> Results:
        return _matched(self.group).levels.get(self.system, {})


# Every sweep table has them, and each further test weakens Holm's correction.
_SWEEP_METRICS = ("first_audio_s", "rtf")
_POOLED = {"wer", "cer"}


def effects(
    frame: pd.DataFrame,
    axes: Sequence[str] | str,
    metrics: Sequence[str] | str | None = None,
    *,
    blocks: Sequence[str] | str = (),
    texts: str | None = None,
    confidence: float = 0.95,
    robust: bool = False,
    totals: Mapping[str, str] | None = None,
) -> Effects:
    """Test the main effect of each axis on each metric, and estimate its size.

    Args:
        frame: one row per take.
        axes: columns of varied fields.
        metrics: columns of measured values. By default those with the name of a metric (see ``voicelab.metrics``), except
            ``first_audio_s`` and ``rtf`` when there are others; without any, all numeric columns but axes and blocks. Takes
            with NaN in a metric are excluded from its tests.
        blocks: columns of nuisance factors, such as the text, combined into a single factor. Add the seed if the cells
            of a grid share seeds: without the seed, the test is valid but has less power; with the seed, no cell has
            repeats, so the residual variance replaces the sampling variance.
        texts: the block whose levels are a random sample of texts; ``text`` or ``item`` by default, if it is a block. Effects
            are reported with texts as a random effect, then with texts as a fixed effect. "" reports only fixed texts.
        confidence: level of the intervals.
        robust: add the column ``p_robust``, from a permutation test of ranks. Single outliers hardly change it, and it
            does not assume normal residuals. It assumes equal variances or, with texts as a random effect, symmetric
            differences.
        totals: column of the denominators of each metric that is a rate, such as ``{"wer": "words"}``. Texts are then
            weighted by their total, so that differences are those of pooled rates, and intervals treat texts as
            clusters. WER and CER have ``words`` by default, if the table has this column.

    Results do not depend on the order of rows, except that the baseline of an axis of words is the first level to
    appear. Interactions of two axes are tested, and significant ones are printed first, since main effects are then
    only averages. Notes name outliers, metrics that are undefined more often at some levels than at others, and settings that
    vary although they are neither axes nor blocks. Metrics and axes without variation are excluded with a note.

    Raises ArgumentError for an unknown column, and if every comparison is excluded (one level, fewer than two takes).
    """
    axes, blocks = _field_columns(frame, axes), _field_columns(frame, blocks)
    if metrics is None:
        numeric, registered = numeric_columns(frame, {*axes, *blocks}), available()
        named = [name for name in numeric if name in registered]
        metrics = [name for name in named if name not in _SWEEP_METRICS] or named or numeric
        if _POOLED & {*metrics} and totals is None:
            metrics = [name for name in metrics if name != "words"]
    if totals is None:
        names = [metrics] if isinstance(metrics, str) else metrics
        totals = {name: "words" for name in names if name in _POOLED and "words" in numeric_columns(frame, set())}
    random = next((name for name in ("text", "item") if name in blocks), "") if texts is None else texts
    options: dict[str, Any] = {
        "confidence": confidence,
        "robust": robust,
        "totals": totals,
        "settings": _settings(frame),
    }
    result = stats.effects(frame, axes, metrics, blocks=blocks, texts=random, **options)
    unknown = [] if random or texts is not None else [name for name in blocks if not _is_setting(name)]
    rule = "{0} is a fixed block, so the results hold for these levels of it; if they are texts, add texts={0!r}."
    return replace(result, notes=(*result.notes, *map(rule.format, unknown)))


def _is_setting(name: str) -> bool:
    return is_field(name) or name in {SYSTEM, REPEAT, "backend", "model", "seed"}


def _settings(frame: pd.DataFrame) -> list[str]:
    """List the columns of items, systems, request fields and key columns; repeats and seeds are no settings."""
    keys = {*_ITEMS, SYSTEM, *frame.attrs.get("keys", ())} - {REPEAT}
    return [str(name) for name in frame if name in keys or (is_field(str(name)) and name != "seed")]


def _field_columns(frame: pd.DataFrame, names: Sequence[str] | str) -> list[str]:
    """Resolve aliases of fields: ``speed`` is the column ``prosody.speed``."""
    names = [names] if isinstance(names, str) else list(names)
    return [field_name(name) if field_name(name) in frame else name for name in names]

"""Evaluation of systems on a list of texts and voice prompts, following the protocol of a benchmark."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from voicelab.asr.normalization import Normalizer, language_of
from voicelab.asr.recognizers import Recognizer
from voicelab.audio.formats import read, sniff
from voicelab.backend import SpeechStream
from voicelab.backends.runs import BackendWrapper
from voicelab.call import Call
from voicelab.capabilities import Capabilities, check_call
from voicelab.errors import ArgumentError, AudioError, RequestInvalid, some
from voicelab.metrics import METRICS, Metric, MosPredictor, SpeakerEncoder, Tools, check_measuring, measure_rows
from voicelab.metrics.models import tool_name, training_domain
from voicelab.metrics.words import normalizer_name, recognizer_name
from voicelab.recordings import REPEAT, damage_of
from voicelab.session import Session
from voicelab.stats.estimate import interval, percent
from voicelab.storage import check_folder, digest_of, write_atomic
from voicelab.sweeps.axes import literal
from voicelab.sweeps.sweep import sweep_of
from voicelab.sweeps.systems import check_labs, system_scores
from voicelab.tables import read_table, read_text
from voicelab.takes.rows import SYSTEM, Column, TakeRow
from voicelab.takes.table import TakeTable

if TYPE_CHECKING:
    import pandas as pd

ITEM: Final = "item"
_COLUMNS: Final = {
    ITEM: ("item", "id", "utt", "name"),
    "text": ("text", "infer_text", "sentence"),
    "references": ("references", "reference_audio", "prompt_audio", "prompt_wav", "reference"),
    "reference_text": ("reference_text", "prompt_text"),
}
_NAMES: Final = tuple(name for names in _COLUMNS.values() for name in names)
_MAX_LISTED: Final = 20
_METRICS: Final = ("wer", "cer", "speaker_similarity", "predicted_mos")
_UNITS: Final = {
    "wer": ("WER, %", 100.0),
    "cer": ("CER, %", 100.0),
    "predicted_mos": ("predicted MOS", 1.0),
    "rtf": ("RTF", 1.0),
}
"""Title of each metric, and the factor by which its printed values are multiplied."""
PROSODY_NOTE: Final = (
    "Predictors of MOS and WER hardly measure prosody: run a listening test before claiming naturalness (E. Cooper et al., "
    '"A review on subjective and objective evaluation of synthetic speech", Acoustical Science and Technology 45, 2024).'
)


@dataclass(frozen=True, slots=True)
class Protocol:
    """Models that a published benchmark uses: the recognizer of each language, the normalizer, the speaker encoder."""

    name: str
    recognizers: Mapping[str, str]
    normalizer: str
    encoder: str

    def differences(self, metric: str, language: str, tools: Tools) -> str:
        """Describe which models behind a metric differ from the protocol; "" if none do."""
        if metric in ("wer", "cer"):
            used = {
                self.recognizers.get(language, "none"): recognizer_name(tools),
                f"normalizer {self.normalizer}": f"normalizer {normalizer_name(tools)}",
            }
        elif metric == "speaker_similarity":
            used = {self.encoder: tool_name(tools.encoder)}
        else:
            return f"{self.name} does not define {metric}"
        return " and ".join(f"{got} instead of {wanted}" for wanted, got in used.items() if wanted != got)


PROTOCOLS: Final = MappingProxyType(
    {
        # P. Anastassiou et al., "Seed-TTS: A family of high-quality versatile speech generation models" (2024). The encoder
        # is UniSpeech's WavLM large, fine-tuned for speaker verification; no package distributes it.
        "seed-tts-eval": Protocol(
            "seed-tts-eval",
            MappingProxyType({"en": "faster-whisper:large-v3", "zh": "paraformer"}),
            "seed-tts-eval",
            "wavlm-large-finetuned",
        )
    }
)
"""Protocols by name."""


@dataclass(frozen=True, repr=False, eq=False)
class Evaluation:
    """Scores of systems on a list of texts and voice prompts.

    Args:
        table: the takes, with the key columns ``item``, ``system`` and ``repeat``.
        frame: ``table.frame()`` with the metrics.
        scores: a row per system and metric, and per pair of systems (``against``): see ``system_scores``; ``sd_repeats`` is
            the SD of the means of the repeats, ``failed`` the number of failed takes.
        headings: title of each metric, with the models behind it.
        notes: remarks, as sentences.
    """

    table: TakeTable
    frame: pd.DataFrame
    scores: pd.DataFrame
    headings: Mapping[str, str]
    notes: tuple[str, ...]

    def summary(self) -> pd.DataFrame:
        """Return a table for a paper, with a row per system, a column per metric, and 95 % intervals over items."""
        rows: dict[str, dict[str, str]] = {name: {} for name in self.table.systems}
        for score in self.scores.to_dict("records"):
            name = f"{score['system']} - {score['against']}" if score["against"] else str(score["system"])
            scale = _UNITS.get(score["metric"], ("", 1.0))[1]
            mean, low, high = (score[key] * scale for key in ("mean", "low", "high"))
            cell = f"{mean:.{2 if scale > 1 else 3}f}"
            cell += f" {interval(low, high, '.3g')}" if math.isfinite(low) else ""
            p = f", p {score['p']:.3f}" if score["against"] and math.isfinite(score["p"]) else ""
            rows.setdefault(name, {})[self.headings[score["metric"]]] = cell + p
        import pandas as pd

        table = pd.DataFrame.from_dict(rows, orient="index")
        failed = self.frame.groupby(SYSTEM)["error"].count()
        table["failed"] = [
            f"{failed[name]} of {(self.frame[SYSTEM] == name).sum()}" if name in failed else "" for name in rows
        ]
        return table.fillna("")

    def record(self) -> dict[str, Any]:
        """Return the evaluation as a JSON object: headings, scores, notes, and the fingerprint of each system."""
        takes = {row.labels[SYSTEM]: row.take for row in self.table.rows if row.take is not None}
        return {
            "items": len(self.table.column(ITEM)),
            "repeats": len(self.table.column(REPEAT)),
            "systems": {name: take.fingerprint for name, take in takes.items()},
            "headings": dict(self.headings),
            "scores": json.loads(self.scores.to_json(orient="records")),
            "notes": list(self.notes),
        }

    def __repr__(self) -> str:
        return "\n".join([self.summary().to_string(), *self.notes])

    def _repr_html_(self) -> str:
        from html import escape

        return self.summary().to_html() + "".join(f"<p>{escape(note)}</p>" for note in self.notes)


def evaluate(
    items: str | Path | pd.DataFrame | Iterable[Mapping[str, Any] | str],
    *,
    folder: str | Path,
    protocol: str = "seed-tts-eval",
    metrics: Sequence[str | Metric] | None = None,
    repeats: int = 3,
    seed: int = 0,
    recognizer: Recognizer | str | None = None,
    normalizer: Normalizer = None,
    encoder: SpeakerEncoder | str = "resemblyzer",
    predictor: MosPredictor | str = "dnsmos",
    progress: Callable[..., Iterable[Any]] | None = None,
    **labs: Session,
) -> Evaluation:
    """Evaluate systems on a list: ``vl.evaluate("meta.lst", folder="out", ours=lab, theirs=other)``.

    Args:
        items: a list of Seed-TTS-eval (``id|prompt text|prompt wav|text``), a table or rows with the columns ``text`` and,
            optionally, ``id``, ``reference_audio`` and ``reference_text``, a list of texts, a .txt file with a text per
            line, or a folder with ``meta.lst``, ``metadata.csv`` or texts in NAME.txt. Paths are relative to the file.
        folder: run folder of takes and measurements; a second call resumes there. ``evaluation.json`` has the result.
        protocol: protocol whose models are the defaults; results carry its name only if no model was replaced.
        metrics: default: WER, CER, speaker similarity to each row's prompt, and predicted MOS. RTF is always added.
        repeats: takes per item and system.
        seed: seed from which the seeds of the repeats are drawn.
        recognizer: ASR model that replaces the protocol's; see ``Tools``.
        normalizer: text normalizer that replaces the protocol's.
        encoder: speaker encoder, an object or a name; see ``Tools``.
        predictor: MOS predictor, an object or a name; see ``Tools``.
        progress: ``vl.progress`` to show progress.
        **labs: the systems by name. A system that ignores ``references`` speaks with its own voice, with a note.

    Raises:
        ArgumentError: no system, an unknown protocol or metric, fewer than two items, a repeated id.
        RequestInvalid: prompts cannot be read (all are named), or a system rejects a row.
        MissingExtra: a model of a metric is not installed; ``metrics`` selects others.
        StoreError: the list cannot be read, or the folder cannot be written.
    """
    if not labs:
        raise ArgumentError.of("labs", "name a system: evaluate(list, folder=..., ours=lab)")
    check_labs(labs)
    if protocol not in PROTOCOLS:
        raise ArgumentError.of("protocol", f"must be one of {', '.join(PROTOCOLS)}, got {protocol!r}")
    rows, ids, remarks = read_items(items)
    languages = [language_of(str(text)) for text in rows["text"]]
    language, used = max(set(languages), key=languages.count), PROTOCOLS[protocol]
    tools = Tools(recognizer or used.recognizers.get(language), encoder, predictor, normalizer or used.normalizer)
    prompted = "references" in rows
    names = metrics or [name for name in _METRICS if prompted or name != "speaker_similarity"]
    chosen = check_measuring(names, reference="prompt", tools=tools)
    check_folder(Path(folder))
    systems, notes = _systems(labs, prompted)
    lab = systems[next(iter(labs))]
    sweep = sweep_of(lab, None, rows=rows, repeats=repeats, seed=seed, labs=systems, cache=None, fields={})
    table = _keyed(sweep.run(folder), ids, tuple(labs))
    frame = _measured(table, chosen, tools, Path(folder, "measurements.jsonl"), progress)
    result = _result(table, frame, chosen, used, language, tools, [*remarks, *notes])
    write_atomic(Path(folder, "evaluation.json"), json.dumps(result.record(), ensure_ascii=False, indent=1).encode())
    return result


def _systems(labs: Mapping[str, Session], prompted: bool) -> tuple[dict[str, Session], list[str]]:
    """Return the systems, wrapped if they ignore recordings and there are prompts, and a note for each wrapped system."""
    systems, notes = dict(labs), []
    for name, lab in labs.items():
        if prompted and (reason := lab.capabilities.ignored("references")):
            systems[name] = Session(_OwnVoice(lab), **dict[str, Any](lab.defaults))
            notes.append(f"{name} did not receive the prompts ({reason}) and used its own voice.")
    return systems, notes


class _OwnVoice(BackendWrapper):
    """Wrapper of a system that ignores recordings: the system speaks with its own voice; takes still contain the prompts.

    Raises RequestInvalid if the system requires a voice.
    """

    def __init__(self, lab: Session) -> None:
        super().__init__(lab.backend)
        self._voice = check_call(lab.call("voice"), lab.capabilities).request.reference_id

    @property
    def capabilities(self) -> Capabilities:
        """Capabilities of the system, without the declaration that ``references`` are ignored."""
        declared = self.backend.capabilities
        fields = tuple(support for support in declared.fields if support.field != "references")
        return replace(declared, fields=fields, fingerprint=self._fingerprint(declared))

    def _fingerprint(self, declared: Capabilities) -> str:
        """Add the voice to the fingerprint, because the calls of a sweep do not name it."""
        return declared.fingerprint if self._voice is None else f"{declared.fingerprint}:{self._voice}"

    def synthesize(self, call: Call) -> SpeechStream:
        """Synthesize without the prompts. Raises the errors of the backend."""
        stream = self.backend.synthesize(call.replace(references=None, reference_id=self._voice))
        return SpeechStream(
            stream,
            call=replace(stream.call, request=call.request),
            backend=replace(stream.backend, fingerprint=self._fingerprint(stream.backend)),
            seed=stream.seed,
            on_close=stream.close,
            notes=lambda: stream.notes,
            summary=lambda: stream.summary,
        )


def read_items(items: Any) -> tuple[pd.DataFrame, list[str], list[str]]:
    """Read a list as a table for ``Lab.sweep``, with the row numbers as its index, the ids, and notes.

    Raises ArgumentError for missing texts or repeated ids, RequestInvalid for unreadable prompts.
    """
    import pandas as pd

    folder, records, notes = _records(items)
    rows, ids, textless, others = dict[int, dict[str, Any]](), [], [], dict[str, None]()
    for order, (number, record) in enumerate(records.items(), start=1):
        cells = {str(name).strip().lower().replace(" ", "_"): value for name, value in record.items()}
        row = {name: next((cells[key] for key in keys if cells.get(key)), None) for name, keys in _COLUMNS.items()}
        others |= dict.fromkeys(name for name in cells if name not in _NAMES and cells[name])
        ids.append(str(row.pop(ITEM) or order))
        if not row["text"]:
            textless.append(f"{number} ({ids[-1]})")
            continue
        if isinstance(row["references"], str | Path):
            row["references"] = folder / row["references"]
        row["text"] = literal(row["text"])
        rows[number] = {name: value for name, value in row.items() if value is not None}
    if textless:
        if not {*_COLUMNS["text"]} & cells.keys():
            names = " or ".join(_COLUMNS["text"])
            raise ArgumentError.of("items", f"must have a column {names}, got the columns {', '.join(cells)}")
        raise ArgumentError.of("items", f"must have a text in every row, got none in row {some(textless, _MAX_LISTED)}")
    if len(rows) < 2:
        raise ArgumentError.of("items", f"must have two rows or more, for confidence intervals, got {len(rows)}")
    if repeated := sorted({name for name in ids if ids.count(name) > 1} if len(set(ids)) < len(ids) else ()):
        raise ArgumentError.of("items", f"ids must be unique, got {', '.join(repeated)} more than once")
    _check_prompts(rows)
    table = pd.DataFrame([*rows.values()], index=[*rows], dtype=object)
    return table, ids, [*notes, *([f"Columns that are not used: {', '.join(others)}."] if others else [])]


def _check_prompts(rows: Mapping[int, Mapping[str, Any]]) -> None:
    """Raise RequestInvalid, which names all prompts whose files are missing or are not audio."""
    problems = []
    for number, row in rows.items():
        path = row.get("references")
        try:
            if isinstance(path, Path):
                with path.open("rb") as file:
                    sniff(file.read(256))
        except OSError as error:
            problems.append(f"row {number}: {path} cannot be read: {error.strerror}")
        except AudioError:
            try:
                read(data := Path(str(path)).read_bytes(), foreign=True)  # another format that FFmpeg reads
            except AudioError as error:
                problems.append(f"row {number}: {path}: {damage_of(data, error)}")
    if problems:
        raise RequestInvalid.of("references", some(problems, _MAX_LISTED, "; "))


def _records(items: Any) -> tuple[Path, dict[int, Any], Sequence[str]]:
    """Return the folder, the records by row number, and the notes of a list."""
    if not isinstance(items, str | Path):
        is_list = isinstance(items, Iterable) and not isinstance(items, Mapping)
        listed = [*_table_rows(items).values()] if hasattr(items, "columns") else list(items) if is_list else []
        if wrong := [item for item in listed if not isinstance(item, str | Mapping)] if is_list else [items]:
            raise ArgumentError.of("items", f'must be texts or rows such as {{"text": "Hello."}}, got {wrong[0]!r}')
        return Path(), _numbered({"text": item} if isinstance(item, str) else item for item in listed), ()
    path = Path(items)
    if path.is_dir():
        lists = [path / name for name in ("meta.lst", "metadata.csv", "metadata.jsonl") if (path / name).is_file()]
        if not lists:
            texts = sorted(path.glob("*.txt"))
            if not texts:
                raise ArgumentError.of("items", f"{path} must have meta.lst, metadata.csv or NAME.txt, got none")
            return path, _numbered({ITEM: text.stem, "text": " ".join(read_text(text).split())} for text in texts), ()
        path = lists[0]
    if path.suffix.lower() not in (".lst", ".txt"):
        table = read_table(path, _NAMES)
        return path.parent, _table_rows(table), table.attrs.get("notes", ())
    records = []
    for number, line in enumerate(filter(str.strip, read_text(path).splitlines()), start=1):
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) == 1 and path.suffix.lower() == ".txt":
            records.append({"text": line.strip()})
            continue
        # The fifth cell is a recording of the text.
        if len(cells) < 4 or len(cells) > 5 or not all(Path(cell).suffix for cell in cells[4:]):
            raise ArgumentError.of(
                "items", f"line {number} of {path} must be id|prompt text|prompt wav|text, got {line!r}"
            )
        records.append(dict(zip((ITEM, "prompt_text", "prompt_wav", "text"), cells, strict=False)))
    return path.parent, _numbered(records), ()


def _numbered(records: Iterable[Any]) -> dict[int, Any]:
    return dict(enumerate(records, start=1))


def _table_rows(table: pd.DataFrame) -> dict[int, Any]:
    if not table.index.is_unique:
        table = table.reset_index(drop=True)
    return dict(table.astype(object).where(table.notna(), None).to_dict("index"))  # type: ignore[arg-type]


def _keyed(table: TakeTable, ids: Sequence[str], names: Sequence[str]) -> TakeTable:
    """Use item, system and repeat as the key columns of a sweep over rows; texts and references are further columns."""
    per_item = len(table.rows) // len(ids)
    rows = []
    for index, row in enumerate(table.rows):
        keys: dict[str, Any] = {ITEM: ids[index // per_item], SYSTEM: row.keys["backend"], REPEAT: row.repeat}
        others = {"text": row.call.request.text} | {k: v for k, v in row.keys.items() if k == "references"}
        labels = {name: str(value) for name, value in keys.items()}
        rows.append(TakeRow(keys, labels, row.call, row.take, row.error, row.cached, others))
    repeats = next(column for column in table.columns if column.name == REPEAT)
    columns = (Column(ITEM, tuple(ids), tuple(ids)), Column(SYSTEM, tuple(names), tuple(names)), repeats)
    return replace(table, columns=columns, rows=tuple(rows))


def _measured(
    table: TakeTable,
    metrics: Sequence[Metric],
    tools: Tools,
    path: Path,
    progress: Callable[..., Iterable[Any]] | None,
) -> pd.DataFrame:
    """Measure the takes. Earlier measurements by the same models are read from ``path`` and not repeated.

    Returns ``table.frame()`` with the metrics.
    """
    names = [metric.name for metric in metrics]
    if {"wer", "cer"} & set(names) and "words" not in names:
        metrics = (*metrics, METRICS["words"])
    encoder, predictor = map(tool_name, (tools.encoder, tools.predictor))
    models = [names, recognizer_name(tools), normalizer_name(tools), encoder, predictor]
    by = digest_of(json.dumps(models).encode())[:16]
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    figures_by_key: dict[tuple[str, str], dict[str, Any]] = {}
    for line in lines:
        if line.endswith("}"):  # an interrupted write
            record = json.loads(line)
            figures_by_key[record["take"], record["by"]] = record["figures"]
    rows = [row for row in table.rows if row.state != "waiting"]
    keys = ["" if row.take is None else f"{row.take.key}:{row.take.digest}" for row in rows]
    missing = [(key, row.take) for key, row in zip(keys, rows, strict=True) if key and (key, by) not in figures_by_key]
    show = progress or (lambda items, *_, **__: items)
    with path.open("a", encoding="utf-8") as file:
        for key, take in show(missing, "takes", total=len(missing)):
            if take is None or (key, by) in figures_by_key:
                continue
            (figures,) = measure_rows([take], metrics, reference="prompt", tools=tools)
            figures_by_key[key, by] = {name: None if value != value else value for name, value in figures.items()}  # noqa: PLR0124
            record = {"take": key, "by": by, "figures": figures_by_key[key, by]}
            file.write(json.dumps(record, ensure_ascii=False) + "\n")
            file.flush()
    frame, measured = table.frame(), [figures_by_key[key, by] if key else {} for key in keys]
    for name in dict.fromkeys(name for figures in measured for name in figures):
        frame[name] = [figures.get(name) for figures in measured]
    return frame


def _result(
    table: TakeTable,
    frame: pd.DataFrame,
    metrics: Sequence[Metric],
    protocol: Protocol,
    language: str,
    tools: Tools,
    notes: list[str],
) -> Evaluation:
    import pandas as pd

    headings: dict[str, str] = {}
    scores, others, equal = [], dict[str, list[str]](), list[str]()
    asr = f"{recognizer_name(tools)}, normalizer {normalizer_name(tools)}"
    encoder, predictor = map(tool_name, (tools.encoder, tools.predictor))
    models = {"wer": asr, "cer": asr, "speaker_similarity": encoder, "predicted_mos": predictor}
    for name in (*(metric.name for metric in metrics), "rtf"):
        why = protocol.differences(name, language, tools)
        model = models.get(name, "") if why else protocol.name
        title = _UNITS.get(name, (name.replace("_", " "), 1.0))[0]
        headings[name] = f"{title} ({model})" if model else title
        if why and name in ("wer", "cer", "speaker_similarity"):
            others.setdefault(why, []).append(title)
        frame[name] = pd.to_numeric(frame[name]) if name in frame else math.nan
        counts = frame.dropna(subset=[name]).groupby(SYSTEM)[ITEM].nunique().reindex(table.systems, fill_value=0)
        if counts.min() < 2:
            notes.append(
                f"{title} is not reported: it must have values for 2 items or more, {counts.idxmin()} has {counts.min()}."
            )
            continue
        scores.append(_scored(frame, name))
        equal += _equal_values(scores[-1], title)
    if others:
        listed = "; ".join(f"{' and '.join(titles)} by {why}" for why, titles in others.items())
        notes.append(f"Not comparable with published figures of {protocol.name}: {listed}.")
    if "references" not in frame:
        notes.append("No row has a prompt, so there is no speaker similarity.")
    undefined = frame["undefined"].dropna() if "undefined" in frame else pd.Series(dtype=str)
    for reason, count in undefined[undefined != ""].value_counts().items():
        notes.append(f"{count} takes have no value of {reason}.")
    if failed := len(table.failures):
        notes.append(
            f"{failed} of {len(table.rows)} takes failed and are excluded from the means: see the column `error`."
        )
    notes += equal
    if "predicted_mos" in headings:
        notes.append(f"Predicted MOS is computed by {predictor}, {training_domain(tools)}. {PROSODY_NOTE}")
    items, takes = (len(table.column(name)) for name in (ITEM, REPEAT))
    notes.append(f"{percent(0.95)} intervals over {items} items, each the mean of its {takes} takes.")
    empty = pd.DataFrame(columns=["metric", SYSTEM, "against"])
    return Evaluation(table, frame, pd.concat(scores or [empty], ignore_index=True), headings, tuple(notes))


def _equal_values(scores: pd.DataFrame, title: str) -> list[str]:
    """Return a note on the scores without an interval."""
    pairs = scores.loc[scores["low"].isna(), [SYSTEM, "against"]].to_numpy(str).tolist()
    equal = [" - ".join(filter(None, pair)) for pair in pairs]
    return [f"{title} of {', '.join(equal)} has no interval: its value is the same for all items."] if equal else []


def _scored(frame: pd.DataFrame, name: str) -> pd.DataFrame:
    scores = system_scores(frame, name, samples=(ITEM,))
    scores.insert(0, "metric", name)
    runs = frame.groupby([SYSTEM, REPEAT])[name].mean().unstack(SYSTEM)
    scores["sd_repeats"] = [runs[row.system].std() if not row.against else math.nan for row in scores.itertuples()]
    return scores

"""Does it do anything? Every field and knob of a backend, turned and measured, beside what the backend declares of it."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from voicelab.backend import Backend
from voicelab.backends.runs import CachedBackend
from voicelab.call import Call, Knob, KnobValue, field_name
from voicelab.capabilities import Capabilities, check_call, field_value
from voicelab.clip import Take
from voicelab.display import Shown
from voicelab.errors import ArgumentError, Cancelled, RequestInvalid, VoicelabError
from voicelab.metrics import measure
from voicelab.stats import effects, holm
from voicelab.stats.estimate import whole
from voicelab.sweeps.workers import under_way

if TYPE_CHECKING:
    import pandas as pd

Verdict = Literal["acts", "ignored", "no effect found", "contradicts", "not tried"]
"""``ignored``: it does nothing, as declared. ``contradicts``: what was heard is not what is declared."""

TEXTS: Final = ("We left at 9:45 that day.", "Two of the 38 ships came home.")
"""Short, and with figures in them, so that it can be heard whether these are written out."""
LONG_TEXTS: Final = (
    "The train was late and so were we, because nobody at the station knew why it had to wait there for so long. We left.",
)
"""A sentence of more than 100 characters and a short one: more than one segment where these are short."""

_METRICS: Final = ("duration", "level", "spectral_tilt")
_ALPHA: Final = 0.05
_POWER: Final = 0.8
_OTHER_RATE: Final = 1.3
"""How much longer takes are whose samples are of another rate, at least; the nearest two rates are 32,000 and 44,100 Hz."""
_LONG: Final[Mapping[str, Any]] = {"chunk_length": 100, "min_chunk_length": 0}


@dataclass(frozen=True, slots=True)
class _Trial:
    """A field, the value that it is turned to, what all of its takes have besides, and whether they need segments."""

    name: str
    value: Any
    given: Mapping[str, Any] = field(default_factory=dict)
    long: bool = False


# Far from the defaults, and where each can act at all.
_FIELDS: Final = (
    _Trial("temperature", 0.0),
    _Trial("top_p", 0.0),
    _Trial("repetition_penalty", 10.0),
    _Trial("prosody.speed", 1.6),
    _Trial("prosody.volume", -12.0),
    _Trial("normalize", value=False),
    _Trial("latency", "low"),
    _Trial("max_new_tokens", 12),
    _Trial("mp3_bitrate", 64, {"format": "mp3"}),
    _Trial("opus_bitrate", 24, {"format": "opus"}),
    # Raw samples tell no rate themselves: of one that was not kept to they last longer.
    _Trial("sample_rate", 8000, {"format": "pcm"}),
    _Trial("chunk_length", 100, long=True),
    _Trial("min_chunk_length", 100, _LONG, long=True),
    _Trial("condition_on_previous_chunks", False, _LONG, long=True),
    _Trial("early_stop_threshold", 0.4, {**_LONG, "condition_on_previous_chunks": False}, long=True),
)


@dataclass(frozen=True, slots=True)
class KnobFinding:
    """What became of one field or knob.

    ``values`` are the two that were compared, ``takes`` how many takes of both. ``changed`` is the share of takes
    that have other samples at the same seed, or, where seeds are not exact, than repeats that are identical; None where
    repeats differ. ``metric`` shows the strongest difference: ``effect`` in its ``unit``, ``p`` corrected by Holm over all
    tests of the check, NaN where takes of one value do not vary. ``smallest`` is the smallest difference in that metric
    that would have been found four times in five.
    """

    name: str
    verdict: Verdict
    declared: str
    values: tuple[Any, Any]
    takes: int = 0
    changed: float | None = None
    metric: str = ""
    effect: float = math.nan
    p: float = math.nan
    smallest: float = math.nan
    reason: str = ""

    @property
    def difference(self) -> str:
        """The strongest difference with its p and the smallest one that would be found; "" without any."""
        if not self.metric:
            return ""
        p = "p < 0.0001" if self.p < 0.0001 else f"p {self.p:.4f}"
        tested = f"{p}; from {self.smallest:.2g} on it would be found" if math.isfinite(self.p) else "no variance, no p"
        return f"{self.metric} {self.effect:+.3g} ({tested})"

    def __str__(self) -> str:
        parts = [f"{self.name}: {self.verdict}"]
        if self.changed is not None and self.takes:
            parts.append(f"other samples in {self.changed:.0%} of the takes")
        if self.metric:
            parts.append(self.difference)
        if self.reason:
            parts.append(self.reason)
        return ", ".join(parts)


@dataclass(frozen=True)
class KnobCheck(Shown):
    """What a backend declares of its fields and knobs, and what was measured; ``honest`` when nothing contradicts."""

    backend: str
    findings: tuple[KnobFinding, ...]

    @property
    def honest(self) -> bool:
        """Whether nothing that was measured contradicts what is declared."""
        return not any(item.verdict == "contradicts" for item in self.findings)

    @property
    def frame(self) -> pd.DataFrame:
        """A tidy table, one row for each field and knob."""
        import pandas as pd

        frame = pd.DataFrame([asdict(item) for item in self.findings])
        for place, name in enumerate(("default", "value")):
            frame[name] = [str(values[place]) for values in frame["values"]]
        return frame.drop(columns="values")

    def __getitem__(self, name: str) -> KnobFinding:
        """Return the finding of a field or knob. Raises ArgumentError when it was not among them."""
        name = field_name(name)
        for item in self.findings:
            if item.name == name:
                return item
        raise ArgumentError.of(
            "name", f"{name!r} was not checked; {', '.join(item.name for item in self.findings)} were"
        )

    def __str__(self) -> str:
        return "\n".join(map(str, self.findings))


def check_knobs(
    backend: Backend,
    base: Call,
    names: Sequence[str] | None = None,
    *,
    repeats: int = 3,
    seed: int = 0,
    progress: Callable[[int, int], object] | None = None,
) -> KnobCheck:
    """Turn every field and knob away from its default, and say of each whether it does anything.

    Args:
        backend: who speaks; a cache before it is passed by.
        base: the call that all takes start from, all but its text.
        names: fields and knobs to check; all that the backend can be asked for when None.
        repeats: takes of each text at each value, 2 or more.
        seed: the first of their seeds; not used where the backend takes none.
        progress: called with the takes that are there, and how many there will be; what it raises ends the check.

    Where seeds are exact, equal samples prove that a value does nothing and other samples that it does; elsewhere
    ``effects`` of the values on duration, level, spectral tilt, their spread and the bytes decide, and for latency the
    first audio.
    Raises ArgumentError for a name that there is not or fewer than 2 repeats, and what the backend raises for its defaults.
    """
    whole(repeats, "repeats", 2)
    while isinstance(backend, CachedBackend):
        backend = backend.backend
    capabilities = backend.capabilities
    trials = _trials(capabilities, base, names)
    seeds = [None] * repeats if capabilities.seed == "none" else list(range(seed, seed + repeats))

    def calls(trial: _Trial, **turned: Any) -> list[Call]:
        start = base.replace(capabilities.knobs, **{**trial.given, **turned})
        said = LONG_TEXTS if trial.long else TEXTS
        return [start.replace(text=text, seed=one) for text in said for one in seeds]

    plain = {trial.name: _counted(calls(trial)) for trial in trials}
    turned = {trial.name: _counted(calls(trial, **{trial.name: trial.value})) for trial in trials}
    spoken = _spoken(backend, {*chain(*plain.values())}, chain(*plain.values(), *turned.values()), progress)
    different = {take.digest: take for take in spoken.values() if isinstance(take, Take)}
    figures = dict(zip(different, measure(different.values(), _METRICS).to_dict("records"), strict=True))
    ours, theirs = ({name: [spoken[job] for job in own] for name, own in jobs.items()} for jobs in (plain, turned))
    measured = [_measured(trial, ours[trial.name], theirs[trial.name], capabilities, figures) for trial in trials]
    tested = [p for _, p_values in measured for p in p_values]
    corrected = dict(zip(tested, map(float, holm(tested)), strict=True))
    judged = (_judged(replace(finding, p=corrected.get(finding.p, math.nan))) for finding, _ in measured)
    return KnobCheck(capabilities.name, tuple(judged))


def checked_names(capabilities: Capabilities, base: Call, names: Sequence[str] | None = None) -> tuple[str, ...]:
    """Return which fields and knobs ``check_knobs`` turns for these ``names``. Raises like it."""
    return tuple(trial.name for trial in _trials(capabilities, base, names))


def _trials(capabilities: Capabilities, base: Call, names: Sequence[str] | None) -> list[_Trial]:
    voices = [voice.id for voice in capabilities.voices if voice.id != base.request.reference_id]
    formats = capabilities.support("format")
    trials = [
        replace(trial, given={}) if trial.name == "sample_rate" and formats and formats.problem("pcm") else trial
        for trial in _FIELDS
    ]
    if len(voices) > 1:
        trials.insert(0, _Trial("reference_id", voices[-1]))
    if len(capabilities.models) > 1 and not capabilities.one_model:
        trials.append(_Trial("model", next(name for name in capabilities.models if name != capabilities.default_model)))
    trials += [_Trial(knob.name, _turned(knob)) for knob in capabilities.knobs]
    if names is None:
        return trials
    chosen = [field_name(name) for name in names]
    for name in chosen:
        if name not in {trial.name for trial in trials}:
            there = ", ".join(trial.name for trial in trials)
            raise ArgumentError.of("names", f"there is no {name!r} to be checked; there are {there}")
    return [trial for trial in trials if trial.name in chosen]


def _turned(knob: Knob) -> KnobValue:
    """Return a value as far from a knob's default as may be."""
    if knob.type == "bool":
        return not knob.default
    if knob.choices:
        return next(word for word in reversed(knob.choices) if word != knob.default)
    if isinstance(knob.default, str):
        return "other"
    if knob.bounds is None:
        return knob.check(knob.default * 2 or 1)
    end = max(knob.bounds, key=lambda one: abs(one - float(knob.default)))
    return knob.check(int(end) if knob.type == "int" else end)


_Job = tuple[Call, int]
"""A call, and which of its repeats."""


def _spoken(
    backend: Backend, needed: set[_Job], jobs: Iterable[_Job], progress: Callable[[int, int], object] | None
) -> dict[_Job, Take | VoicelabError]:
    """Return what came of each job, equal ones spoken once. Raises what the backend does for those that are needed."""

    def make(job: _Job) -> Take | VoicelabError:
        try:
            return backend.synthesize(check_call(job[0], backend.capabilities)).take(job[1])
        except VoicelabError as error:
            if job in needed or isinstance(error, Cancelled):
                raise
            return error

    done: dict[_Job, Take | VoicelabError] = {}
    # In no order that goes with a value: a machine that warms up, or is busy for a while, would count as its effect.
    order = list(dict.fromkeys(jobs))
    random.Random(0).shuffle(order)
    pool = ThreadPoolExecutor(under_way({"": backend}), thread_name_prefix="voicelab-knobs")
    try:
        for job, result in zip(order, pool.map(make, order), strict=True):
            done[job] = result
            if progress is not None:
                progress(len(done), len(order))
    finally:
        pool.shutdown(cancel_futures=True)
    return done


def _counted(calls: Sequence[Call]) -> list[_Job]:
    """Return calls, each with how often it stands before: takes are repeats where seeds do not tell them apart."""
    return [(call, calls[:place].count(call)) for place, call in enumerate(calls)]


def _measured(
    trial: _Trial,
    plain: Sequence[Take | VoicelabError],
    turned: Sequence[Take | VoicelabError],
    capabilities: Capabilities,
    figures: Mapping[str, Mapping[Hashable, Any]],
) -> tuple[KnobFinding, list[float]]:
    """Return what was found, p uncorrected, and the p of every test that was made."""
    ignored = capabilities.ignored(trial.name)
    declared = f"ignored: {ignored}" if ignored else "acts"
    ours, others = ([one for one in cell if isinstance(one, Take)] for cell in (plain, turned))
    values = (_value(ours[0].call, trial.name, capabilities), trial.value)
    for error in turned:
        if isinstance(error, VoicelabError):
            refused = isinstance(error, RequestInvalid)
            reason = f"{trial.value!r} was refused: {error}" if refused else str(error)
            return KnobFinding(trial.name, "not tried", declared, values, reason=reason), []
    changed: float | None = float(np.mean([a.digest != b.digest for a, b in zip(ours, others, strict=True)]))
    if capabilities.seed != "exact" and not (changed and _repeatable(ours) and _repeatable(others)):
        changed = None
    reason = _other_rate(ours, others) if trial.name == "sample_rate" else ""
    count = len(ours) + len(others)
    finding = KnobFinding(trial.name, "no effect found", declared, values, count, changed, reason=reason)
    tests = _differences(ours, others, figures, timed=trial.name == "latency")
    if tests:
        best = min(tests, key=_weakness)
        finding = replace(finding, **best)
    return finding, [test["p"] for test in tests if math.isfinite(test["p"])]


def _weakness(test: Mapping[str, Any]) -> tuple[float, float, float]:
    """Return the order of tests: significant ones, differences without variance, the rest; by p, then by size."""
    p = test["p"]
    order = 1.0 if math.isnan(p) else 0.0 if p <= _ALPHA else 2.0
    return order, p if math.isfinite(p) else 0.0, -abs(test["effect"] / (test["smallest"] or math.inf))


def _repeatable(takes: Sequence[Take]) -> bool:
    """Return whether all takes of a text are identical."""
    return len({take.digest for take in takes}) == len({take.request.text for take in takes})


def _other_rate(plain: Sequence[Take], turned: Sequence[Take]) -> str:
    """Return what is wrong when raw samples are not of the rate that was asked for; "" when they may be."""
    lengths = [sum(take.clip().duration for take in takes) for takes in (plain, turned)]
    ratio = max(lengths) / min(lengths)
    if ratio < _OTHER_RATE:
        return ""
    rates = " and ".join(f"{takes[0].request.rate} Hz" for takes in (plain, turned))
    return (
        f"asked for at {rates}, one lasts {ratio:.1f} times as long: its samples are not of the rate that is asked for"
    )


def _value(call: Call, name: str, capabilities: Capabilities) -> Any:
    if name == "model":
        return check_call(call, capabilities).model
    own = capabilities.knob_values(call)
    return own[name] if name in own else field_value(call.request, name)


def _differences(
    plain: Sequence[Take], turned: Sequence[Take], figures: Mapping[str, Mapping[Hashable, Any]], *, timed: bool
) -> list[dict[str, Any]]:
    """Return the tests of the turned value against the default, by metric; those without a value are left out."""
    import pandas as pd
    from scipy import stats

    takes = [*plain, *turned]
    frame = pd.DataFrame([{name: figures[take.digest][name] for name in _METRICS} for take in takes])
    frame["bytes"] = [float(len(take.audio)) for take in takes]
    if timed:
        frame["first_audio_s"] = [take.timing.first_audio_s for take in takes]
    frame["value"] = ["default"] * len(plain) + ["turned"] * len(turned)
    frame["text"] = [take.request.text for take in takes]
    # For fields that make speech more or less varied.
    for name in _METRICS:
        middle = frame.groupby(["value", "text"])[name].transform("median")
        frame[f"{name} spread"] = (frame[name] - middle).abs()
    tests = []
    for name in frame.columns.difference(["value", "text"], sort=False):
        levels = frame.dropna(subset=[name]).groupby("value").size()
        if levels.size < 2 or levels.min() < 2:
            continue
        ours, theirs = (frame[name][frame["value"] == level].to_numpy() for level in ("default", "turned"))
        if np.allclose(ours, theirs, rtol=1e-9, atol=1e-12, equal_nan=True):
            continue  # take by take the same: what is left of a difference is rounding
        blocks = ["text"] if frame["text"].nunique() > 1 else []
        row = effects(frame, "value", name, blocks=blocks, texts="").contrasts.iloc[0]
        if row["error"] == 0.0 and row["estimate"]:
            tests.append({"metric": name, "effect": row["estimate"], "p": math.nan, "smallest": 0.0})
        elif math.isfinite(row["p"]):
            # What a two-sided t-test finds with this power; an approximation by shifted t.
            reach = stats.t.ppf(1.0 - _ALPHA / 2.0, row["df"]) + stats.t.ppf(_POWER, row["df"])
            smallest = float(row["error"] * reach)
            tests.append({"metric": name, "effect": row["estimate"], "p": row["p"], "smallest": smallest})
    return tests


def _judged(finding: KnobFinding) -> KnobFinding:
    if finding.verdict == "not tried":
        return finding
    ignored = finding.declared != "acts"
    acts = finding.p <= _ALPHA if finding.changed is None else finding.changed > 0.0
    if finding.reason:
        return replace(finding, verdict="contradicts")
    if acts and ignored:
        return replace(finding, verdict="contradicts", reason="it is declared to do nothing, and does")
    if acts or ignored:
        return replace(finding, verdict="acts" if acts else "ignored")
    if finding.changed == 0.0:
        reason = "it is declared to act, and the samples are the same"
        return replace(finding, verdict="contradicts", reason=reason)
    return finding

"""Does it do anything? Every field and knob of a backend, turned and measured, beside what the backend declares of it."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from voicelab.backend import Backend
from voicelab.call import Call, Knob, KnobValue, field_name
from voicelab.capabilities import Capabilities, check_call, field_value
from voicelab.clip import Take, take_key
from voicelab.display import Shown
from voicelab.errors import ArgumentError, Cancelled, RequestInvalid, VoicelabError
from voicelab.experiments.metrics import measure
from voicelab.experiments.runs.backends import CachedBackend
from voicelab.experiments.statistics import effects, holm
from voicelab.experiments.sweeps.workers import under_way

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
# What differs between takes of one cell, for fields that make speech more or less varied.
_SPREADS: Final = _METRICS
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
    that have other samples at the same seed, None where seeds are not exact. ``metric`` shows the strongest difference:
    ``effect`` in its ``unit``, ``p`` corrected by Holm over all tests of the check. ``smallest`` is the smallest difference
    in that metric that would have been found four times in five.
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

    def __str__(self) -> str:
        parts = [f"{self.name}: {self.verdict}"]
        if self.changed is not None and self.takes:
            parts.append(f"other samples in {self.changed:.0%} of the takes")
        if self.metric:
            p = "p < 0.0001" if self.p < 0.0001 else f"p {self.p:.4f}"
            parts.append(f"{self.metric} {self.effect:+.3g} ({p}; from {self.smallest:.2g} on it would be found)")
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

        names = [name for name in KnobFinding.__slots__ if name != "values"]
        rows = [{name: getattr(item, name) for name in names} for item in self.findings]
        for row, item in zip(rows, self.findings, strict=True):
            row["default"], row["value"] = map(str, item.values)
        return pd.DataFrame(rows)

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
    texts: Sequence[str] = TEXTS,
    long_texts: Sequence[str] = LONG_TEXTS,
    repeats: int = 3,
    seed: int = 0,
    progress: Callable[[int, int], object] | None = None,
) -> KnobCheck:
    """Turn every field and knob away from its default, and say of each whether it does anything.

    Args:
        backend: who speaks; a cache before it is passed by.
        base: the call that all takes start from, all but its text.
        names: fields and knobs to check; all that the backend can be asked for when None.
        texts: what is said.
        long_texts: what is said where segments matter.
        repeats: takes of each text at each value, 2 or more.
        seed: the first of their seeds; not used where the backend takes none.
        progress: called with the takes that are there, and how many there will be; what it raises ends the check.

    Where seeds are exact, equal samples prove that a value does nothing and other samples that it does; elsewhere
    ``effects`` of the values on duration, level, spectral tilt, their spread and the bytes decide, and for latency the
    first audio.
    Raises ArgumentError for a name that there is not or fewer than 2 repeats, and what the backend raises for its defaults.
    """
    if type(repeats) is not int or repeats < 2:
        raise ArgumentError.of("repeats", "Input should be a whole number, 2 or more")
    while isinstance(backend, CachedBackend):
        backend = backend.backend
    capabilities = backend.capabilities
    trials = _trials(capabilities, base, names)
    calls = {
        (trial.name, turned): _calls(
            trial, base, capabilities, (texts, long_texts), range(seed, seed + repeats), turned
        )
        for trial in trials
        for turned in (False, True)
    }
    takes = _spoken(backend, calls, progress)
    different = {take.digest: take for several in takes.values() if isinstance(several, list) for take in several}
    figures = dict(zip(different, measure(different.values(), _METRICS).to_dict("records"), strict=True))
    findings = [_measured(trial, takes, capabilities, figures) for trial in trials]
    corrected = iter(holm([test.p for _, tests in findings for test in tests]))
    judged = [
        _judged(finding, [(test, float(next(corrected))) for test in tests], capabilities)
        for finding, tests in findings
    ]
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


def _calls(
    trial: _Trial,
    base: Call,
    capabilities: Capabilities,
    texts: tuple[Sequence[str], Sequence[str]],
    seeds: Iterable[int],
    turned: bool,
) -> list[Call]:
    changes = {**trial.given, **({trial.name: trial.value} if turned else {})}
    start = base.replace(capabilities.knobs, **changes)
    return [
        start.replace(text=text, seed=None if capabilities.seed == "none" else seed)
        for text in texts[trial.long]
        for seed in seeds
    ]


def _spoken(
    backend: Backend, calls: Mapping[tuple[str, bool], Sequence[Call]], progress: Callable[[int, int], object] | None
) -> dict[tuple[str, bool], list[Take] | VoicelabError]:
    """Return the takes of every cell, equal calls spoken once; an error where the backend refuses the turned value."""
    fingerprint = backend.capabilities.fingerprint
    jobs: dict[str, tuple[Call, int]] = {}
    keys: dict[tuple[str, bool], list[str]] = {}
    for cell, several in calls.items():
        seen: dict[Call, int] = {}
        keys[cell] = []
        for call in several:
            repeat = seen[call] = seen.get(call, -1) + 1
            key = take_key(call, fingerprint, repeat)
            jobs[key] = (call, repeat)
            keys[cell].append(key)

    def make(job: tuple[Call, int]) -> Take | VoicelabError:
        try:
            return backend.synthesize(check_call(job[0], backend.capabilities)).take(job[1])
        except Cancelled:
            raise
        except VoicelabError as error:
            return error

    done: dict[str, Take | VoicelabError] = {}
    # In no order that goes with a value: a machine that warms up, or is busy for a while, would count as its effect.
    order = list(jobs)
    random.Random(0).shuffle(order)
    pool = ThreadPoolExecutor(under_way({"": backend}), thread_name_prefix="voicelab-knobs")
    try:
        for key, result in zip(order, pool.map(make, map(jobs.__getitem__, order)), strict=True):
            done[key] = result
            if progress is not None:
                progress(len(done), len(jobs))
    finally:
        pool.shutdown(cancel_futures=True)
    takes: dict[tuple[str, bool], list[Take] | VoicelabError] = {}
    for (name, turned), several_keys in keys.items():
        results = [done[key] for key in several_keys]
        error = next((one for one in results if isinstance(one, VoicelabError)), None)
        if error is not None and not turned:
            raise error
        takes[name, turned] = error or [one for one in results if isinstance(one, Take)]
    return takes


@dataclass(frozen=True, slots=True)
class _Difference:
    metric: str
    estimate: float
    p: float
    smallest: float


def _measured(
    trial: _Trial,
    takes: Mapping[tuple[str, bool], list[Take] | VoicelabError],
    capabilities: Capabilities,
    figures: Mapping[str, Mapping[Hashable, Any]],
) -> tuple[KnobFinding, list[_Difference]]:
    plain, turned = takes[trial.name, False], takes[trial.name, True]
    ignored = capabilities.ignored(trial.name)
    declared = f"ignored: {ignored}" if ignored else "acts"
    if isinstance(plain, VoicelabError):
        raise plain
    values = (_value(plain[0].call, trial.name, capabilities), trial.value)
    if isinstance(turned, VoicelabError):
        refused = isinstance(turned, RequestInvalid)
        reason = f"{trial.value!r} was refused: {turned}" if refused else str(turned)
        return KnobFinding(trial.name, "not tried", declared, values, reason=reason), []
    changed = None
    if capabilities.seed == "exact":
        changed = float(np.mean([one.digest != other.digest for one, other in zip(plain, turned, strict=True)]))
    finding = KnobFinding(trial.name, "no effect found", declared, values, len(plain) + len(turned), changed)
    if trial.name == "sample_rate":
        finding = replace(finding, reason=_other_rate(plain, turned))
    return finding, _differences(plain, turned, figures, timed=trial.name == "latency")


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
) -> list[_Difference]:
    """Return the tests of the turned value against the default, by metric; those without a value are left out."""
    import pandas as pd

    takes = [*plain, *turned]
    frame = pd.DataFrame([{name: figures[take.digest][name] for name in _METRICS} for take in takes])
    frame["bytes"] = [float(len(take.audio)) for take in takes]
    if timed:
        frame["first_audio_s"] = [take.timing.first_audio_s for take in takes]
    frame["value"] = ["default"] * len(plain) + ["turned"] * len(turned)
    frame["text"] = [take.request.text for take in takes]
    for name in _SPREADS:
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
        if math.isfinite(row["p"]):
            tests.append(_Difference(name, row["estimate"], row["p"], _smallest(row["error"], row["df"])))
    return tests


def _smallest(error: float, df: float) -> float:
    """Return the difference that a two-sided t-test finds with a power of 0.8; an approximation by shifted t."""
    from scipy import stats

    return float(error * (stats.t.ppf(1.0 - _ALPHA / 2.0, df) + stats.t.ppf(_POWER, df)))


def _judged(
    finding: KnobFinding, tests: Sequence[tuple[_Difference, float]], capabilities: Capabilities
) -> KnobFinding:
    if finding.verdict == "not tried":
        return finding
    ignored = bool(capabilities.ignored(finding.name))
    verdict: Verdict = "no effect found"
    if tests:
        best, p = min(
            tests, key=lambda item: (item[1], item[0].p, -abs(item[0].estimate / (item[0].smallest or math.inf)))
        )
        finding = replace(finding, metric=best.metric, effect=best.estimate, p=p, smallest=best.smallest)
    acts = bool(tests) and finding.p <= _ALPHA
    if finding.changed is not None:
        acts = finding.changed > 0.0
    reason = finding.reason
    if reason:
        verdict = "contradicts"
    elif acts:
        verdict = "contradicts" if ignored else "acts"
        reason = "it is declared to do nothing, and does" if ignored else reason
    elif ignored:
        verdict = "ignored"
    elif finding.changed == 0.0:
        verdict, reason = "contradicts", "it is declared to act, and the samples are the same"
    return replace(finding, verdict=verdict, reason=reason)

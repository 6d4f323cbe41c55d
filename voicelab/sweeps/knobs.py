"""Measured effects of fields and parameters, compared with the backend's declaration."""

from __future__ import annotations

import base64
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
from voicelab.call import EXTRA, Call, Knob, KnobValue, field_name, short_name
from voicelab.capabilities import Capabilities, check_call, field_value
from voicelab.clip import Take
from voicelab.display import Shown
from voicelab.errors import (
    ArgumentError,
    Cancelled,
    RequestInvalid,
    ServiceError,
    VoicelabError,
    shortened,
)
from voicelab.metrics import measure
from voicelab.schema import ReferenceAudio
from voicelab.stats import effects, holm
from voicelab.stats.estimate import whole
from voicelab.sweeps.workers import under_way

if TYPE_CHECKING:
    import pandas as pd

Verdict = Literal["acts", "ignored", "no effect found", "contradicts", "not tried"]
"""``ignored``: no effect was measured, as the backend declares. ``contradicts``: the measurements contradict the
declaration."""

TEXTS: Final = ("We left at 9:45 that day.", "Two of the 38 ships came home.")
"""Short texts with numbers, whose normalization is audible."""
LONG_TEXTS: Final = (
    "The train was late and so were we, because nobody at the station knew why it had to wait there for so long. We left.",
)
"""A sentence of more than 100 characters and a short one, which become several segments if the maximum segment length
is low."""

PROBE_TEXT: Final = "The 38 birch canoes slid on the smooth planks."
UNKNOWN_FIELD: Final = "voicelab_unknown_field"
_EXAMPLES: Final[Mapping[str, KnobValue]] = {
    "instructions": "Whisper, very slowly.",
    "language": "Chinese",
    "lang_code": "e",
    "volume_multiplier": 0.25,
}
"""Fields of OpenAI-compatible servers, with test values."""

_METRICS: Final = ("duration", "level", "spectral_tilt")
_ALPHA: Final = 0.05
_POWER: Final = 0.8
_OTHER_RATE: Final = 1.3
"""Ratio of durations from which a sample rate is regarded as wrong; the closest rates are 32,000 and 44,100 Hz."""
_SEGMENTING: Final[Mapping[str, Any]] = {"chunk_length": 100, "min_chunk_length": 0}


@dataclass(frozen=True, slots=True)
class _Trial:
    """A field with its test value, the other fields of the takes, and whether their text must have several segments."""

    name: str
    value: Any
    fields: Mapping[str, Any] = field(default_factory=dict)
    long: bool = False


# Test values far from the defaults, in calls where they can have an effect.
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
    # pcm has no header that states the sample rate; at a wrong rate the audio lasts longer.
    _Trial("sample_rate", 8000, {"format": "pcm"}),
    _Trial("chunk_length", 100, long=True),
    _Trial("min_chunk_length", 100, _SEGMENTING, long=True),
    _Trial("condition_on_previous_chunks", False, _SEGMENTING, long=True),
    _Trial("early_stop_threshold", 0.4, {**_SEGMENTING, "condition_on_previous_chunks": False}, long=True),
)


@dataclass(frozen=True, slots=True)
class KnobFinding:
    """Result for a field or parameter.

    ``values`` are the two compared values, and ``takes`` is the total number of their takes. ``changed`` is the proportion
    of takes whose samples differ between the values. If seeds are not exact, ``changed`` is defined only if samples differ
    and all repeats are identical. ``metric`` is the metric with the strongest evidence of an effect, and ``effect`` the
    difference in it. ``p`` is corrected over all tests (Holm); it is NaN if there is no variance. ``smallest`` is the
    smallest difference that is detected with a power of 80 %. If samples cannot be compared, only effects on duration, level,
    spectral tilt and file size are found; a difference without variance is an effect.
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
        """Strongest difference with its p-value and the smallest detectable difference; "" if there is no difference."""
        if not self.metric:
            return ""
        p = "p < 0.0001" if self.p < 0.0001 else f"p {self.p:.4f}"
        tested = f"{p}; detectable from {self.smallest:.2g}" if math.isfinite(self.p) else "no variance, no p"
        return f"{self.metric} {self.effect:+.3g} ({tested})"

    def __str__(self) -> str:
        parts = [f"{self.name}: {self.verdict}"]
        if self.changed is not None and self.takes:
            parts.append(f"other samples in {self.changed:.0%} of takes")
        if self.metric:
            parts.append(self.difference)
        if self.reason:
            parts.append(self.reason)
        return ", ".join(parts)


@dataclass(frozen=True)
class KnobCheck(Shown):
    """Declared and measured effects of fields and parameters; ``honest`` if no measurement contradicts the declaration."""

    backend: str
    findings: tuple[KnobFinding, ...]

    @property
    def honest(self) -> bool:
        """Whether all measurements agree with the declaration."""
        return not any(item.verdict == "contradicts" for item in self.findings)

    @property
    def frame(self) -> pd.DataFrame:
        """A DataFrame with a row per field and parameter."""
        import pandas as pd

        frame = pd.DataFrame([asdict(item) for item in self.findings])
        for index, name in enumerate(("default", "value")):
            frame[name] = [str(values[index]) for values in frame["values"]]
        return frame.drop(columns="values")

    def __getitem__(self, name: str) -> KnobFinding:
        """Return the result of a field or parameter. Raises ArgumentError if it was not checked."""
        name = field_name(name)
        for item in self.findings:
            if item.name == name:
                return item
        raise ArgumentError.of("name", f"must be one of {', '.join(item.name for item in self.findings)}, got {name!r}")

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
    """Measure the effect of every field and parameter, with a value far from its default.

    Args:
        backend: the backend; caches are bypassed.
        base: base call of all takes; its text is replaced.
        names: fields and parameters to check; None for all.
        repeats: takes per text and value, 2 or more.
        seed: first seed, for backends that support seeds.
        progress: called with the finished and the total number of takes; an exception ends the check.

    If seeds are exact, equal samples prove that a field has no effect, and different samples that it has one. Otherwise
    ``effects`` tests the duration, level and spectral tilt, their dispersion, and the size in bytes; for latency, it
    tests the time to first audio. Raises ArgumentError for an unknown name or fewer than 2 repeats, and the errors of
    the backend if the base call fails.
    """
    whole(repeats, "repeats", 2)
    while isinstance(backend, CachedBackend):
        backend = backend.backend
    capabilities = backend.capabilities
    trials = _trials(capabilities, base, names)
    seeds = [None] * repeats if capabilities.seed == "none" else list(range(seed, seed + repeats))

    def calls(trial: _Trial, **turned: Any) -> list[Call]:
        start = base.replace(capabilities.knobs, **{**trial.fields, **turned})
        texts = LONG_TEXTS if trial.long else TEXTS
        return [start.replace(text=text, seed=each) for text in texts for each in seeds]

    plain = {trial.name: _counted(calls(trial)) for trial in trials}
    turned = {trial.name: _counted(calls(trial, **{trial.name: trial.value})) for trial in trials}
    takes = _synthesize(backend, {*chain(*plain.values())}, chain(*plain.values(), *turned.values()), progress)
    different = {take.digest: take for take in takes.values() if isinstance(take, Take)}
    figures = dict(zip(different, measure(different.values(), _METRICS).to_dict("records"), strict=True))
    ours, theirs = (
        {name: [takes[job] for job in jobs] for name, jobs in trial_jobs.items()} for trial_jobs in (plain, turned)
    )
    measured = [_measured(trial, ours[trial.name], theirs[trial.name], capabilities, figures) for trial in trials]
    tested = [p for _, p_values in measured for p in p_values]
    corrected = dict(zip(tested, map(float, holm(tested)), strict=True))
    judged = (_judged(replace(finding, p=corrected.get(finding.p, math.nan))) for finding, _ in measured)
    return KnobCheck(capabilities.name, tuple(judged))


@dataclass(frozen=True, slots=True)
class FieldProbe:
    """Result of ``probe_fields`` for a field.

    ``accepted`` is "yes" or "no", or "" if the field was not sent. ``acts`` states whether it has an effect: "yes",
    "no", "unclear" or "".
    """

    name: str
    value: str
    accepted: str = ""
    acts: str = ""
    remark: str = ""


def probe_fields(backend: Backend, base: Call) -> list[FieldProbe]:
    """Synthesize one sentence with and without each field, and compare the audio.

    If the backend passes on unlisted fields, fields of other servers are also sent, and a field that no server has
    (``UNKNOWN_FIELD``). A server that accepts this field ignores unknown fields, so its acceptance of other fields does not
    mean that it supports them. Fields that are declared as ignored are not sent. "unclear" means that two takes of the same
    call differ; ``check_knobs`` then tests with repeats. Raises the errors of the backend if the base call fails.
    """
    can = backend.capabilities
    start = base.replace(text=PROBE_TEXT, seed=None if can.seed == "none" else 1)
    takes: dict[Call, Take] = {}

    def take(call: Call) -> Take:
        if call not in takes:
            takes[call] = _take(backend, call)
        return takes[call]

    def probe(name: str, value: object, without: Call, changes: Mapping[str, Any]) -> FieldProbe:
        shown = "a recording" if name.endswith(("references", "ref_audio")) else shortened(repr(value), 24)
        result = FieldProbe(short_name(name), shown)
        if (ignored := can.ignored(name)) or (name == "seed" and can.seed == "none"):
            return replace(result, acts="no", remark=f"not sent: {ignored or 'seeds are not supported'}")
        take(without)  # errors here are not caused by the field
        try:
            changed = take(without.replace(can.knobs, **changes)).digest != take(without).digest
        except (RequestInvalid, ServiceError) as error:
            return replace(result, accepted="no", remark=" ".join(str(error).split()))
        if name == "seed" and varies:
            return replace(result, accepted="yes", acts="no", remark="two takes with the same seed differ")
        acts = "unclear" if changed and varies else "yes" if changed else "no"
        return replace(result, accepted="yes", acts=acts, remark="" if changed else "equal audio")

    try:
        plain = take(start)
    except RequestInvalid:
        if start.seed is None:
            raise
        start, seeded = start.replace(seed=None), start
        plain = take(start)
    else:
        seeded = start
    varies = plain.digest != _take(backend, start, 1).digest
    extra = _unlisted_fields(can, plain)
    trials = [trial for trial in _trials(can, base, None) if EXTRA + trial.name not in extra]
    probes = []
    for trial in trials:
        without = start.replace(can.knobs, **{**trial.fields, **({"text": LONG_TEXTS[0]} if trial.long else {})})
        probes.append(probe(trial.name, trial.value, without, {trial.name: trial.value}))
    recording = ReferenceAudio(audio=plain.clip().to_bytes("wav"), text=PROBE_TEXT)
    probes.append(probe("references", recording, start, {"references": (recording,)}))
    probes += [probe(name, value, start, {name: value}) for name, value in extra.items()]
    return [*probes, probe("seed", 2, start, {"seed": 2 if seeded.seed else None})]


def _take(backend: Backend, call: Call, repeat: int = 0) -> Take:
    return backend.synthesize(check_call(call, backend.capabilities)).take(repeat)


def _unlisted_fields(can: Capabilities, take: Take) -> dict[str, Any]:
    """Return fields of other servers with test values if the backend passes on unlisted fields."""
    if not can.open_ended:
        return {}
    fields = {trial.name: trial.value for trial in _FIELDS if "." not in trial.name and can.ignored(trial.name)}
    if can.ignored("references"):
        wav = base64.b64encode(take.clip().to_bytes("wav")).decode()
        fields["ref_audio"] = f"data:audio/wav;base64,{wav}"
    listed = {knob.name for knob in can.knobs}
    fields |= {name: value for name, value in _EXAMPLES.items() if name not in listed}
    return {EXTRA + name: value for name, value in {**fields, UNKNOWN_FIELD: 1}.items()}


def checked_names(capabilities: Capabilities, base: Call, names: Sequence[str] | None = None) -> tuple[str, ...]:
    """List the fields and parameters that ``check_knobs`` checks. Raises ArgumentError for an unknown name."""
    return tuple(trial.name for trial in _trials(capabilities, base, names))


def _trials(capabilities: Capabilities, base: Call, names: Sequence[str] | None) -> list[_Trial]:
    voices = [voice.id for voice in capabilities.voices if voice.id != base.request.reference_id]
    formats = capabilities.support("format")
    trials = [
        replace(trial, fields={}) if trial.name == "sample_rate" and formats and formats.problem("pcm") else trial
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
            listed = ", ".join(trial.name for trial in trials)
            raise ArgumentError.of("names", f"must be one of {listed}, got {name!r}")
    return [trial for trial in trials if trial.name in chosen]


def _turned(knob: Knob) -> KnobValue:
    """Return the allowed value of a parameter that is farthest from its default."""
    if knob.type == "bool":
        return not knob.default
    if knob.choices:
        return next(word for word in reversed(knob.choices) if word != knob.default)
    if knob.name in _EXAMPLES:
        return knob.check(_EXAMPLES[knob.name])
    if knob.type == "str":
        return "other"
    if knob.bounds is None:
        return knob.check((knob.default or 0) * 2 or 1)
    end = max(knob.bounds, key=lambda bound: abs(bound - float(knob.default or 0)))
    return knob.check(int(end) if knob.type == "int" else end)


_Job = tuple[Call, int]
"""A call, and the index of its repeat."""


def _synthesize(
    backend: Backend, needed: set[_Job], jobs: Iterable[_Job], progress: Callable[[int, int], object] | None
) -> dict[_Job, Take | VoicelabError]:
    """Synthesize each distinct job; return its take or error. The errors of ``needed`` jobs are raised."""

    def make(job: _Job) -> Take | VoicelabError:
        try:
            return backend.synthesize(check_call(job[0], backend.capabilities)).take(job[1])
        except VoicelabError as error:
            if job in needed or isinstance(error, Cancelled):
                raise
            return error

    done: dict[_Job, Take | VoicelabError] = {}
    # The order is random, so that warm-up and machine load are not confounded with a value.
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
    """Return each call with its index among identical calls; without seeds, identical calls are repeats."""
    return [(call, calls[:index].count(call)) for index, call in enumerate(calls)]


def _measured(
    trial: _Trial,
    plain: Sequence[Take | VoicelabError],
    turned: Sequence[Take | VoicelabError],
    capabilities: Capabilities,
    figures: Mapping[str, Mapping[Hashable, Any]],
) -> tuple[KnobFinding, list[float]]:
    """Return the finding of a trial with its uncorrected p-value, and the p-values of all its tests."""
    ignored = capabilities.ignored(trial.name)
    declared = f"ignored: {ignored}" if ignored else "acts"
    ours, theirs = ([take for take in cell if isinstance(take, Take)] for cell in (plain, turned))
    values = (_value(ours[0].call, trial.name, capabilities), trial.value)
    for error in turned:
        if isinstance(error, VoicelabError):
            rejected = isinstance(error, RequestInvalid)
            reason = f"{trial.value!r} was rejected: {error}" if rejected else str(error)
            return KnobFinding(trial.name, "not tried", declared, values, reason=reason), []
    changed: float | None = float(np.mean([a.digest != b.digest for a, b in zip(ours, theirs, strict=True)]))
    if capabilities.seed != "exact" and not (changed and _repeatable(ours) and _repeatable(theirs)):
        changed = None
    reason = _other_rate(ours, theirs) if trial.name == "sample_rate" else ""
    count = len(ours) + len(theirs)
    finding = KnobFinding(trial.name, "no effect found", declared, values, count, changed, reason=reason)
    tests = _differences(ours, theirs, figures, timed=trial.name == "latency")
    if tests:
        best = min(tests, key=_weakness)
        finding = replace(finding, **best)
    return finding, [test["p"] for test in tests if math.isfinite(test["p"])]


def _weakness(test: Mapping[str, Any]) -> tuple[float, float, float]:
    """Return the sort key of a test: significant tests, then differences without variance, then others, by p and size."""
    p = test["p"]
    order = 1.0 if math.isnan(p) else 0.0 if p <= _ALPHA else 2.0
    return order, p if math.isfinite(p) else 0.0, -abs(test["effect"] / (test["smallest"] or math.inf))


def _repeatable(takes: Sequence[Take]) -> bool:
    """Return whether the takes of each text are identical."""
    return len({(take.request.text, take.digest) for take in takes}) == len({take.request.text for take in takes})


def _other_rate(plain: Sequence[Take], turned: Sequence[Take]) -> str:
    """Describe why the sample rate of pcm audio cannot be the requested one; "" if it can."""
    lengths = [sum(take.clip().duration for take in takes) for takes in (plain, turned)]
    ratio = max(lengths) / min(lengths)
    if ratio < _OTHER_RATE:
        return ""
    rates = " and ".join(f"{takes[0].request.rate} Hz" for takes in (plain, turned))
    return f"at {rates} the durations differ by a factor of {ratio:.1f}: the sample rate is not that of the request"


def _value(call: Call, name: str, capabilities: Capabilities) -> Any:
    if name == "model":
        return check_call(call, capabilities).model
    knobs = capabilities.knob_values(call)
    return knobs[name] if name in knobs else field_value(call.request, name)


def _differences(
    plain: Sequence[Take], turned: Sequence[Take], figures: Mapping[str, Mapping[Hashable, Any]], *, timed: bool
) -> list[dict[str, Any]]:
    """Test the takes with a value against those with the default, on every metric that varies."""
    import pandas as pd
    from scipy import stats

    takes = [*plain, *turned]
    frame = pd.DataFrame([{name: figures[take.digest][name] for name in _METRICS} for take in takes])
    frame["bytes"] = [float(len(take.audio)) for take in takes]
    if timed:
        frame["first_audio_s"] = [take.timing.first_audio_s for take in takes]
    frame["value"] = ["default"] * len(plain) + ["turned"] * len(turned)
    frame["text"] = [take.request.text for take in takes]
    # The dispersion is tested because some fields affect only the variance.
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
            continue  # equal up to rounding
        blocks = ["text"] if frame["text"].nunique() > 1 else []
        row = effects(frame, "value", name, blocks=blocks, texts="").contrasts.iloc[0]
        if row["error"] == 0.0 and row["estimate"]:
            tests.append({"metric": name, "effect": row["estimate"], "p": math.nan, "smallest": 0.0})
        elif math.isfinite(row["p"]):
            # Detectable by a two-sided t-test with this power; an approximation by a shifted t.
            reach = stats.t.ppf(1.0 - _ALPHA / 2.0, row["df"]) + stats.t.ppf(_POWER, row["df"])
            smallest = float(row["error"] * reach)
            tests.append({"metric": name, "effect": row["estimate"], "p": row["p"], "smallest": smallest})
    return tests


def _judged(finding: KnobFinding) -> KnobFinding:
    if finding.verdict == "not tried":
        return finding
    ignored = finding.declared != "acts"
    # A difference without variance has no p, but is an effect: all takes of a value are equal in the metric.
    constant = bool(finding.metric) and math.isnan(finding.p)
    acts = finding.p <= _ALPHA or constant if finding.changed is None else finding.changed > 0.0
    if finding.reason:
        return replace(finding, verdict="contradicts")
    if acts and ignored:
        return replace(finding, verdict="contradicts", reason="declared to be ignored, but has an effect")
    if acts or ignored:
        return replace(finding, verdict="acts" if acts else "ignored")
    if finding.changed == 0.0:
        reason = "declared to have an effect, but the samples are the same"
        return replace(finding, verdict="contradicts", reason=reason)
    return finding

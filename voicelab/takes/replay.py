"""Replay, the repeated synthesis of takes and comparison with the originals, and verification of declared seed support."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, get_args

import numpy as np

from voicelab.audio.analysis import Digest, digest, mel
from voicelab.backend import Backend
from voicelab.backends.runs import CachedBackend
from voicelab.call import MAX_SEED, Call
from voicelab.capabilities import SeedSupport
from voicelab.clip import Clip, Take
from voicelab.errors import AudioError, RequestInvalid, StoreError, VoicelabError
from voicelab.runs.run import read_run
from voicelab.schema import TTSRequest
from voicelab.takes.collection import run_table
from voicelab.takes.rows import device_type
from voicelab.takes.table import TakeTable

Verdict = Literal["identical", "within tolerance", "different", "failed", "no original"]
"""``failed``: the backend raised an error. ``no original``: the archived audio is missing or changed."""

_THREADS: Final = 4
# Range below the maximum; lower levels are codec noise.
_RANGE_DB: Final = 60.0
# The text is so long that takes with different seeds are never equal.
_SEED: Final = 7
_SEED_TEXT: Final = "The birch canoe slid on the smooth planks."


@dataclass(frozen=True, slots=True)
class Tolerance:
    """Tolerance of a take: duration in seconds, level in dB, pitch in cents, mel spectra in dB.

    The digests of both clips (``voicelab.audio.analysis.digest``) must agree within these values, and ``mel_db`` also
    limits ``TakeComparison.mel``.
    """

    seconds: float = 0.05
    db: float = 1.5
    cents: float = 50.0
    mel_db: float = 3.0


@dataclass(frozen=True, slots=True)
class TakeComparison:
    """Comparison of a replayed take with the original; differences are new minus old.

    ``duration`` is in seconds, ``level`` in dB and ``f0`` in cents; ``mel`` is the mean absolute difference in dB over
    frames and 80 mel bands, with levels limited to 60 dB below the maximum. Differences are 0 for identical takes, and None
    if they are unknown; ``reason`` explains why.
    """

    before: Take
    after: Take | None
    verdict: Verdict
    duration: float | None = None
    level: float | None = None
    f0: float | None = None
    mel: float | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class SeedCheck:
    """Declared and observed seed support of a backend; ``honest`` if the observed support is at least the declared one."""

    declared: SeedSupport
    observed: SeedSupport
    reason: str = ""

    @property
    def honest(self) -> bool:
        """Whether the observed support is at least the declared one."""
        order: tuple[SeedSupport, ...] = ("unknown", "none", "best-effort", "exact")
        return order.index(self.observed) >= order.index(self.declared)


@dataclass(frozen=True, slots=True)
class ReplayReport:
    """Comparisons of replayed takes with the originals, in the order of the takes, with notes.

    ``problems`` are the reasons for an incomplete comparison: missing or damaged lines of the run, and archived audio that is
    missing or changed.
    """

    comparisons: tuple[TakeComparison, ...]
    notes: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def counts(self) -> dict[Verdict, int]:
        """Number of takes per verdict."""
        counted = Counter(item.verdict for item in self.comparisons)
        return {verdict: counted[verdict] for verdict in get_args(Verdict)}

    @property
    def same(self) -> bool:
        """Whether the run is complete and every take identical or within tolerance."""
        return not self.problems and all(item.verdict in {"identical", "within tolerance"} for item in self.comparisons)

    def __str__(self) -> str:
        listed = ", ".join(f"{count} {verdict}" for verdict, count in self.counts.items() if count)
        return f"{len(self.comparisons)} takes: {listed}" if self.comparisons else "no takes"


def replay(
    table: TakeTable | str | Path,
    backend: Backend,
    *,
    tolerance: Tolerance | None = None,
    threads: int = _THREADS,
    progress: Callable[[TakeComparison], object] | None = None,
) -> ReplayReport:
    """Synthesize takes again and compare each with its original.

    Takes are synthesized with their original seeds if these are known and ``backend`` supports seeds. No cache is used unless
    ``backend`` itself has one.

    Args:
        table: the takes, or the folder of their run.
        backend: the backend.
        tolerance: tolerance of the comparison; None for the defaults of Tolerance.
        threads: concurrent takes, 1 or more.
        progress: called with each comparison, from several threads.

    Raises StoreError if the run cannot be read. Errors of the backend become the verdict "failed"; a take whose archived
    audio is missing or changed has the verdict "no original", and is named in ``problems``.
    """
    if threads < 1:
        raise RequestInvalid.of("threads", f"must be 1 or more, got {threads}", in_="query")
    table = table if isinstance(table, TakeTable) else run_table(read_run(table))
    bounds = tolerance or Tolerance()

    def again(take: Take) -> TakeComparison:
        compared = _again(take, backend, bounds)
        if progress is not None:
            progress(compared)
        return compared

    with ThreadPoolExecutor(threads, thread_name_prefix="voicelab-replay") as pool:
        comparisons = tuple(pool.map(again, table.takes))
    missing = [item for item in comparisons if item.verdict == "no original"]
    recorded = () if table.run is None else table.run.problems
    problems = (*recorded, *(f"Take {item.before.key[:12]}… has no original: {item.reason}" for item in missing))
    return ReplayReport(comparisons, tuple(_notes(table, comparisons, backend)), problems)


def compare(before: Take, after: Take, tolerance: Tolerance | None = None) -> TakeComparison:
    """Compare a take with its replay. If audio is missing or damaged, the verdict is "different", with the reason."""
    same = TakeComparison(before, after, "identical", 0.0, 0.0, 0.0, 0.0)
    if before.digest == after.digest:
        return same
    try:
        old, new = before.clip(), after.clip()
    except (StoreError, AudioError) as error:
        reason = f"the audio differs and cannot be compared: {error}"
        return TakeComparison(before, after, "different", reason=reason)
    if old == new:
        return same  # the bytes differ but the samples are equal, as with another encoder's header
    old_digest, new_digest = digest(old), digest(new)
    bounds = tolerance or Tolerance()
    spectral = _mel_distance(old, new)
    near = old_digest.close_to(new_digest, **dataclasses.asdict(bounds))
    return TakeComparison(
        before,
        after,
        "within tolerance" if near and spectral <= bounds.mel_db else "different",
        duration=new.duration - old.duration,
        level=0.0
        if old_digest.level == new_digest.level
        else new_digest.level - old_digest.level,  # two silent takes have levels of -inf
        f0=_cents(old_digest, new_digest),
        mel=spectral,
    )


def check_seed_claim(backend: Backend, *, call: Call | None = None) -> SeedCheck:
    """Verify the declared seed support of a backend by synthesizing ``call`` twice, and once with another seed.

    Support is exact if both takes of a seed are equal, best-effort if they agree within the Tolerance, and none if they
    differ more or if another seed gives equal audio. Caches are bypassed. Raises the errors of the backend.
    """
    while isinstance(backend, CachedBackend):
        backend = backend.backend
    declared = backend.capabilities.seed
    if declared == "none":
        return SeedCheck(declared, "none", "it does not support seeds")
    call = call or Call(TTSRequest(text=_SEED_TEXT, format="wav", temperature=1.0))
    seed = _SEED if call.seed is None else call.seed
    seeded, reseeded = (dataclasses.replace(call, seed=each) for each in (seed, (seed + 1) % MAX_SEED))
    first, second = (backend.synthesize(seeded).take(number) for number in range(2))
    control = backend.synthesize(reseeded).take()
    if compare(first, control).verdict == "identical":
        return SeedCheck(declared, "none", f"seeds {seed} and {seed + 1} give the same audio")
    verdict = compare(first, second).verdict
    if verdict == "identical":
        return SeedCheck(declared, "exact")
    return SeedCheck(declared, "none" if verdict == "different" else "best-effort", f"2 takes with seed {seed} differ")


def _again(take: Take, backend: Backend, tolerance: Tolerance) -> TakeComparison:
    seed = None if backend.capabilities.seed == "none" else take.seed
    try:
        after = backend.synthesize(dataclasses.replace(take.call, seed=seed)).take(take.repeat)
    except VoicelabError as error:
        return TakeComparison(take, None, "failed", reason=str(error))
    try:
        _ = take.audio
    except StoreError as error:
        return TakeComparison(take, after, "no original", reason=str(error))
    compared = compare(take, after, tolerance)
    if compared.verdict == "different" and not compared.reason and seed is None and take.request.temperature > 0.0:
        reason = "the run has no seed" if take.seed is None else "the backend does not support seeds"
        return dataclasses.replace(compared, reason=f"{reason}: sampling is random")
    return compared


def _notes(table: TakeTable, comparisons: Sequence[TakeComparison], backend: Backend) -> Iterable[str]:
    declared = backend.capabilities
    originals = sorted({take.backend for take in table.takes if take.fingerprint != declared.fingerprint})
    if originals:
        yield f"The run was made by {', '.join(originals)}; {declared.name} is another backend, or has other weights."
    here = device_type(declared.device)
    elsewhere = {device_type(take.device) for take in table.takes if take.fingerprint == declared.fingerprint}
    elsewhere = set() if here == "remote" else elsewhere - {here, "remote"}  # the device of a service is unknown
    if elsewhere:
        names = " and ".join(sorted(elsewhere))
        yield f"The run was made on {names}; {here} rounds differently, so a few takes may have other codes."
    broken = sum(
        item.verdict != "identical"
        and item.before.fingerprint == declared.fingerprint
        and device_type(item.before.device) not in elsewhere
        for item in comparisons
    )
    if declared.seed == "exact" and broken:
        yield f"{declared.name} declares exact seeds, and {broken} of its takes differ."
    if table.failures:
        yield f"{len(table.failures)} failures of the run were not retried."


def _cents(old: Digest, new: Digest) -> float | None:
    if old.f0 is None or new.f0 is None:
        return 0.0 if old.f0 is new.f0 else None
    return 1200.0 * math.log2(new.f0 / old.f0)


def _mel_distance(old: Clip, new: Clip) -> float:
    old_mel, new_mel = mel(old).db, mel(new).db
    floor = max(float(old_mel.max()), float(new_mel.max())) - _RANGE_DB
    frames = min(old_mel.shape[1], new_mel.shape[1])
    gap = np.abs(np.maximum(old_mel[:, :frames], floor) - np.maximum(new_mel[:, :frames], floor))
    return float(gap.mean())

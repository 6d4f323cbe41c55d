"""Replay: a run done again, and each take compared with what it was; and what a backend's seeds are worth."""

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
from voicelab.takes.loading import run_table
from voicelab.takes.table import TakeTable

Verdict = Literal["identical", "within tolerance", "different", "failed", "no original"]
"""``failed``: the backend raised an error. ``no original``: the archived sound is gone or changed."""

_THREADS: Final = 4
# Below the loudest; what is fainter is the noise of a codec, which no ear compares.
_RANGE_DB: Final = 60.0
# Long enough that two renderings with different seeds cannot agree by chance.
_SEED: Final = 7
_SEED_TEXT: Final = "The birch canoe slid on the smooth planks."


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How far a take may be from what it was: duration in seconds, level in dB, pitch in cents, mel spectra in dB.

    The first three are those of ``voicelab.audio.analysis.digest``; ``mel_db`` bounds ``TakeComparison.mel``.
    """

    seconds: float = 0.05
    db: float = 1.5
    cents: float = 50.0
    mel_db: float = 3.0


@dataclass(frozen=True, slots=True)
class TakeComparison:
    """A take, what it became, and by how much they differ; the differences are new minus old.

    ``duration`` is in seconds, ``level`` in dB, ``f0`` in cents, ``mel`` the mean absolute difference in dB
    of 80 mel bands frame by frame, down to 60 dB below the loudest. They are 0 for identical takes, and
    None where they are not known; ``reason`` says why.
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
    """What a backend says of its seeds, and what was seen. ``honest`` when they are no worse than it says."""

    declared: SeedSupport
    observed: SeedSupport
    reason: str = ""

    @property
    def honest(self) -> bool:
        """Whether the claim holds."""
        order: tuple[SeedSupport, ...] = ("unknown", "none", "best-effort", "exact")
        return order.index(self.observed) >= order.index(self.declared)


@dataclass(frozen=True, slots=True)
class ReplayReport:
    """A run done again, take by take in the order of the run, and notes about the whole.

    ``problems`` say why nothing can be concluded of the whole run: the folder is no full record of it, or archived
    sounds are gone or changed.
    """

    comparisons: tuple[TakeComparison, ...]
    notes: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def counts(self) -> dict[Verdict, int]:
        """How many takes came to each verdict."""
        counted = Counter(item.verdict for item in self.comparisons)
        return {verdict: counted[verdict] for verdict in get_args(Verdict)}

    @property
    def same(self) -> bool:
        """Whether the record of the run is complete and every take is identical or within tolerance."""
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
    """Do a run again and compare take by take.

    Each take is asked for with the seed that spoke, where that is known and ``backend`` takes seeds; nothing
    comes from a cache unless ``backend`` has one.

    Args:
        table: the takes, or the folder of their run.
        backend: who speaks now.
        tolerance: what still counts as the same; its own defaults when None.
        threads: takes asked for at once, 1 or more.
        progress: called with each comparison as it is ready, from several threads.

    Raises StoreError when the run cannot be read. What the backend raises becomes the verdict "failed"; a take
    whose archived sound is gone or changed has the verdict "no original", and is named in ``problems``.
    """
    if threads < 1:
        raise RequestInvalid.of("threads", "Input should be 1 or more", in_="query")
    table = table if isinstance(table, TakeTable) else run_table(read_run(table))
    bounds = tolerance or Tolerance()

    def again(take: Take) -> TakeComparison:
        compared = _again(take, backend, bounds)
        if progress is not None:
            progress(compared)
        return compared

    with ThreadPoolExecutor(threads, thread_name_prefix="voicelab-replay") as pool:
        comparisons = tuple(pool.map(again, table.takes))
    lost = [item for item in comparisons if item.verdict == "no original"]
    recorded = () if table.run is None else table.run.problems
    problems = (*recorded, *(f"Take {item.before.key[:12]}… has no original: {item.reason}" for item in lost))
    return ReplayReport(comparisons, tuple(_notes(table, comparisons, backend)), problems)


def compare(before: Take, after: Take, tolerance: Tolerance | None = None) -> TakeComparison:
    """Compare a take with what it became. Audio that is missing or damaged makes "different", with the reason."""
    same = TakeComparison(before, after, "identical", 0.0, 0.0, 0.0, 0.0)
    if before.digest == after.digest:
        return same
    try:
        old, new = before.clip(), after.clip()
    except (StoreError, AudioError) as error:
        reason = f"the audio is not the same, and cannot be compared: {error}"
        return TakeComparison(before, after, "different", reason=reason)
    if old == new:
        return same  # other bytes, the same samples: another encoder's header
    was, now = digest(old), digest(new)
    bounds = tolerance or Tolerance()
    spectral = _mel_distance(old, new)
    near = was.close_to(now, **dataclasses.asdict(bounds))
    return TakeComparison(
        before,
        after,
        "within tolerance" if near and spectral <= bounds.mel_db else "different",
        duration=new.duration - old.duration,
        level=0.0 if was.level == now.level else now.level - was.level,  # two silences have -inf
        f0=_cents(was, now),
        mel=spectral,
    )


def check_seed_claim(backend: Backend, *, call: Call | None = None, times: int = 2) -> SeedCheck:
    """Check what a backend declares of its seeds by speaking ``call`` ``times`` times, and once with another seed.

    Seeds are exact when all audio of one seed is the same to the byte, and best-effort when it is within
    the Tolerance; a seed that changes nothing is none at all. A cache is passed by: it would agree with itself.
    Raises what the backend raises, and RequestInvalid for fewer than 2 times.
    """
    if times < 2:
        raise RequestInvalid.of("times", "Input should be 2 or more", in_="query")
    while isinstance(backend, CachedBackend):
        backend = backend.backend
    declared = backend.capabilities.seed
    if declared == "none":
        return SeedCheck(declared, "none", "it takes no seed")
    call = call or Call(TTSRequest(text=_SEED_TEXT, format="wav", temperature=1.0))
    seed = _SEED if call.seed is None else call.seed
    first, second = (dataclasses.replace(call, seed=each) for each in (seed, (seed + 1) % MAX_SEED))
    takes = [backend.synthesize(first).take(number) for number in range(times)]
    other = backend.synthesize(second).take()
    verdicts = {compare(takes[0], take).verdict for take in takes[1:]}
    if compare(takes[0], other).verdict == "identical":
        return SeedCheck(declared, "none", f"seeds {seed} and {seed + 1} give the same audio")
    if verdicts == {"identical"}:
        return SeedCheck(declared, "exact")
    reason = f"{times} renderings with seed {seed} are not all the same"
    return SeedCheck(declared, "none" if "different" in verdicts else "best-effort", reason)


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
        reason = "the run has no seed" if take.seed is None else "the backend takes no seed"
        return dataclasses.replace(compared, reason=f"{reason}: by chance")
    return compared


def _notes(table: TakeTable, comparisons: Sequence[TakeComparison], backend: Backend) -> Iterable[str]:
    now = backend.capabilities
    others = sorted({take.backend for take in table.takes if take.fingerprint != now.fingerprint})
    if others:
        yield f"The run was made by {', '.join(others)}; {now.name} is another backend, or has other weights."
    broken = sum(item.verdict != "identical" and item.before.fingerprint == now.fingerprint for item in comparisons)
    if now.seed == "exact" and broken:
        yield f"{now.name} declares exact seeds, and {broken} takes of its own did not come out the same."
    if table.failures:
        yield f"{len(table.failures)} takes had failed in the run; they were not tried again."


def _cents(was: Digest, now: Digest) -> float | None:
    if was.f0 is None or now.f0 is None:
        return 0.0 if was.f0 is now.f0 else None
    return 1200.0 * math.log2(now.f0 / was.f0)


def _mel_distance(old: Clip, new: Clip) -> float:
    was, now = mel(old).db, mel(new).db
    floor = max(float(was.max()), float(now.max())) - _RANGE_DB
    frames = min(was.shape[1], now.shape[1])
    gap = np.abs(np.maximum(was[:, :frames], floor) - np.maximum(now[:, :frames], floor))
    return float(gap.mean())

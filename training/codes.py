"""Codes for everything that was rendered: what the language model is trained on, a few megabytes an hour.

An utterance's speaker is its place in `PEOPLE`. Each utterance is there as it was said, and once for every one of `WARPS`,
played slower or faster with its pitch and formants: other speakers, who cost no rendering. The folder's shards make a file
each, written whole or not at all; empty ``codes`` for a new codec.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soxr
import torch
from numpy.typing import NDArray

from training import common, plan
from training.crops import CONFIG, RATE, Said, Speech, load_speech, shards
from training.spoil import spoil
from voicelab.engine.pointer.codec import Codec
from voicelab.engine.pointer.front import flags_of
from voicelab.engine.pointer.lm import speaker_statistics
from voicelab.engine.pointer.phones import ALL_PHONES

PEOPLE = tuple(name for part in plan.PARTS for name, _ in plan.speakers(part.name))
"""Every speaker of the plan, in its order."""
WARPS = (0.92, 0.96, 1.04, 1.08)
"""How much longer warped speech is; the speaker's number goes up by as many as there are `PEOPLE` for each."""
SPOILED_EVERY = 8
"""One utterance in so many tells its speaker as a spoiled reference would."""


@dataclass(frozen=True)
class Encoded:
    """One utterance as the language model sees it."""

    speaker: int
    phones: NDArray[np.int16]
    flags: NDArray[np.int16]
    """0 inside a word, 1 its first phone, 2 its last, 3 its only one, or a pause."""
    codes: NDArray[np.int16]
    """(frames, codebooks)."""
    at: NDArray[np.int16]
    """(frames,) the phone spoken at the middle of each frame."""
    statistics: NDArray[np.float32]
    """(STATISTICS * latent,) what the engine would make of it as a reference; for some, of a spoiled copy."""


def codes_of(codec: Codec, samples: NDArray[np.float32]) -> NDArray[np.int16]:
    """(frames, codebooks) of audio at the codec's rate."""
    device = codec.decoder.leave.weight.device
    return codec.encode(torch.from_numpy(samples).to(device)[None])[0].cpu().numpy().astype(np.int16)


def encode(codec: Codec, speech: Said | Speech, speaker: str, spoiled: bool, warp: int = 0) -> Encoded:
    """One utterance, as it was said or by a warp (from 1 on); `spoiled`: its speaker is told as by a spoiled recording."""
    audio = speech.samples.astype(np.float32) / np.float32(32768)
    longer = 1.0 if warp == 0 else WARPS[warp - 1]
    if warp:
        audio = soxr.resample(audio, RATE, RATE * longer)
        audio = np.pad(audio, (0, -audio.size % CONFIG.hop))
    said = codes_of(codec, audio)
    reference = codes_of(codec, spoil(audio, RATE, seed=audio.size)) if spoiled else said
    ends = np.array([p.end for p in speech.phones]) * longer
    names = [p.name for p in speech.phones]
    middles = (np.arange(said.shape[0]) + 0.5) * CONFIG.hop / RATE
    return Encoded(
        PEOPLE.index(speaker) + warp * len(PEOPLE),
        np.array([ALL_PHONES.index(name) for name in names], dtype=np.int16),
        np.array(flags_of(names, [p.first for p in speech.phones]), dtype=np.int16),
        said,
        np.minimum(np.searchsorted(ends, middles), len(names) - 1).astype(np.int16),
        statistics_of(codec, reference),
    )


def statistics_of(codec: Codec, codes: NDArray[np.int16]) -> NDArray[np.float32]:
    """(STATISTICS * latent,) what `codes` (frames, codebooks) tell of their speaker."""
    ids = torch.from_numpy(codes.astype(np.int64)).to(codec.decoder.leave.weight.device)
    found: NDArray[np.float32] = speaker_statistics(codec.quantizer.decode(ids)).cpu().numpy()
    return found


def encode_all(folder: Path, codec: Codec) -> str:
    """Writes ``folder/codes`` of every shard that was measured; what is there is kept."""
    (folder / "codes").mkdir(exist_ok=True)
    codec = codec.to(common.DEVICE)
    frames = 0
    for name in shards(folder):
        path = folder / "codes" / name
        if not path.exists():
            said = list(enumerate(load_speech(folder, name)))
            rows = [
                encode(codec, s, s.measured.meta["speaker"], i % SPOILED_EVERY == 0, w)
                for w in range(len(WARPS) + 1)
                for i, s in said
            ]
            save(path, rows)
            print(path.stem, sum(r.at.size for r in rows), "frames", flush=True)
        with np.load(path) as z:
            frames += int(z["frame_ends"][-1])
    return f"{frames * CONFIG.hop / RATE / 3600:.2f} hours"


def save(path: Path, encoded: list[Encoded]) -> None:
    """One file: everything joined, with where each utterance ends."""
    part = path.with_suffix(".part.npz")
    np.savez_compressed(
        part,
        speaker=np.array([e.speaker for e in encoded]),
        phones=np.concatenate([e.phones for e in encoded]),
        flags=np.concatenate([e.flags for e in encoded]),
        phone_ends=np.cumsum([e.phones.size for e in encoded]),
        codes=np.concatenate([e.codes for e in encoded]),
        at=np.concatenate([e.at for e in encoded]),
        statistics=np.stack([e.statistics for e in encoded]).astype(np.float16),
        frame_ends=np.cumsum([e.at.size for e in encoded]),
    )
    part.rename(path)


def files(folder: Path) -> list[Path]:
    """What was encoded in a folder, in order."""
    return sorted(p for p in (folder / "codes").glob("*.npz") if ".part" not in p.name)


def load(path: Path) -> list[Encoded]:
    """What `save` wrote."""
    with np.load(path) as z:
        per_phone = [np.split(z[k], z["phone_ends"][:-1]) for k in ("phones", "flags")]
        per_frame = [np.split(z[k], z["frame_ends"][:-1]) for k in ("codes", "at")]
        rows = zip(z["speaker"], *per_phone, *per_frame, z["statistics"].astype(np.float32), strict=True)
        return [Encoded(int(s), *rest) for s, *rest in rows]

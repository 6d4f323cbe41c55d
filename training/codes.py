"""Codes for everything that was rendered: what the language model is trained on, a few tens of megabytes."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from training import codec as codec_training
from training import mandarin
from training.render import Utterance, load_shard
from training.speakers import all_speakers
from training.spoil import spoil
from voicelab.engine.pointer.codec import Codec
from voicelab.engine.pointer.front import flags_of
from voicelab.engine.pointer.lm import speaker_statistics
from voicelab.engine.pointer.phones import ALL_PHONES

GROUP = 8
"""Utterances encoded at once, after sorting by length."""
SPOILED_EVERY = 8
"""One utterance in so many also tells its speaker as a spoiled reference would."""


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


def encode_shard(codec: Codec, utterances: list[Utterance]) -> list[Encoded]:
    """Encodes a shard, similar lengths together."""
    speakers = {s.id: s for s in (*all_speakers(), *mandarin.speakers())}
    hop, rate = codec.config.hop, codec.config.sample_rate
    audio = [u.audio(speakers[u.speaker], rate) for u in utterances]
    order = sorted(range(len(audio)), key=lambda i: audio[i].size)
    statistics = _statistics(codec, audio)
    out: dict[int, Encoded] = {}
    for start in range(0, len(order), GROUP):
        group = order[start : start + GROUP]
        frames = [-(-audio[i].size // hop) for i in group]
        stacked = np.zeros((len(group), max(frames) * hop), dtype=np.float32)
        for row, i in enumerate(group):
            stacked[row, : audio[i].size] = audio[i]
        codes = codec.encode(torch.from_numpy(stacked)).numpy().astype(np.int16)
        for row, i in enumerate(group):
            u, n = utterances[i], frames[row]
            middles = (np.arange(n) + 0.5) * hop / rate
            ends = np.array([p.end for p in u.phones])
            names = [p.name for p in u.phones]
            out[i] = Encoded(
                u.speaker,
                np.array([ALL_PHONES.index(p) for p in names], dtype=np.int16),
                np.array(flags_of(names, [p.first for p in u.phones]), dtype=np.int16),
                codes[row, :n],
                np.minimum(np.searchsorted(ends, middles), len(names) - 1).astype(np.int16),
                statistics.get(i, statistics_of(codec, codes[row, :n])),
            )
    return [out[i] for i in range(len(utterances))]


def statistics_of(codec: Codec, codes: NDArray[np.int16]) -> NDArray[np.float32]:
    """(STATISTICS * latent,) what `codes` (frames, codebooks) tell of their speaker."""
    ids = torch.from_numpy(codes.astype(np.int64)).to(codec.decoder.leave.weight.device)
    found: NDArray[np.float32] = speaker_statistics(codec.quantizer.decode(ids)).cpu().numpy()
    return found


def _statistics(codec: Codec, audio: list[NDArray[np.float32]]) -> dict[int, NDArray[np.float32]]:
    """Of spoiled copies of some of the utterances."""
    out = {}
    for i in range(0, len(audio), SPOILED_EVERY):
        rough = torch.from_numpy(spoil(audio[i], codec.config.sample_rate, seed=audio[i].size))[None]
        out[i] = statistics_of(codec, codec.encode(rough)[0].numpy().astype(np.int16))
    return out


def _encode_file(checkpoint: Path, shard: Path, path: Path) -> str:
    torch.set_num_threads(1)
    save(path, encode_shard(codec_training.load(checkpoint), load_shard(shard)))
    return path.name


def encode_all(folder: Path, checkpoint: Path, jobs: int = 2) -> None:
    """Writes ``folder/codes``, one file a shard; what is there is kept, so empty the folder for a new codec."""
    (folder / "codes").mkdir(exist_ok=True)
    shards = [p for name in ("shards", "shards-zh") for p in sorted((folder / name).glob("????.npz"))]
    work = [(p, folder / "codes" / p.name) for p in shards]
    # Not forked: torch has threads by now.
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        runs = [pool.submit(_encode_file, checkpoint, shard, path) for shard, path in work if not path.exists()]
        for run in runs:
            print(run.result(), flush=True)


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

"""Codes for the natural corpus, in the form that the language models are trained on (`codes.Encoded`).

An utterance's speaker is its place in `PEOPLE`. The folder's shards make a file each, written whole or not at all; empty
``codes`` for a new codec.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from training import codes, common, natural_corpus
from training.kokoro import RATE
from training.natural_codec import CONFIG, Speech, load, shards
from training.spoil import spoil
from voicelab.engine.pointer.codec import Codec
from voicelab.engine.pointer.front import flags_of
from voicelab.engine.pointer.phones import ALL_PHONES

PEOPLE = tuple(name for part in natural_corpus.PARTS for name, _ in natural_corpus.speakers(part.name))
"""Every speaker of the plan, in its order."""


def codes_of(codec: Codec, samples: NDArray[np.float32]) -> NDArray[np.int16]:
    """(frames, codebooks) of audio at the teacher's rate."""
    device = codec.decoder.leave.weight.device
    return codec.encode(torch.from_numpy(samples).to(device)[None])[0].cpu().numpy().astype(np.int16)


def encode(codec: Codec, speech: Speech, rough: bool) -> codes.Encoded:
    """One utterance; `rough`: its speaker is told as a spoiled recording would tell it."""
    audio = speech.samples.astype(np.float32) / np.float32(32768)
    said = codes_of(codec, audio)
    reference = codes_of(codec, spoil(audio, RATE, seed=audio.size)) if rough else said
    ends = np.array([p.end for p in speech.phones])
    names = [p.name for p in speech.phones]
    middles = (np.arange(said.shape[0]) + 0.5) * CONFIG.hop / RATE
    return codes.Encoded(
        PEOPLE.index(speech.measured.meta["speaker"]),
        np.array([ALL_PHONES.index(name) for name in names], dtype=np.int16),
        np.array(flags_of(names, [p.first for p in speech.phones]), dtype=np.int16),
        said,
        np.minimum(np.searchsorted(ends, middles), len(names) - 1).astype(np.int16),
        codes.statistics_of(codec, reference),
    )


def encode_all(folder: Path, codec: Codec) -> str:
    """Writes ``folder/codes`` of every shard that was measured; what is there is kept."""
    (folder / "codes").mkdir(exist_ok=True)
    codec = codec.to(common.DEVICE)
    frames = 0
    for name in shards(folder):
        path = folder / "codes" / name
        if not path.exists():
            speeches = load(folder, name)
            rows = [encode(codec, s, i % codes.SPOILED_EVERY == 0) for i, s in enumerate(speeches)]
            codes.save(path, rows)
            print(path.stem, sum(r.at.size for r in rows), "frames", flush=True)
        frames += int(np.load(path)["frame_ends"][-1])
    return f"{frames * CONFIG.hop / RATE / 3600:.2f} hours"

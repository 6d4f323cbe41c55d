"""What took hours is kept in the repository: of every rendered shard what the language models learn from, and no more.

A shard is one safetensors file in `FOLDER`, some .8 MB an hour of speech and a third of that again for warped copies: codes
in nine bits, phones with their places, how many frames each lasts. The codec is frozen: its digest is in every file, and
statistics of speakers are computed from the codes when a file is read. Some utterances of every speaker have a few
seconds of their audio beside them, in Opus, for the encoder that hears through telephones and rooms (`listen`).
"""

from __future__ import annotations

import hashlib
import io
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import av
import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from training import codes, crops
from training.kokoro import RATE
from training.plan import Request
from training.understood import understood
from training.world import trimmed
from voicelab.engine.pointer.codec import Codec

FOLDER = Path(__file__).parent / "corpus"
BITS = 9
"""Of a code: its books have 512 entries."""
WARPED_EVERY = 3
"""One utterance in so many is there warped too: all of them would be five times as large."""
CLIPS = {"blend": 1, "stock": 8, "mandarin": 8}
"""How many of a speaker's first utterances keep some audio, by the plan's part."""
CLIP_S, CLIP_BITS = 3.5, 16_000
"""Seconds of such audio, and its bits a second."""


class DamagedShard(ValueError):
    """A kept file that cannot be read, or was made by another codec; the message names it."""


@dataclass(frozen=True)
class Utterance:
    """One utterance as it is kept."""

    number: int
    """Of the plan."""
    encoded: codes.Encoded
    spoiled: bool
    """Whether its statistics are those of a spoiled copy, which the codes do not tell."""
    clip: bytes = b""
    """Ogg Opus of its first seconds; empty for most."""


def digest_of(codec: Codec) -> str:
    """SHA-256 of what makes and reads codes: encoder and codebooks, in half precision as they are stored."""
    digest = hashlib.sha256()
    for part in (codec.encoder, codec.quantizer):
        for name, tensor in sorted(part.state_dict().items()):
            digest.update(name.encode())
            digest.update(tensor.detach().cpu().half().numpy().tobytes())
    return digest.hexdigest()


def packed(values: NDArray[np.int16]) -> NDArray[np.uint8]:
    """Numbers below 2**`BITS`, of any shape, one behind the other."""
    wide = values.astype(">u2").ravel()[:, None].view(np.uint8)
    return np.packbits(np.unpackbits(wide, axis=1)[:, -BITS:])


def unpacked(data: NDArray[np.uint8], count: int) -> NDArray[np.int16]:
    """(count,) numbers that `packed` wrote."""
    bits = np.unpackbits(data, count=count * BITS).reshape(count, BITS)
    values: NDArray[np.int16] = (bits @ (1 << np.arange(BITS - 1, -1, -1))).astype(np.int16)
    return values


def to_opus(samples: NDArray[np.float32], rate: int) -> bytes:
    """Mono speech in [-1, 1] as Ogg Opus of `CLIP_BITS`."""
    out = io.BytesIO()
    with av.open(out, "w", format="ogg") as file:
        stream = file.add_stream("libopus", rate=rate, layout="mono", options={"application": "voip"})
        stream.bit_rate = CLIP_BITS
        frame = av.AudioFrame.from_ndarray(
            np.round(samples[None] * 32767).astype(np.int16), format="s16", layout="mono"
        )
        frame.sample_rate = rate
        for packet in (*stream.encode(frame), *stream.encode(None)):
            file.mux(packet)
    return out.getvalue()


# ---- files


def _lasting(encoded: codes.Encoded) -> NDArray[np.uint16]:
    """(phones,) frames of each phone."""
    return np.bincount(encoded.at, minlength=encoded.phones.size).astype(np.uint16)


def save(path: Path, rows: Sequence[Utterance], codec: str, plan: str) -> None:
    """Writes a shard whole or not at all; `codec` and `plan` are digests of what made it."""
    speakers = sorted({codes.PEOPLE[r.encoded.speaker % len(codes.PEOPLE)] for r in rows})
    ids = [r.encoded.speaker for r in rows]
    names = [codes.PEOPLE[i % len(codes.PEOPLE)] for i in ids]
    arrays: dict[str, NDArray[Any]] = {
        "number": np.array([r.number for r in rows], np.int32),
        "speaker": np.array([speakers.index(name) for name in names], np.uint16),
        "warp": np.array([i // len(codes.PEOPLE) for i in ids], np.uint8),
        "spoiled": np.array([r.spoiled for r in rows], np.uint8),
        "phone_counts": np.array([r.encoded.phones.size for r in rows], np.uint16),
        "phones": np.concatenate([packed(r.encoded.phones) for r in rows]),
        "flags": np.concatenate([r.encoded.flags for r in rows]).astype(np.uint8),
        "frames": np.concatenate([np.bincount(r.encoded.at, minlength=r.encoded.phones.size) for r in rows]).astype(
            np.uint16
        ),
        "codes": np.concatenate([packed(r.encoded.codes) for r in rows]),
        "statistics": np.stack([r.encoded.statistics for r in rows if r.spoiled]).astype(np.float16)
        if any(r.spoiled for r in rows)
        else np.zeros((0, 0), np.float16),
        "clip_sizes": np.array([len(r.clip) for r in rows], np.uint32),
        "clips": np.frombuffer(b"".join(r.clip for r in rows), np.uint8),
    }
    about = {"codec": codec, "plan": plan, "books": rows[0].encoded.codes.shape[1], "speakers": speakers}
    part = path.with_suffix(".part")
    save_file(arrays, part, metadata={"voicelab": json.dumps(about)})
    part.rename(path)


def _read(path: Path) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    try:
        with safe_open(path, "np") as file:
            about: dict[str, Any] = json.loads(file.metadata()["voicelab"])
            return about, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
    except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
        raise DamagedShard(f"{path}: it cannot be read: {error}") from error


def load(path: Path, codec: Codec) -> list[codes.Encoded]:
    """What the language models learn from in a file. Raises DamagedShard where another codec made it."""
    about, z = _read(path)
    if about["codec"] != digest_of(codec):
        raise DamagedShard(f"{path}: another codec made it; the codec of kept shards is frozen")
    rows, phone_at, code_at, flag_at, spoiled = [], 0, 0, 0, iter(z["statistics"].astype(np.float32))
    for which, count in enumerate(z["phone_counts"].tolist()):
        size = -(-count * BITS // 8)
        phones = unpacked(z["phones"][phone_at : phone_at + size], count)
        lasting = z["frames"][flag_at : flag_at + count].astype(np.int64)
        total = int(lasting.sum()) * about["books"]
        length = -(-total * BITS // 8)
        said = unpacked(z["codes"][code_at : code_at + length], total).reshape(-1, about["books"])
        statistics = next(spoiled) if z["spoiled"][which] else codes.statistics_of(codec, said)
        speaker = codes.PEOPLE.index(about["speakers"][int(z["speaker"][which])])
        rows.append(
            codes.Encoded(
                speaker + int(z["warp"][which]) * len(codes.PEOPLE),
                phones,
                z["flags"][flag_at : flag_at + count].astype(np.int16),
                said,
                np.repeat(np.arange(count), lasting).astype(np.int16),
                statistics,
            )
        )
        phone_at, code_at, flag_at = phone_at + size, code_at + length, flag_at + count
    return rows


def clips(path: Path) -> list[tuple[str, bytes]]:
    """(speaker, Ogg Opus) of a file's utterances that have some audio."""
    about, z = _read(path)
    ends = np.cumsum(z["clip_sizes"].astype(np.int64))
    pairs = zip(z["speaker"].tolist(), ends.tolist(), z["clip_sizes"].tolist(), strict=True)
    data = z["clips"].tobytes()
    return [(about["speakers"][who], data[end - size : end]) for who, end, size in pairs if size]


def files(folder: Path = FOLDER) -> list[Path]:
    """The kept files, in order."""
    return sorted(folder.glob("?????.safetensors"))


# ---- making them


def digest_of_plan(requests: Iterable[Request]) -> str:
    """SHA-256 of what was asked."""
    return hashlib.sha256("\n".join(map(repr, requests)).encode()).hexdigest()


def first_utterances(requests: Sequence[Request]) -> set[int]:
    """Numbers of the utterances that keep some audio."""
    counts: Counter[str] = Counter()
    chosen = set()
    for request in requests:
        if counts[request.speaker] < CLIPS[request.part]:
            counts[request.speaker] += 1
            chosen.add(request.number)
    return chosen


def keep_shard(shard: Path, path: Path, codec: Codec, requests: Sequence[Request], heard: set[int]) -> str:
    """Keeps what was understood of a rendered shard; `heard` are the numbers that keep some audio."""
    rows = []
    for rendering in understood(shard):
        request, speech = rendering.request, crops.said_by(rendering)
        spoiled = request.number % codes.SPOILED_EVERY == 0
        clip = b""
        if request.number in heard:
            audio, _ = trimmed(rendering)
            clip = to_opus(np.clip(audio[: round(CLIP_S * RATE)], -1, 1).astype(np.float32), RATE)
        rows.append(Utterance(request.number, codes.encode(codec, speech, request.speaker, spoiled), spoiled, clip))
        if request.number % WARPED_EVERY == 0:
            warp = 1 + request.number // WARPED_EVERY % len(codes.WARPS)
            rows.append(Utterance(request.number, codes.encode(codec, speech, request.speaker, False, warp), False))
    save(path, rows, digest_of(codec), digest_of_plan(requests))
    return f"{path.name}: {len(rows)} rows, {path.stat().st_size} bytes"


def keep_all(folder: Path, codec: Codec, requests: Sequence[Request], per_shard: int, kept: Path = FOLDER) -> str:
    """Keeps every shard of ``folder/speech`` that was listened to; what is there stays."""
    kept.mkdir(parents=True, exist_ok=True)
    heard = first_utterances(requests)
    torch.set_grad_enabled(False)
    for verdicts in sorted((folder / "speech").glob("?????.heard.jsonl")):
        name = verdicts.name.split(".")[0]
        path = kept / f"{name}.safetensors"
        if not path.exists():
            at = int(name) * per_shard
            shard = verdicts.with_name(f"{name}.npz")
            print(keep_shard(shard, path, codec, requests[at : at + per_shard], heard), flush=True)
    total = files(kept)
    return f"{len(total)} shards, {sum(p.stat().st_size for p in total)} bytes"

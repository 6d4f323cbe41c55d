"""What took hours is kept in the repository: of every rendered shard what the language models learn from, and no more.

A shard is one safetensors file in `FOLDER`: codes in nine bits; phones, their places in words and how many frames each
lasts, deflated. The codec is frozen: a digest of its codebooks, which are what codes mean, is in every file, and speakers'
statistics are computed from the codes when a file is read. Some utterances of every speaker have a few seconds of their
audio beside them, in Opus, for the encoder that learns to hear through telephones and rooms (`listen`).
"""

from __future__ import annotations

import hashlib
import io
import json
import zlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import av
import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from training.codes import PEOPLE, WARPS, Encoded, encode, said_by, statistics_of
from training.kokoro import RATE
from training.plan import Request
from training.trim import trimmed
from training.understood import understood
from voicelab.engine.pointer.codec import Codec

FOLDER = Path(__file__).parent / "corpus"
BITS = 9
"""Of a code: its books have 512 entries."""
WARPED_EVERY = 4
"""One utterance in so many is there warped too, by one of `WARPS`: it cannot be done later, since the audio goes, and all
utterances by all warps would have five times the bytes."""
SPOILED_EVERY = 8
"""One utterance in so many tells its speaker as a spoiled reference would."""
CLIPS = {"blend": 1, "stock": 8, "mandarin": 8}
"""How many of a speaker's first utterances keep some audio, by the plan's part."""
CLIP_S, CLIP_BITS = 3.5, 16_000
"""Seconds of such audio, and its bits a second."""


class DamagedShard(ValueError):
    """A kept file that cannot be read, or was made by another codec or from another plan; the message names it."""


@dataclass(frozen=True)
class Utterance:
    """One utterance as it is kept."""

    number: int
    """Of the plan."""
    encoded: Encoded
    spoiled: bool = False
    """Whether its statistics are those of a spoiled copy, which the codes do not tell."""
    clip: bytes = b""
    """Ogg Opus of its first seconds; empty for most."""


def digest_of(codec: Codec) -> str:
    """SHA-256 of what codes mean: the codebooks, in half precision as they are stored.

    Encoder and decoder may learn to hear and to speak better; codes stay what they are.
    """
    digest = hashlib.sha256()
    for table in codec.quantizer.tables:
        digest.update(table.detach().cpu().half().numpy().tobytes())
    return digest.hexdigest()


def packed(values: NDArray[np.int16]) -> NDArray[np.uint8]:
    """Numbers below 2**`BITS`, of any shape, one behind the other: (values * BITS / 8,) bytes."""
    wide = values.astype(">u2").ravel()[:, None].view(np.uint8)
    return np.packbits(np.unpackbits(wide, axis=1)[:, -BITS:])


def unpacked(data: NDArray[np.uint8], count: int) -> NDArray[np.int16]:
    """(count,) numbers that `packed` wrote."""
    bits = np.unpackbits(data, count=count * BITS).reshape(count, BITS)
    values: NDArray[np.int16] = (bits @ (1 << np.arange(BITS - 1, -1, -1))).astype(np.int16)
    return values


def deflated(parts: Iterable[NDArray[Any]]) -> NDArray[np.uint8]:
    """Numbers below 65,536 behind one another, in as few bytes as zlib takes."""
    return np.frombuffer(zlib.compress(np.concatenate(list(parts)).astype("<u2").tobytes(), 9), np.uint8)


def inflated(data: NDArray[np.uint8]) -> NDArray[np.int16]:
    """The numbers that `deflated` wrote."""
    return np.frombuffer(zlib.decompress(data.tobytes()), "<u2").astype(np.int16)


def to_opus(samples: NDArray[np.float64]) -> bytes:
    """Mono speech (samples,) in [-1, 1] at 24 kHz as Ogg Opus of `CLIP_BITS`."""
    out = io.BytesIO()
    with av.open(out, "w", format="ogg") as file:
        stream = file.add_stream("libopus", rate=RATE, layout="mono", options={"application": "voip"})
        stream.bit_rate = CLIP_BITS
        frame = av.AudioFrame.from_ndarray(
            np.round(np.clip(samples, -1, 1)[None] * 32767).astype(np.int16), format="s16", layout="mono"
        )
        frame.sample_rate = RATE
        for packet in (*stream.encode(frame), *stream.encode(None)):
            file.mux(packet)
    return out.getvalue()


# ---- files


def save(path: Path, rows: Sequence[Utterance], codec: str, plan: str) -> None:
    """Writes a shard whole or not at all; `codec` and `plan` are digests of what made it."""
    encoded = [row.encoded for row in rows]
    names = [PEOPLE[e.speaker % len(PEOPLE)] for e in encoded]
    speakers = sorted(set(names))
    spoiled = [row.encoded.statistics for row in rows if row.spoiled]
    arrays: dict[str, NDArray[Any]] = {
        "number": np.array([row.number for row in rows], np.int32),
        "speaker": np.array([speakers.index(name) for name in names], np.uint16),
        "warp": np.array([e.speaker // len(PEOPLE) for e in encoded], np.uint8),
        "spoiled": np.array([row.spoiled for row in rows], np.uint8),
        "phone_counts": np.array([e.phones.size for e in encoded], np.uint16),
        "phones": deflated(e.phones for e in encoded),
        "flags": deflated(e.flags for e in encoded),
        "frames": deflated(np.bincount(e.at, minlength=e.phones.size) for e in encoded),
        "codes": packed(np.concatenate([e.codes for e in encoded])),
        "statistics": np.array(spoiled, np.float16),
        "clip_sizes": np.array([len(row.clip) for row in rows], np.uint32),
        "clips": np.frombuffer(b"".join(row.clip for row in rows), np.uint8),
    }
    about = {"codec": codec, "plan": plan, "books": encoded[0].codes.shape[1], "speakers": speakers}
    part = path.with_suffix(".part")
    save_file(arrays, part, metadata={"voicelab": json.dumps(about)})
    part.rename(path)


def _read(path: Path, *names: str) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """A file's metadata, and its tensors of these `names`."""
    try:
        with safe_open(path, "np") as file:
            about: dict[str, Any] = json.loads(file.metadata()["voicelab"])
            return about, {name: file.get_tensor(name) for name in names}
    except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
        raise DamagedShard(f"{path}: it cannot be read: {error}") from error


def load(path: Path, codec: Codec) -> list[Encoded]:
    """What the language models learn from in a file.

    Raises:
        DamagedShard: it cannot be read, or another codec made it.
    """
    rows = ("speaker", "warp", "spoiled", "phone_counts", "phones", "flags", "frames", "codes", "statistics")
    about, z = _read(path, *rows)
    if about["codec"] != digest_of(codec):
        raise DamagedShard(f"{path}: another codec made it; the codec of kept shards is frozen")
    ends = np.cumsum(z["phone_counts"].astype(np.int64))[:-1]
    phones, flags, frames = (np.split(inflated(z[name]), ends) for name in ("phones", "flags", "frames"))
    lengths = np.array([lasting.sum() for lasting in frames], np.int64)
    books = about["books"]
    codes = np.split(unpacked(z["codes"], int(lengths.sum()) * books).reshape(-1, books), np.cumsum(lengths)[:-1])
    spoiled = iter(z["statistics"].astype(np.float32))
    return [
        Encoded(
            PEOPLE.index(about["speakers"][z["speaker"][i]]) + int(z["warp"][i]) * len(PEOPLE),
            phones[i],
            flags[i],
            codes[i],
            np.repeat(np.arange(frames[i].size, dtype=np.int16), frames[i]),
            next(spoiled) if z["spoiled"][i] else statistics_of(codec, codes[i]),
        )
        for i in range(lengths.size)
    ]


def clips(path: Path) -> list[tuple[str, bytes]]:
    """(speaker, Ogg Opus) of a file's utterances that have some audio."""
    about, z = _read(path, "speaker", "clip_sizes", "clips")
    data, ends = z["clips"].tobytes(), np.cumsum(z["clip_sizes"].astype(np.int64))
    return [
        (about["speakers"][who], data[end - size : end])
        for who, end, size in zip(z["speaker"].tolist(), ends.tolist(), z["clip_sizes"].tolist(), strict=True)
        if size
    ]


def files(folder: Path = FOLDER) -> list[Path]:
    """The kept files, in order."""
    return sorted(folder.glob("?????.safetensors"))


def _files(folder: Path) -> list[Path]:
    """The kept files, of which there has to be one."""
    if not files(folder):
        raise SystemExit(f"nothing is kept in {folder}: the stages render, understood and keep make it")
    return files(folder)


def everything(folder: Path, codec: Codec) -> list[Encoded]:
    """What the language models learn from in all files of a folder, as `load` says; without any it ends with a message."""
    return [encoded for path in _files(folder) for encoded in load(path, codec)]


def all_clips(folder: Path) -> list[tuple[str, bytes]]:
    """The `clips` of all files of a folder."""
    return [clip for path in _files(folder) for clip in clips(path)]


# ---- making them


def digest_of_plan(requests: Iterable[Request]) -> str:
    """SHA-256 of who is asked to say what, and how."""
    lines = ([r.number, r.speaker, r.recipe, r.prosody, r.text, r.speed, r.offset] for r in requests)
    return hashlib.sha256(json.dumps(list(lines), ensure_ascii=False).encode()).hexdigest()


def check_plan(requests: Sequence[Request], per_shard: int, folder: Path) -> None:
    """Sees that what is kept was asked by this plan, so that nothing is said twice and nothing left out.

    Raises:
        DamagedShard: a file is of another plan; other packages draw another one.
    """
    for path in files(folder):
        at = int(path.stem) * per_shard
        if _read(path)[0]["plan"] != digest_of_plan(requests[at : at + per_shard]):
            raise DamagedShard(
                f"{path}: it was made from another plan than this machine's packages draw (the versions of WordNet, of the "
                "Chinese texts or of `plan.py` differ); keep other shards in another folder (--corpus)"
            )


def first_utterances(requests: Iterable[Request]) -> set[int]:
    """Numbers of the utterances that keep some audio."""
    counts: Counter[str] = Counter()
    chosen = set()
    for request in requests:
        counts[request.speaker] += 1
        if counts[request.speaker] <= CLIPS[request.part]:
            chosen.add(request.number)
    return chosen


def keep_shard(shard: Path, path: Path, codec: Codec, requests: Sequence[Request], heard: set[int]) -> str:
    """Keeps what was understood of a rendered shard; `heard` are the numbers that keep some audio."""
    rows = []
    for rendering in understood(shard):
        request, said = rendering.request, said_by(rendering, codec)
        spoiled = request.number % SPOILED_EVERY == 0
        clip = to_opus(trimmed(rendering)[0][: round(CLIP_S * RATE)]) if request.number in heard else b""
        rows.append(Utterance(request.number, encode(codec, said, request.speaker, spoiled), spoiled, clip))
        if request.number % WARPED_EVERY == 0:
            warp = 1 + request.number // WARPED_EVERY % len(WARPS)
            rows.append(Utterance(request.number, encode(codec, said, request.speaker, False, warp)))
    if not rows:
        raise SystemExit(f"nothing of {shard} was understood: the teacher or the judge does not work here")
    save(path, rows, digest_of(codec), digest_of_plan(requests))
    return f"{path.name}: {len(rows)} rows, {path.stat().st_size} bytes"


def keep_all(folder: Path, codec: Codec, requests: Sequence[Request], per_shard: int, kept: Path = FOLDER) -> str:
    """Keeps every shard of ``folder/speech`` that was listened to; what is there stays."""
    kept.mkdir(parents=True, exist_ok=True)
    heard = first_utterances(requests)
    for verdicts in sorted((folder / "speech").glob("?????.heard.jsonl")):
        name = verdicts.name.split(".")[0]
        path, shard = kept / f"{name}.safetensors", verdicts.with_name(f"{name}.npz")
        if not path.exists() and shard.exists():
            at = int(name) * per_shard
            print(keep_shard(shard, path, codec, requests[at : at + per_shard], heard), flush=True)
    total = files(kept)
    return f"{len(total)} shards, {sum(p.stat().st_size for p in total)} bytes"

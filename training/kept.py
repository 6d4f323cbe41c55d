"""Encoded corpus in the repository: the training data of the language models, one file per rendered shard.

A shard is a safetensors file in `FOLDER` with codes in nine bits, and deflated phones, word-position flags and durations in
frames. The codec is frozen: every file has a digest of its codebooks, and speaker statistics are recomputed from the codes.
Some utterances of every speaker include a few seconds of audio in Opus, for training the encoder on degraded speech
(`listen`).
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

from training.codes import PEOPLE, WARPS, Encoded, encode, prepare, statistics_of
from training.kokoro import RATE
from training.plan import Request
from training.trim import trimmed
from training.understood import understood
from voicelab.engine.pointer.codec import Codec

FOLDER = Path(__file__).parent / "corpus"
BITS = 9
"""Bits per code: codebooks have 512 entries."""
WARPED_EVERY = 4
"""Every n-th utterance is also stored warped by one of `WARPS`, since the audio is not stored; all warps of all utterances
would take five times the space."""
SPOILED_EVERY = 8
"""Every n-th utterance has the speaker statistics of a degraded copy."""
CLIPS = {"blend": 1, "stock": 8, "mandarin": 8}
"""Number of a speaker's first utterances with audio, by part of the plan."""
CLIP_S, CLIP_BITS = 3.5, 16_000
"""Duration of this audio in seconds, and its bitrate in bit/s."""


class DamagedShard(ValueError):
    """An encoded shard is unreadable, or of another codec or plan."""


@dataclass(frozen=True)
class Utterance:
    """An utterance of the encoded corpus."""

    number: int
    """Number in the plan."""
    encoded: Encoded
    spoiled: bool = False
    """Whether its statistics are those of a degraded copy."""
    clip: bytes = b""
    """Ogg Opus of its first seconds; usually empty."""


def digest_of(codec: Codec) -> str:
    """Compute the SHA-256 of the codebooks in half precision; encoder and decoder may change without affecting codes."""
    digest = hashlib.sha256()
    for table in codec.quantizer.tables:
        digest.update(table.detach().cpu().half().numpy().tobytes())
    return digest.hexdigest()


def packed(values: NDArray[np.int16]) -> NDArray[np.uint8]:
    """Pack integers below 2**`BITS` of any shape, to shape (values * BITS / 8,)."""
    wide = values.astype(">u2").ravel()[:, None].view(np.uint8)
    return np.packbits(np.unpackbits(wide, axis=1)[:, -BITS:])


def unpacked(data: NDArray[np.uint8], count: int) -> NDArray[np.int16]:
    """Unpack the output of `packed`, to shape (count,)."""
    bits = np.unpackbits(data, count=count * BITS).reshape(count, BITS)
    values: NDArray[np.int16] = (bits @ (1 << np.arange(BITS - 1, -1, -1))).astype(np.int16)
    return values


def deflated(parts: Iterable[NDArray[Any]]) -> NDArray[np.uint8]:
    """Concatenate and deflate integers below 65,536."""
    return np.frombuffer(zlib.compress(np.concatenate(list(parts)).astype("<u2").tobytes(), 9), np.uint8)


def inflated(data: NDArray[np.uint8]) -> NDArray[np.int16]:
    """Inflate the output of `deflated`."""
    return np.frombuffer(zlib.decompress(data.tobytes()), "<u2").astype(np.int16)


def to_opus(samples: NDArray[np.float64]) -> bytes:
    """Encode mono speech (samples,) in [-1, 1] at 24 kHz as Ogg Opus at `CLIP_BITS`."""
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
    """Write a shard atomically; `codec` and `plan` are digests."""
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
    partial = path.with_suffix(".part")
    save_file(arrays, partial, metadata={"voicelab": json.dumps(about)})
    partial.rename(path)


def _read(path: Path, *names: str) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Read the metadata and the named tensors of a file."""
    try:
        with safe_open(path, "np") as file:
            about: dict[str, Any] = json.loads(file.metadata()["voicelab"])
            return about, {name: file.get_tensor(name) for name in names}
    except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
        raise DamagedShard(f"{path} cannot be read: {error}") from error


def load(path: Path, codec: Codec) -> list[Encoded]:
    """Load the utterances of a shard.

    Raises:
        DamagedShard: the file is unreadable, or of another codec.
    """
    rows = ("speaker", "warp", "spoiled", "phone_counts", "phones", "flags", "frames", "codes", "statistics")
    about, z = _read(path, *rows)
    if about["codec"] != digest_of(codec):
        raise DamagedShard(f"{path} must be encoded with the frozen codec, got another one")
    ends = np.cumsum(z["phone_counts"].astype(np.int64))[:-1]
    phones, flags, frames = (np.split(inflated(z[name]), ends) for name in ("phones", "flags", "frames"))
    lengths = np.array([durations.sum() for durations in frames], np.int64)
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
    """Return (speaker, Ogg Opus) of the utterances of a shard with audio."""
    about, z = _read(path, "speaker", "clip_sizes", "clips")
    data, ends = z["clips"].tobytes(), np.cumsum(z["clip_sizes"].astype(np.int64))
    return [
        (about["speakers"][speaker], data[end - size : end])
        for speaker, end, size in zip(z["speaker"].tolist(), ends.tolist(), z["clip_sizes"].tolist(), strict=True)
        if size
    ]


def files(folder: Path = FOLDER) -> list[Path]:
    """Return the files of the encoded corpus, in order."""
    return sorted(folder.glob("?????.safetensors"))


def _files(folder: Path) -> list[Path]:
    """Return the files of the encoded corpus; exit if there are none."""
    if not files(folder):
        raise SystemExit(f"no encoded corpus in {folder}: run the stages render, understood and keep")
    return files(folder)


def load_all(folder: Path, codec: Codec) -> list[Encoded]:
    """Load all utterances of a folder; exit if there are none."""
    return [encoded for path in _files(folder) for encoded in load(path, codec)]


def all_clips(folder: Path) -> list[tuple[str, bytes]]:
    """Load the audio clips of all files of a folder."""
    return [clip for path in _files(folder) for clip in clips(path)]


# ---- encoding


def digest_of_plan(requests: Iterable[Request]) -> str:
    """Compute the SHA-256 of requests."""
    lines = ([r.number, r.speaker, r.recipe, r.prosody, r.text, r.speed, r.offset] for r in requests)
    return hashlib.sha256(json.dumps(list(lines), ensure_ascii=False).encode()).hexdigest()


def check_plan(requests: Sequence[Request], per_shard: int, folder: Path) -> None:
    """Check that all encoded shards belong to this plan.

    Raises:
        DamagedShard: a shard belongs to another plan; other package versions draw another one.
    """
    for path in files(folder):
        start = int(path.stem) * per_shard
        if _read(path)[0]["plan"] != digest_of_plan(requests[start : start + per_shard]):
            raise DamagedShard(
                f"{path} belongs to another plan than the one drawn from the installed packages (versions of WordNet, of the "
                "Chinese texts or of `plan.py` differ); use another folder (--corpus)"
            )


def first_utterances(requests: Iterable[Request]) -> set[int]:
    """Return the numbers of the utterances stored with audio."""
    counts: Counter[str] = Counter()
    chosen = set()
    for request in requests:
        counts[request.speaker] += 1
        if counts[request.speaker] <= CLIPS[request.part]:
            chosen.add(request.number)
    return chosen


def keep_shard(shard: Path, path: Path, codec: Codec, requests: Sequence[Request], with_audio: set[int]) -> str:
    """Encode the intelligible utterances of a rendered shard; those of `with_audio` are stored with audio."""
    rows = []
    for rendering in understood(shard):
        request, prepared = rendering.request, prepare(rendering, codec)
        spoiled = request.number % SPOILED_EVERY == 0
        clip = to_opus(trimmed(rendering)[0][: round(CLIP_S * RATE)]) if request.number in with_audio else b""
        rows.append(Utterance(request.number, encode(codec, prepared, request.speaker, spoiled), spoiled, clip))
        if request.number % WARPED_EVERY == 0:
            warp = 1 + request.number // WARPED_EVERY % len(WARPS)
            rows.append(Utterance(request.number, encode(codec, prepared, request.speaker, False, warp)))
    if not rows:
        raise SystemExit(f"no intelligible utterances in {shard}: teacher or ASR model does not work")
    save(path, rows, digest_of(codec), digest_of_plan(requests))
    return f"{path.name}: {len(rows)} rows, {path.stat().st_size} bytes"


def keep_all(folder: Path, codec: Codec, requests: Sequence[Request], per_shard: int, corpus: Path = FOLDER) -> str:
    """Encode every shard of ``folder/speech`` with ASR verdicts that is not yet encoded."""
    corpus.mkdir(parents=True, exist_ok=True)
    with_audio = first_utterances(requests)
    for verdicts in sorted((folder / "speech").glob("?????.heard.jsonl")):
        name = verdicts.name.split(".")[0]
        path, shard = corpus / f"{name}.safetensors", verdicts.with_name(f"{name}.npz")
        if not path.exists() and shard.exists():
            start = int(name) * per_shard
            print(keep_shard(shard, path, codec, requests[start : start + per_shard], with_audio), flush=True)
    total = files(corpus)
    return f"{len(total)} shards, {sum(p.stat().st_size for p in total)} bytes"

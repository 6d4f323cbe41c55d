"""A Whisper model with tiny random weights, as faster-whisper fetches it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from ctranslate2.specs import WhisperSpec  # type: ignore[import-untyped]
from faster_whisper.tokenizer import _LANGUAGE_CODES
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

SIZE, MELS, FRAMES, LENGTH = 16, 80, 1500, 448
TASKS = ("translate", "transcribe", "startoflm", "startofprev", "nospeech", "notimestamps")
SPECIAL = ("endoftext", "startoftranscript", *_LANGUAGE_CODES[:99], *TASKS, *(f"{n * 0.02:.2f}" for n in range(1501)))
TOKENS = [*(f"\u0120w{n}" for n in range(50_257)), *(f"<|{name}|>" for name in SPECIAL)]


def _shape(name: str) -> tuple[int, ...]:
    rows = {"conv1": SIZE, "linear_0": 3 * SIZE if "self_attention" in name else 4 * SIZE if "ffn" in name else SIZE}
    layer, kind = name.split("/")[-2:]
    if kind in ("gamma", "beta"):
        return (SIZE,)
    if layer.startswith("conv"):
        return (SIZE, MELS if layer == "conv1" else SIZE, 3)
    if layer in ("embeddings", "projection"):
        return (len(TOKENS), SIZE)
    if layer == "linear_1" and "self_attention" not in name:
        return (SIZE, 4 * SIZE) if "ffn" in name else (2 * SIZE, SIZE)
    return (rows.get(layer, SIZE), SIZE)


def save_whisper(folder: Path) -> None:
    """Write weights, vocabulary and tokenizer of a multilingual model."""
    tokenizer = Tokenizer(models.WordLevel({token: index for index, token in enumerate(TOKENS)}, unk_token=TOKENS[0]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(folder / "tokenizer.json"))
    random, spec = np.random.default_rng(0), WhisperSpec(1, 2, 1, 2)
    for name, value in list(spec.variables(ordered=True)):
        if value is None:
            node, path = spec, name.split("/")
            for part in path[:-1]:
                kind, _, index = part.rpartition("_")
                node = getattr(node, part) if hasattr(node, part) else getattr(node, kind)[int(index)]
            setattr(node, path[-1], random.normal(size=_shape(name)).astype(np.float32))
    spec.encoder.position_encodings.encodings = random.normal(size=(FRAMES, SIZE)).astype(np.float32)
    spec.decoder.position_encodings.encodings = random.normal(size=(LENGTH, SIZE)).astype(np.float32)
    first = TOKENS.index("<|startoftranscript|>") + 1
    spec.config.lang_ids, spec.config.alignment_heads = list(range(first, first + 99)), [(0, 0)]
    spec.config.suppress_ids = spec.config.suppress_ids_begin = []
    spec.register_vocabulary(TOKENS)
    spec.validate()
    spec.save(str(folder))

"""The codec against a plain reimplementation (twin), and sensitivity to changed arithmetic."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch import Tensor

from tests.engine.dual.test_model import LAYER
from tests.engine.dual.tiny_codec import TINY, has_weight_norm, save_codec, tiny_tensors
from tests.engine.dual.twin import CodecTwin, turned_round
from voicelab.engine.core.decoding import CodeBlock
from voicelab.engine.core.layers import Carry
from voicelab.engine.dual.codec import CodecFile, CodecSizes, DualCodec, DualDecoding
from voicelab.errors import WeightsError

CPU = torch.device("cpu")
FRAMES = 40
TOLERANCE = 1e-5
"""Tolerance of float32 against float64, relative to the largest value if above 1."""


@pytest.fixture(scope="module")
def tensors() -> dict[str, Tensor]:
    return tiny_tensors()


@pytest.fixture(scope="module")
def codec(tensors: dict[str, Tensor], tmp_path_factory: pytest.TempPathFactory) -> DualCodec:
    return CodecFile.open(save_codec(tmp_path_factory.mktemp("codec") / "codec.pth", tensors)).load(CPU)


@pytest.fixture(scope="module")
def codes() -> Tensor:
    generator = torch.Generator().manual_seed(3)
    columns = [torch.randint(entries, (FRAMES,), generator=generator) for entries in TINY.codebooks]
    return torch.stack(columns, -1)


@pytest.fixture(scope="module")
def sound() -> Tensor:
    return 0.3 * torch.randn(150 * TINY.hop - 5, generator=torch.Generator().manual_seed(4))


@pytest.fixture(scope="module")
def audio(codec: DualCodec, codes: Tensor) -> Tensor:
    return codec.decode(codes)


@pytest.fixture(scope="module")
def latents(codec: DualCodec, sound: Tensor) -> Tensor:
    return _latents(codec, sound)


@torch.inference_mode()
def _latents(codec: DualCodec, sound: Tensor) -> Tensor:
    x, carry = torch.nn.functional.pad(sound, (0, -len(sound) % codec.hop)), Carry([None])
    return codec.quantizer.latents(codec.encoder(x[None, None], carry), carry)[0]


def _error(value: Tensor, reference: Tensor) -> float:
    assert value.shape == reference.shape
    return float((value - reference).abs().max() / reference.abs().max().clamp(min=1))


def test_equals_twin(codec: DualCodec, tensors: dict[str, Tensor], codes: Tensor, sound: Tensor, audio: Tensor) -> None:
    assert 0.2 < float(audio.std()) < 0.9
    assert _error(audio, CodecTwin(tensors, TINY).decode(codes)) < TOLERANCE
    assert _error(_latents(codec, sound), CodecTwin(tensors, TINY).latents(sound)) < TOLERANCE
    assert torch.equal(codec.encode(sound), CodecTwin(tensors, TINY).encode(sound))


OF_A_LANGUAGE_MODEL = {"no norm of queries and keys", "norm after rotation", "key heads tiled"}
OF_BOTH = {fact: LAYER[fact][:2] for fact in LAYER.keys() - OF_A_LANGUAGE_MODEL}
OF_BOTH |= {
    "centred convolutions": ("(left, 0)", "(left // 2, left - left // 2)"),
    "edges repeated": ("(left, 0))", '(left, 0), mode="replicate" if left else "constant")'),
    "no dilation": ("(1, 3, 9)", "(1, 1, 1)"),
    "nothing added": ("x + self.conv(", "self.conv("),
    "snake without its divisor": (" / (alpha + 1e-9)", ""),
    "norm over the second axis": ("sum((1, 2)", "sum((int(v.shape[0] != v.shape[1]), 2)"),
    "window one longer": ("<= -window", "< -window"),
    "no layer scale": ("_layer_scale", "_no_scale"),
    "no last norm": ('norm(x, self.w[f"{name}.norm.weight"], 1e-5)', "x"),
    "eps of the layer norm": ("1e-6)", "1e-2)"),
    "gelu by tanh": ('.pwconv1.bias"]))', '.pwconv1.bias"]), approximate="tanh")'),
    "no gamma": ('self.w[name + ".gamma"] * y', "y"),
}
NORMALISED = ("table[codes", "F.normalize(table)[codes")
OF_DECODER = {
    "transposed cut in front": (": x.shape[-1] * stride]", "-x.shape[-1] * stride :]"),
    "no tanh": ("torch.tanh(", "("),
    "codebooks backwards": ("codes.T,", "codes.T.flip(0),"),
    "normalised entries": NORMALISED,
}
OF_QUANTIZER = {
    "entries by distance": ("F.normalize(query) @ F.normalize(table).T", "-torch.cdist(query, table)"),
    "normalised entries": NORMALISED,
    "nothing subtracted": ("rest - self", "rest - 0 * self"),
}


@pytest.mark.parametrize("fact", [*sorted(OF_BOTH), *OF_DECODER])
def test_changed_encoder_or_decoder_differs(
    tensors: dict[str, Tensor], codes: Tensor, audio: Tensor, sound: Tensor, latents: Tensor, fact: str
) -> None:
    if fact == "codebooks backwards":
        codes = codes % min(TINY.codebooks)
        audio = CodecTwin(tensors, TINY).decode(codes)
    turned = turned_round(*{**OF_BOTH, **OF_DECODER}[fact]).CodecTwin(tensors, TINY)
    assert _error(audio, turned.decode(codes)) > 5 * TOLERANCE
    if fact in OF_BOTH:
        assert _error(latents, turned.latents(sound)) > 5 * TOLERANCE


@pytest.mark.parametrize("fact", OF_QUANTIZER)
def test_changed_quantizer_differs(codec: DualCodec, tensors: dict[str, Tensor], sound: Tensor, fact: str) -> None:
    turned = turned_round(*OF_QUANTIZER[fact]).CodecTwin(tensors, TINY)
    assert not torch.equal(codec.encode(sound), turned.encode(sound))


OTHERS = [
    replace(
        TINY, head_width=32, window=9, encoder_window=20, latent=96, encoder_layers=1, codebooks=(20, 30, 7, 11, 5)
    ),
    replace(
        TINY,
        encoder_strides=(5,),
        encoder_width=64,
        decoder_strides=(5, 1),
        decoder_width=40,
        layers=3,
        codebook_width=4,
    ),
]


@pytest.mark.parametrize("sizes", OTHERS)
def test_sizes_are_derived_from_tensors(sizes: CodecSizes, tmp_path: Path) -> None:
    tensors = tiny_tensors(sizes)
    codec = CodecFile.open(save_codec(tmp_path / "codec.pth", tensors, sizes=sizes)).load(CPU)
    assert codec.sizes == sizes
    generator = torch.Generator().manual_seed(0)
    codes = torch.stack([torch.randint(n, (25,), generator=generator) for n in sizes.codebooks], -1)
    sound = 0.3 * torch.randn(30 * sizes.hop, generator=generator)
    assert _error(codec.decode(codes), CodecTwin(tensors, sizes).decode(codes)) < TOLERANCE
    assert _error(_latents(codec, sound), CodecTwin(tensors, sizes).latents(sound)) < TOLERANCE


def test_frames_of_too_many_samples_are_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("voicelab.engine.dual.codec._MAX_HOP", TINY.hop - 1)
    with pytest.raises(WeightsError, match="at most 23 samples, got 24"):
        CodecFile.open(save_codec(tmp_path / "codec.pth", tiny_tensors()))


def test_codes_are_clamped_to_the_codebook(codec: DualCodec, tensors: dict[str, Tensor], codes: Tensor) -> None:
    beyond = codes.clone()
    beyond[:, 1] = TINY.codebooks[1] + codes[:, 1]
    last = codes.clone()
    last[:, 1] = TINY.codebooks[1] - 1
    assert torch.equal(codec.decode(beyond), codec.decode(last))
    wrapped = turned_round("codes.clamp(max=len(table) - 1)", "codes % len(table)")
    assert _error(codec.decode(beyond), wrapped.CodecTwin(tensors, TINY).decode(beyond)) > 5 * TOLERANCE


def test_lengths(codec: DualCodec) -> None:
    for samples, frames in ((0, 0), (1, 1), (24, 1), (25, 2)):
        assert codec.encode(torch.zeros(samples)).shape == (frames, 3)
    assert codec.decode(torch.zeros(0, 3, dtype=torch.int64)).shape == (0,)
    assert codec.decode(torch.zeros(7, 3, dtype=torch.int64)).shape == (7 * 24,)


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cuts=st.lists(st.integers(0, FRAMES), max_size=6))
def test_streaming_equals_decoding_at_once(codec: DualCodec, codes: Tensor, audio: Tensor, cuts: list[int]) -> None:
    decoding, streamed = DualDecoding(codec, 4), []
    stream = decoding.open(None)
    for begin, end in pairwise([0, *sorted(cuts), FRAMES]):
        (samples,) = decoding.feed([CodeBlock(stream, codes[begin:end].numpy(), final=end == FRAMES)])
        assert samples.shape == ((end - begin) * TINY.hop,)
        streamed.append(torch.from_numpy(samples))
    assert _error(torch.cat(streamed), audio) < TOLERANCE


def test_batched_streams_equal_single_streams(codec: DualCodec, codes: Tensor, audio: Tensor) -> None:
    """Three streams with different codes, start times and block sizes."""
    decoding = DualDecoding(codec, 3)
    streams = [decoding.open(None) for _ in range(3)]
    lines = [codes, codes.flip(0), codes.roll(5, 0)]
    heard: list[list[Tensor]] = [[], [], []]
    place = [0, 0, 0]
    for feed in ({0: 3}, {0: 2, 1: 2}, {1: 9, 0: 4, 2: 4}, {2: 1, 0: 1, 1: 1}, {0: 30, 1: 28, 2: 35}):
        pieces = [
            CodeBlock(streams[i], lines[i][place[i] : place[i] + n].numpy(), final=place[i] + n == FRAMES)
            for i, n in feed.items()
        ]
        for (i, n), samples in zip(feed.items(), decoding.feed(pieces), strict=True):
            heard[i].append(torch.from_numpy(samples))
            place[i] += n
    assert place == [FRAMES] * 3
    assert _error(torch.cat(heard[0]), audio) < TOLERANCE
    for i in (1, 2):
        assert _error(torch.cat(heard[i]), codec.decode(lines[i])) < TOLERANCE


def test_failed_block_can_be_retried(codec: DualCodec, codes: Tensor, audio: Tensor) -> None:
    decoding = DualDecoding(codec, 1)
    stream = decoding.open(None)
    first = decoding.feed([CodeBlock(stream, codes[:7].numpy(), final=False)])[0]
    with pytest.raises(IndexError):
        decoding.feed([CodeBlock(stream, (codes[7:9] - 100).numpy(), final=False)])
    rest = decoding.feed([CodeBlock(stream, codes[7:].numpy(), final=True)])[0]
    assert _error(torch.cat([torch.from_numpy(first), torch.from_numpy(rest)]), audio) < TOLERANCE


@pytest.mark.parametrize("form", ["hub", "plain", "folded"])
def test_all_file_forms_give_the_same_codec(
    codec: DualCodec, tensors: dict[str, Tensor], codes: Tensor, tmp_path: Path, form: str
) -> None:
    stored = {name: tensor.contiguous() for name, tensor in codec.state_dict().items()} if form == "folded" else tensors
    other = CodecFile.open(save_codec(tmp_path / "codec.pth", stored, form)).load(CPU)
    assert other.sizes == TINY
    assert torch.equal(other.decode(codes), codec.decode(codes))


def test_parameter_count_of_the_published_file() -> None:
    """Counted as in the published file: both tensors of a weight norm, no buffers."""
    with torch.device("meta"):
        codec = DualCodec(CodecSizes())
    shapes = {name: parameter.shape for name, parameter in codec.named_parameters()}
    normed = {name: shape for name, shape in shapes.items() if has_weight_norm(name, shape)}
    counts = Counter[str]()
    for name, shape in shapes.items():
        counts[".".join(name.split(".")[: 1 + name.startswith("quantizer")])] += (
            shape.numel() + normed.get(name, [0])[0]
        )
    assert codec.hop == 2048
    assert len(shapes) + len(normed) == 541 - 6
    assert counts.total() == 391_430_530
    millions = {name: round(count / 1e6, 1) for name, count in counts.items()}
    parts = {"encoder": 76.9, "decoder": 54.1, "downsample": 21.0, "upsample": 21.0}
    parts |= {"pre_module": 109.1, "post_module": 109.1}
    assert parts.items() <= {name.removeprefix("quantizer."): count for name, count in millions.items()}.items()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cuda_equals_twin(tensors: dict[str, Tensor], codes: Tensor, sound: Tensor, tmp_path: Path) -> None:
    """In float32; batched streams on a separate CUDA stream."""
    codec = CodecFile.open(save_codec(tmp_path / "codec.pth", tensors)).load(torch.device("cuda"))
    decoding, heard = DualDecoding(codec, 2), [list[Tensor](), list[Tensor]()]
    lines = [(decoding.open(None), codes), (decoding.open(None), codes.flip(0))]
    for begin in range(0, FRAMES, 8):
        pieces = [
            CodeBlock(stream, line[begin : begin + 8].numpy(), final=begin + 8 == FRAMES) for stream, line in lines
        ]
        for kept, samples in zip(heard, decoding.feed(pieces), strict=True):
            kept.append(torch.from_numpy(samples))
    for kept, (_, line) in zip(heard, lines, strict=True):
        assert _error(torch.cat(kept), CodecTwin(tensors, TINY).decode(line)) < 5 * TOLERANCE
    assert float((codec.encode(sound) == CodecTwin(tensors, TINY).encode(sound)).float().mean()) > 0.995


@pytest.mark.skipif("VOICELAB_OPEN_WEIGHTS_GOLDEN" not in os.environ, reason="names a folder of golden numbers")
def test_equals_reference() -> None:
    folder = Path(os.environ["VOICELAB_OPEN_WEIGHTS_GOLDEN"]) / "codec"
    codec, golden = CodecFile.open(folder / "codec.pth").load(CPU), load_file(folder / "golden.safetensors")
    assert torch.equal(codec.encode(golden["audio"]).T, golden["codes"])
    assert _error(codec.decode(golden["given"].T), golden["decoded"]) < TOLERANCE
    assert _error(codec.decode(golden["codes"].T), golden["roundtrip"]) < TOLERANCE
    sizes, tensors = codec.sizes, torch.load(folder / "codec.pth", weights_only=True)["state_dict"]
    plain = CodecTwin({name.removeprefix("generator."): tensor for name, tensor in tensors.items()}, sizes)
    assert _error(plain.decode(golden["given"].T), golden["decoded"]) < TOLERANCE
    assert torch.equal(plain.encode(golden["audio"]).T, golden["codes"])

"""The open weights' codec: 44.1 kHz audio to ten integers a frame of 2,048 samples, and back, causally.

Encoder: convolutions with strides and a transformer (in the spirit of DAC, Kumar et al., 2023), two more halvings of the
rate, a transformer, residual vector quantization with codebooks of few dimensions. Decoder: the sum of the codebooks'
entries, a transformer, two doublings, convolutions. Everything is causal, so both directions work in pieces of any length
with a state of fixed size, and give what the whole would give.

A layer maps (batch, channels, time) and takes a `Carry` beside it, in which it finds what it needs of the pieces before and
leaves what the next piece needs. It keeps nothing itself, so one module serves any number of streams, several in a batch.
Layers are named as in the checkpoint.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count, takewhile
from math import prod
from pathlib import Path
from typing import Annotated, Any, NamedTuple, cast

import torch
from pydantic import BaseModel, Field, TypeAdapter
from pydantic.dataclasses import dataclass
from torch import Tensor, nn
from torch.nn import functional as F

from voicelab.engine.core.decoding import Carry, Chain, Conv, LayerGroup, Piece, Samples, State
from voicelab.engine.core.fused import compile_frame, was_compiled
from voicelab.engine.dual.config import STRICT, Count, HeadWidth, Width
from voicelab.engine.dual.files import TensorFiles, naming, read_json
from voicelab.engine.dual.tower import rotary, rotate
from voicelab.errors import WeightsError

_ROTARY_BASE = 10_000.0


class TransposedConv(nn.Module):
    """A transposed convolution without what reaches beyond the input's end."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int) -> None:
        super().__init__()
        self.conv = nn.ConvTranspose1d(inputs, outputs, kernel, stride)
        self._left, self._stride = (kernel - 1) // stride, stride

    def forward(self, x: Tensor, carry: Carry) -> Tensor:
        """(batch, inputs, n) → (batch, outputs, n · stride)."""
        y = self.conv(carry.join(x, self._left))
        return cast("Tensor", y.narrow(-1, self._left * self._stride, x.shape[-1] * self._stride))


class Snake(nn.Module):
    """x + sin²(αx) / α (Ziyin et al., 2020), an α for each channel."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.ones(1, channels, 1))

    def forward(self, x: Tensor, _: Carry) -> Tensor:
        """Elementwise."""
        return x + torch.sin(self.alpha * x).square() / (self.alpha + 1e-9)


def residual_unit(channels: int, dilation: int) -> LayerGroup:
    """Snake, dilated convolution, snake, mixing of the channels, added to the input."""
    wide, mix = Conv(channels, channels, 7, dilation=dilation), Conv(channels, channels, 1)
    return LayerGroup("block", [Snake(channels), wide, Snake(channels), mix], residual=True)


class ConvNext(nn.Module):
    """A ConvNeXt block (Liu et al., 2022) over time."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.dwconv = Conv(channels, channels, 7, groups=channels)
        self.norm = nn.LayerNorm(channels, eps=1e-6)
        self.pwconv1 = nn.Linear(channels, 4 * channels)
        self.pwconv2 = nn.Linear(4 * channels, channels)
        self.gamma = nn.Parameter(torch.ones(channels))

    def forward(self, x: Tensor, carry: Carry) -> Tensor:
        """Depthwise convolution and a pointwise MLP, scaled and added to the input."""
        y: Tensor = self.norm(self.dwconv(x, carry).transpose(1, 2))
        y = self.gamma * self.pwconv2(F.gelu(self.pwconv1(y)))
        return x + y.transpose(1, 2)


class Transformer(nn.Module):
    """A transformer over a window of time: a step sees itself and the ``window`` − 1 before it."""

    def __init__(self, width: int, layers: int, mlp: int, window: int, head_width: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(_Layer(width, mlp, window, head_width) for _ in range(layers))
        self.norm = nn.RMSNorm(width, eps=1e-5)
        self._window, self._head_width = window, head_width

    def forward(self, x: Tensor, carry: Carry) -> Tensor:
        """(batch, width, time) → the same shape."""
        steps, past = x.shape[-1], self._window - 1
        start = carry.positions(steps, x.device)[:, None]
        step, key = torch.arange(steps, device=x.device), torch.arange(past + steps, device=x.device)
        in_window = (key >= step[:, None]) & (key <= step[:, None] + past)
        mask = in_window & (start + key >= past)[:, None]  # keys before the stream's start are zeros, not keys
        turn = rotary(start + step, self._head_width, _ROTARY_BASE).float()[:, None]
        x = x.transpose(1, 2)
        for layer in self.layers:
            x = layer(x, turn, mask[:, None], carry)
        y: Tensor = self.norm(x)
        return y.transpose(1, 2)


class _Layer(nn.Module):
    def __init__(self, width: int, mlp: int, window: int, head_width: int) -> None:
        super().__init__()
        linear = {"wqkv": nn.Linear(width, 3 * width, bias=False), "wo": nn.Linear(width, width, bias=False)}
        self.attention = nn.ModuleDict(linear)
        shapes = {"w1": (width, mlp), "w2": (mlp, width), "w3": (width, mlp)}
        self.feed_forward = nn.ModuleDict({name: nn.Linear(*shape, bias=False) for name, shape in shapes.items()})
        self.attention_norm = nn.RMSNorm(width, eps=1e-5)
        self.ffn_norm = nn.RMSNorm(width, eps=1e-5)
        self.attention_layer_scale = nn.ParameterDict({"gamma": torch.ones(width)})
        self.ffn_layer_scale = nn.ParameterDict({"gamma": torch.ones(width)})
        self._past, self._head_width = window - 1, head_width

    def forward(self, x: Tensor, turn: Tensor, mask: Tensor, carry: Carry) -> Tensor:
        """(batch, time, width) → the same shape."""
        qkv = self.attention["wqkv"](self.attention_norm(x)).unflatten(-1, (3, -1, self._head_width))
        q, k, v = qkv.permute(2, 0, 3, 1, 4)  # each (batch, heads, time, head width)
        q, k = rotate(q, turn), carry.join(rotate(k, turn), self._past, dim=2)
        y = F.scaled_dot_product_attention(q, k, carry.join(v, self._past, dim=2), attn_mask=mask)
        x = x + self.attention_layer_scale.gamma * self.attention["wo"](y.transpose(1, 2).flatten(2))
        y, mlp = self.ffn_norm(x), self.feed_forward
        return cast("Tensor", x + self.ffn_layer_scale.gamma * mlp["w2"](F.silu(mlp["w1"](y)) * mlp["w3"](y)))


SAMPLE_RATE = 44_100
_DILATIONS = (1, 3, 9)
TOGETHER = 16
"""Streams that are decoded in one batch."""
_LONGEST_PIECE = 24
"""Frames that are decoded at once in a batch."""
_LARGEST_HOP = 1 << 16
_TF32 = False
"""Whether CUDA devices round what convolutions multiply to 10 bits: torch's own choice is True, in the whole process."""
COMPILING: Mapping[str, bool] = {"emulate_precision_casts": True}
"""How a piece is compiled: what `rotary` rounds to 16 bits on the way stays so."""
_AT_ONCE = 64
"""Frames (3 s) encoded or decoded at once where all are there: it bounds the memory."""


_Strides = Annotated[tuple[Annotated[int, Field(ge=1, le=64)], ...], Field(min_length=1, max_length=8)]
_Window = Annotated[int, Field(ge=1, le=1 << 13)]


class _Untold(BaseModel, strict=True):
    """What no tensor tells, and ``sizes.json`` may."""

    window: _Window = 128
    encoder_window: _Window = 512
    head_width: HeadWidth = Field(default=64, validation_alias="head_dim")


@dataclass(frozen=True, config=STRICT)
class CodecSizes:
    """Sizes of a codec, within bounds; the defaults are those of the published one."""

    encoder_width: Width = 64
    """Channels after the first convolution; each block doubles them."""
    encoder_strides: _Strides = (2, 4, 8, 8)
    encoder_layers: Count = 4
    encoder_mlp: Width = 3072
    encoder_window: _Window = 512
    """Steps that the encoder's transformer sees; no tensor tells it."""
    latent: Width = 1024
    halvings: Annotated[int, Field(ge=0, le=8)] = 2
    layers: Count = 8
    """Of the transformer before the quantizer, and of the one after it."""
    mlp: Width = 3072
    window: _Window = 128
    """Frames that these two see; no tensor tells it."""
    head_width: HeadWidth = 64
    """Of all transformers; no tensor tells it."""
    codebooks: Annotated[tuple[Width, ...], Field(min_length=1, max_length=64)] = (4096, *[1024] * 9)
    """Entries of each."""
    codebook_width: Width = 8
    decoder_width: Width = 1536
    """Channels after the first convolution; each block halves them."""
    decoder_strides: _Strides = (8, 8, 4, 2)

    @property
    def hop(self) -> int:
        """Samples of a frame."""
        return prod(self.encoder_strides) << self.halvings

    @property
    def work(self) -> int:
        """Bytes at work, in float32: what streams carry, and the widest layer at the rate of samples, four times."""
        top = self.encoder_width << len(self.encoder_strides)
        carried = self.layers * self.window * self.latent * TOGETHER + self.encoder_layers * self.encoder_window * top
        channels = max(self.encoder_width, self.decoder_width >> len(self.decoder_strides))
        return 4 * (2 * carried + 4 * TOGETHER * _LONGEST_PIECE * self.hop * channels)

    @classmethod
    def from_shapes(cls, shapes: Mapping[str, tuple[int, ...]], untold: _Untold) -> CodecSizes:
        """Those of a checkpoint's tensors, weight norms folded, and those that no tensor tells.

        Raises:
            WeightsError: a tensor that tells a size is missing, or tells an impossible one.
        """

        def numbered(name: str, start: int = 0) -> list[tuple[int, ...]]:
            names = (name.format(i) for i in count(start))
            return [shapes[name] for name in takewhile(shapes.__contains__, names)]

        encoder = numbered("encoder.block.{}.block.4.conv.weight", 1)
        top = f"encoder.block.{len(encoder)}.block.5.layers"
        quantizer = "quantizer.quantizer.quantizers.{}.codebook.weight"
        try:
            semantic = shapes["quantizer.semantic_quantizer.quantizers.0.codebook.weight"]
            sizes = cls(
                encoder_width=shapes["encoder.block.0.conv.weight"][0],
                encoder_strides=tuple(shape[2] // 2 for shape in encoder),
                encoder_layers=len(numbered(top + ".{}.feed_forward.w1.weight")),
                encoder_mlp=shapes[f"{top}.0.feed_forward.w1.weight"][0],
                latent=shapes["decoder.model.0.conv.weight"][1],
                halvings=len(numbered("quantizer.downsample.{}.0.conv.weight")),
                layers=len(numbered("quantizer.pre_module.layers.{}.feed_forward.w1.weight")),
                mlp=shapes["quantizer.pre_module.layers.0.feed_forward.w1.weight"][0],
                codebooks=(semantic[0], *(shape[0] for shape in numbered(quantizer))),
                codebook_width=semantic[1],
                decoder_width=shapes["decoder.model.0.conv.weight"][0],
                decoder_strides=tuple(s[2] // 2 for s in numbered("decoder.model.{}.block.1.conv.weight", 1)),
                **untold.model_dump(),
            )
        except KeyError as missing:
            raise WeightsError(f"the codec has no tensor {missing.args[0]!r}") from missing
        widths = sizes.latent, sizes.encoder_width << len(sizes.encoder_strides)
        if any(width % sizes.head_width for width in widths) or not sizes.decoder_width >> len(sizes.decoder_strides):
            raise WeightsError("its widths do not fit its heads and strides")
        if prod(sizes.encoder_strides) != prod(sizes.decoder_strides) or sizes.hop > _LARGEST_HOP:
            raise WeightsError(f"its strides are {sizes.encoder_strides} one way, {sizes.decoder_strides} the other")
        return sizes


def _encoder(sizes: CodecSizes) -> LayerGroup:
    width = sizes.encoder_width
    blocks: list[list[nn.Module]] = []
    for stride in sizes.encoder_strides:
        units = [residual_unit(width, dilation) for dilation in _DILATIONS]
        blocks.append([*units, Snake(width), Conv(width, 2 * width, 2 * stride, stride=stride)])
        width *= 2
    layers, mlp, window = sizes.encoder_layers, sizes.encoder_mlp, sizes.encoder_window
    blocks[-1].append(Transformer(width, layers, mlp, window, sizes.head_width))
    first, last = Conv(1, sizes.encoder_width, 7), Conv(width, sizes.latent, 3)
    return LayerGroup("block", [first, *(LayerGroup("block", block) for block in blocks), Snake(width), last])


def _decoder(sizes: CodecSizes) -> LayerGroup:
    width = sizes.decoder_width
    layers: list[nn.Module] = [Conv(sizes.latent, width, 7)]
    for stride in sizes.decoder_strides:
        half = width // 2
        units = [residual_unit(half, dilation) for dilation in _DILATIONS]
        layers.append(LayerGroup("block", [Snake(width), TransposedConv(width, half, 2 * stride, stride), *units]))
        width = half
    return LayerGroup("model", [*layers, Snake(width), Conv(width, 1, 7)])


class _Codebook(nn.Module):
    def __init__(self, sizes: CodecSizes, entries: int) -> None:
        super().__init__()
        self.in_proj = nn.Conv1d(sizes.latent, sizes.codebook_width, 1)
        self.out_proj = nn.Conv1d(sizes.codebook_width, sizes.latent, 1)
        # Not drawn at random: to draw normal numbers without storage, torch loads its compiler for seconds.
        self.codebook = nn.Embedding.from_pretrained(torch.empty(entries, sizes.codebook_width))

    def nearest(self, x: Tensor) -> Tensor:
        """(batch, latent, time) → (batch, time) the entry at the smallest angle."""
        return cast("Tensor", (self.in_proj(x).transpose(1, 2) @ F.normalize(self.codebook.weight).T).argmax(-1))

    def entry(self, codes: Tensor) -> Tensor:
        """(batch, time) → (batch, latent, time); codes beyond the last entry take it."""
        entries: Tensor = self.codebook(codes.clamp(max=self.codebook.num_embeddings - 1))
        return cast("Tensor", self.out_proj(entries.transpose(1, 2)))


class DualQuantizer(nn.Module):
    """Latents of the encoder to codes, and codes to latents of the decoder."""

    def __init__(self, sizes: CodecSizes) -> None:
        super().__init__()
        latent, stages = sizes.latent, range(sizes.halvings)
        self.downsample = Chain(Chain([Conv(latent, latent, 2, stride=2), ConvNext(latent)]) for _ in stages)
        self.pre_module = Transformer(latent, sizes.layers, sizes.mlp, sizes.window, sizes.head_width)
        first, *others = (_Codebook(sizes, entries) for entries in sizes.codebooks)
        self.semantic_quantizer = nn.ModuleDict({"quantizers": nn.ModuleList([first])})
        self.quantizer = nn.ModuleDict({"quantizers": nn.ModuleList(others)})
        self.post_module = Transformer(latent, sizes.layers, sizes.mlp, sizes.window, sizes.head_width)
        self.upsample = Chain(Chain([TransposedConv(latent, latent, 2, 2), ConvNext(latent)]) for _ in stages)

    def _codebooks(self) -> list[_Codebook]:
        parts = (self.semantic_quantizer, self.quantizer)
        return cast("list[_Codebook]", [book for part in parts for book in part["quantizers"].children()])

    def latents(self, x: Tensor, carry: Carry) -> Tensor:
        """(batch, latent, time) of the encoder → (batch, latent, frames)."""
        return cast("Tensor", self.pre_module(self.downsample(x, carry), carry))

    def encode(self, x: Tensor, carry: Carry) -> Tensor:
        """(batch, latent, time) → (batch, frames, codebooks): each codebook takes what those before it left."""
        rest = self.latents(x, carry)
        codes = []
        for codebook in self._codebooks():
            codes.append(codebook.nearest(rest))
            rest = rest - codebook.entry(codes[-1])
        return torch.stack(codes, dim=-1)

    def decode(self, codes: Tensor, carry: Carry) -> Tensor:
        """(batch, frames, codebooks) → (batch, latent, time)."""
        x = sum(book.entry(column) for book, column in zip(self._codebooks(), codes.unbind(-1), strict=True))
        return cast("Tensor", self.upsample(self.post_module(x, carry), carry))


class DualCodec(nn.Module):
    """Encoder, quantizer and decoder of one checkpoint; float32 on any device."""

    sample_rate = SAMPLE_RATE

    def __init__(self, sizes: CodecSizes) -> None:
        super().__init__()
        self.sizes, self.hop = sizes, sizes.hop
        self.encoder = _encoder(sizes)
        self.quantizer = DualQuantizer(sizes)
        self.decoder = _decoder(sizes)

    @property
    def device(self) -> torch.device:
        """Where it is."""
        return next(self.parameters()).device

    @torch.inference_mode()
    def encode(self, samples: Tensor) -> Tensor:
        """Mono audio (time,), float32 at 44,100 Hz → codes (frames, codebooks), int64 on the CPU.

        The end is filled with zeros to a whole frame.
        """
        samples = F.pad(samples, (0, -len(samples) % self.hop))
        codes, state = [torch.empty(0, len(self.sizes.codebooks), dtype=torch.int64)], None
        with torch.cuda.stream(side_stream(self.device)):  # beside the frames of others
            for piece in samples.split(_AT_ONCE * self.hop) if len(samples) else ():
                carry = Carry([state])
                x = self.encoder(piece.to(self.device)[None, None], carry)
                codes.append(self.quantizer.encode(x, carry)[0].cpu())
                (state,) = carry.states()
        return torch.cat(codes)

    @torch.inference_mode()
    def decode(self, codes: Tensor) -> Tensor:
        """Codes (frames, codebooks), int64 → audio (frames · hop,), float32 on the CPU."""
        samples = [torch.empty(0)]
        states: Sequence[State | None] = [None]
        for piece in codes.split(_AT_ONCE) if len(codes) else ():
            audio, states = self.decode_pieces(piece[None].to(self.device), states)
            samples.append(audio[0].cpu())
        return torch.cat(samples)

    @torch.inference_mode()
    def decode_pieces(self, codes: Tensor, states: Sequence[State | None]) -> tuple[Tensor, list[State]]:
        """The next piece of several streams.

        Args:
            codes: (streams, frames, codebooks) int64 on the codec's device.
            states: of each stream after the piece before; None at its start.

        Returns:
            (streams, frames · hop) float32 on the codec's device, and the states after.
        """
        carry = Carry(states)
        return self._audio(codes, carry), carry.states()

    def decode_more(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """`decode_pieces` as a function of tensors: pasts (streams, …), codes (streams, codebooks, frames) → audio, pasts."""
        *pasts, codes = tensors
        carry = Carry([tuple(pasts)])
        return self._audio(codes.transpose(1, 2), carry), *carry.after

    def _audio(self, codes: Tensor, carry: Carry) -> Tensor:
        return torch.tanh(self.decoder(self.quantizer.decode(codes, carry), carry)[:, 0])


def side_stream(device: torch.device) -> torch.cuda.Stream | None:
    """A CUDA stream beside that of the language models, which comes after what was queued there; None on other devices."""
    if device.type != "cuda":
        return None
    stream = torch.cuda.Stream(device)
    stream.wait_stream(torch.cuda.current_stream(device))
    return stream


class _Stream:
    """A stream of codes: its state after the latest piece."""

    state: State | None = None


class DualDecoding:
    """The codec's decoder at work for so many streams at once, as `Decoding` says; compile: see DualStep.

    Pieces of one length are one batch, on a CUDA stream of its own.
    """

    def __init__(self, codec: DualCodec, together: int, *, compile: bool | None = False) -> None:
        self._codec, self.together = codec, together
        wanted = was_compiled(codec.device) if compile is None else compile
        self._more = compile_frame(codec.decode_more, must=compile is True, **COMPILING) if wanted else None
        self.sample_rate, self.hop, self.codebooks = codec.sample_rate, codec.hop, len(codec.sizes.codebooks)
        self._stream = side_stream(codec.device)

    def prepare(self) -> None:
        """Compiles, so that nobody waits later; where convolutions of many streams are others, for these too."""
        for streams in {1, min(2, self.together), self.together} if self._more is not None else ():
            begun = [_Stream() for _ in range(streams)]
            for _ in range(2):
                self.feed([Piece(one, torch.zeros(2, self.codebooks, dtype=torch.int64), last=False) for one in begun])

    def open(self, voice: Any) -> _Stream:  # noqa: ARG002 - its codes say all
        """See Decoding."""
        return _Stream()

    def feed(self, pieces: Sequence[Piece]) -> list[Samples]:
        """See Decoding."""
        samples = [torch.empty(0).numpy()] * len(pieces)
        for length in {len(piece.codes) for piece in pieces} - {0}:
            places = [place for place, piece in enumerate(pieces) if len(piece.codes) == length]
            for place, decoded in zip(places, self._decode([pieces[place] for place in places]), strict=True):
                samples[place] = decoded
        return samples

    @torch.inference_mode()
    def _decode(self, pieces: Sequence[Piece]) -> list[Samples]:
        before = [piece.stream.state for piece in pieces]
        with torch.cuda.stream(self._stream):
            codes = torch.stack([piece.codes for piece in pieces]).to(self._codec.device)
            # First pieces, and those of one frame, would each be compiled anew.
            if self._more is None or None in before or codes.shape[1] == 1:
                audio, states = self._codec.decode_pieces(codes, before)
            else:
                pasts = map(torch.cat, zip(*before, strict=True))
                audio, *after = self._more(*pasts, codes.transpose(1, 2).contiguous())
                states = list(zip(*(one.split(1) for one in after), strict=True))
            samples = audio.cpu().numpy()  # waits for this stream alone
        for piece, state in zip(pieces, states, strict=True):
            piece.stream.state = state
        return list(samples)


class CodecFile(NamedTuple):
    """`codec.pth`, as the hub has it or plain, with weight norms of either form, before its numbers are read."""

    codec: DualCodec
    """Without numbers."""
    files: TensorFiles
    normed: set[str]
    """Weights that are there as gain and direction."""

    @classmethod
    def open(cls, path: Path) -> CodecFile:
        """Of the sizes of its tensors; a `sizes.json` beside it may give what none tells: window, encoder_window, head_dim.

        Raises:
            WeightsError: the file is none, or a tensor is missing, too many, or of the wrong shape or type.
        """
        files, beside = TensorFiles.open(path).renamed(_plain_name), path.with_name("sizes.json")
        untold = read_json(beside, TypeAdapter(_Untold)) if beside.exists() else _Untold()
        shapes = {name.removesuffix("_v"): entry.shape for name, entry in files.entries.items()}
        with naming(path), torch.device("meta"):
            codec = DualCodec(CodecSizes.from_shapes(shapes, untold))
        parameters = {name: tuple(parameter.shape) for name, parameter in codec.named_parameters()}
        normed = {name for name in parameters if name + "_v" in files.entries}
        expected = {name: shape for name, shape in parameters.items() if name not in normed}
        for name in normed:
            first, *others = parameters[name]
            expected |= {name + "_v": (first, *others), name + "_g": (first, *[1] * len(others))}
        files.check(expected)
        return cls(codec, files, normed)

    def load(self, device: torch.device) -> DualCodec:
        """The codec on a device, in float32. Raises WeightsError: numbers cannot be read, or are not finite."""
        if device.type == "cuda":
            torch.backends.cudnn.allow_tf32 = _TF32

        def read(name: str) -> Tensor:
            return self.files.read(name, device, torch.float32)

        # Weight = g · v / ‖v‖, over all but the first axis.
        weights = {name: torch._weight_norm(read(name + "_v"), read(name + "_g"), 0) for name in self.normed}  # noqa: SLF001
        weights |= {name: read(name) for name in self.codec.state_dict() if name not in self.normed}
        self.codec.load_state_dict(weights, assign=True)
        return self.codec.requires_grad_(requires_grad=False).eval()


def _plain_name(name: str) -> str | None:
    """Without the prefix of the whole model, weight norms in the form of two tensors beside each other; no buffers."""
    name = name.removeprefix("generator.")
    if name.endswith((".freqs_cis", ".causal_mask")):
        return None
    return name.replace(".parametrizations.weight.original0", ".weight_g").replace(
        ".parametrizations.weight.original1", ".weight_v"
    )

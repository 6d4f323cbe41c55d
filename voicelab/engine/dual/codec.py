"""The codec of open weights: encodes 44.1 kHz audio as ten integers per frame of 2,048 samples, and decodes them, causally.

Encoder: strided convolutions and a transformer (similar to DAC, Kumar et al., 2023), two further downsamplings by 2, a
transformer, residual vector quantization with low-dimensional codebooks. Decoder: the sum of the codebooks' entries, a
transformer, two upsamplings by 2, convolutions. Everything is causal, so both directions stream in blocks of any length with
a state of fixed size, and give the same result as processing everything at once.

A layer takes (batch, channels, time) and a `Carry`, from which it reads its state after the previous block and to which it
appends its new state. It keeps no state itself, so one module serves any number of streams, alone or in a batch.
Layers are named as in the checkpoint.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count, takewhile
from math import prod
from pathlib import Path
from typing import Annotated, Any, NamedTuple, cast

import numpy as np
import torch
from pydantic import BaseModel, Field, TypeAdapter
from pydantic.dataclasses import dataclass
from torch import Tensor, nn
from torch.nn import functional as F

from voicelab.engine.core.decoding import CodeBlock, Samples
from voicelab.engine.core.fused import Regions
from voicelab.engine.core.layers import Carry, Chain, Conv, LayerGroup, State
from voicelab.engine.dual.config import STRICT, Count, HeadWidth, Width
from voicelab.engine.dual.files import TensorFiles, naming, read_json
from voicelab.engine.dual.tower import rotary, rotate
from voicelab.errors import WeightsError

_ROTARY_BASE = 10_000.0


class TransposedConv(nn.Module):
    """A causal transposed convolution: outputs beyond the input's end are dropped."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int) -> None:
        super().__init__()
        self.conv = nn.ConvTranspose1d(inputs, outputs, kernel, stride)
        self._context, self._stride = (kernel - 1) // stride, stride

    def forward(self, x: Tensor, carry: Carry) -> Tensor:
        """Convolve (batch, inputs, n) to (batch, outputs, n · stride)."""
        y = self.conv(carry.join(x, self._context))
        return cast("Tensor", y.narrow(-1, self._context * self._stride, x.shape[-1] * self._stride))


class Snake(nn.Module):
    """x + sin²(αx) / α (Ziyin et al., 2020), with an α per channel."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.ones(1, channels, 1))

    def forward(self, x: Tensor, _: Carry) -> Tensor:
        """Apply the activation elementwise."""
        return x + torch.sin(self.alpha * x).square() / (self.alpha + 1e-9)


def residual_unit(channels: int, dilation: int) -> LayerGroup:
    """Build a residual block: snake, dilated convolution, snake, pointwise convolution."""
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
        """Add a depthwise convolution and a pointwise MLP, scaled, to the input."""
        y: Tensor = self.norm(self.dwconv(x, carry).transpose(1, 2))
        y = self.gamma * self.pwconv2(F.gelu(self.pwconv1(y)))
        return x + y.transpose(1, 2)


class Transformer(nn.Module):
    """A transformer over time with windowed attention: a step attends to itself and to the ``window`` − 1 steps before it."""

    def __init__(self, width: int, layers: int, mlp: int, window: int, head_width: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(_CodecLayer(width, mlp, window, head_width) for _ in range(layers))
        self.norm = nn.RMSNorm(width, eps=1e-5)
        self._window, self._head_width = window, head_width

    def forward(self, x: Tensor, carry: Carry) -> Tensor:
        """Transform (batch, width, time) to the same shape."""
        steps, past = x.shape[-1], self._window - 1
        start = carry.positions(steps, x.device)[:, None]
        step, key = torch.arange(steps, device=x.device), torch.arange(past + steps, device=x.device)
        in_window = (key >= step[:, None]) & (key <= step[:, None] + past)
        mask = in_window & (start + key >= past)[:, None]  # keys before the stream's start are padding
        turn = rotary(start + step, self._head_width, _ROTARY_BASE).float()[:, None]
        x = x.transpose(1, 2)
        for layer in self.layers:
            x = layer(x, turn, mask[:, None], carry)
        y: Tensor = self.norm(x)
        return y.transpose(1, 2)


class _CodecLayer(nn.Module):
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
        """Transform (batch, time, width) to the same shape."""
        qkv = self.attention["wqkv"](self.attention_norm(x)).unflatten(-1, (3, -1, self._head_width))
        q, k, v = qkv.permute(2, 0, 3, 1, 4)  # each (batch, heads, time, head width)
        q, k = rotate(q, turn), carry.join(rotate(k, turn), self._past, dim=2)
        y = F.scaled_dot_product_attention(q, k, carry.join(v, self._past, dim=2), attn_mask=mask)
        x = x + self.attention_layer_scale.gamma * self.attention["wo"](y.transpose(1, 2).flatten(2))
        y, mlp = self.ffn_norm(x), self.feed_forward
        return cast("Tensor", x + self.ffn_layer_scale.gamma * mlp["w2"](F.silu(mlp["w1"](y)) * mlp["w3"](y)))


SAMPLE_RATE = 44_100
_DILATIONS = (1, 3, 9)
MAX_STREAMS = 16
"""Maximum number of streams per decoding batch."""
_MAX_BLOCK_FRAMES = 24
"""Maximum frames per block of a decoding batch, for the memory estimate."""
_MAX_HOP = 1 << 16
_TF32 = False
"""Whether convolutions on CUDA devices use TF32. The setting applies to the whole process; torch's default is True."""
COMPILING: Mapping[str, bool] = {"emulate_precision_casts": True}
"""Options for compiling the decoder, which preserve the rounding of `rotary` to bf16."""
_CHUNK_FRAMES = 64
"""Frames (3 s) per chunk when encoding or decoding a complete recording, to bound the memory."""


_Strides = Annotated[tuple[Annotated[int, Field(ge=1, le=64)], ...], Field(min_length=1, max_length=8)]
_Window = Annotated[int, Field(ge=1, le=1 << 13)]


class _ExtraSizes(BaseModel, strict=True):
    """Codec sizes that tensor shapes do not determine; the file ``sizes.json`` may set them."""

    window: _Window = 128
    encoder_window: _Window = 512
    head_width: HeadWidth = Field(default=64, validation_alias="head_dim")


@dataclass(frozen=True, config=STRICT)
class CodecSizes:
    """Sizes of a codec, within bounds; the defaults are those of the published codec."""

    encoder_width: Width = 64
    """Channels after the first convolution; doubled by each block."""
    encoder_strides: _Strides = (2, 4, 8, 8)
    encoder_layers: Count = 4
    encoder_mlp: Width = 3072
    encoder_window: _Window = 512
    """Window of the encoder's transformer, in steps; not derivable from tensors."""
    latent: Width = 1024
    halvings: Annotated[int, Field(ge=0, le=8)] = 2
    layers: Count = 8
    """Number of layers of each of the two transformers, before and after the quantizer."""
    mlp: Width = 3072
    window: _Window = 128
    """Window of these two transformers, in frames; not derivable from tensors."""
    head_width: HeadWidth = 64
    """Head width of all transformers; not derivable from tensors."""
    codebooks: Annotated[tuple[Width, ...], Field(min_length=1, max_length=64)] = (4096, *[1024] * 9)
    """Number of entries of each codebook."""
    codebook_width: Width = 8
    decoder_width: Width = 1536
    """Channels after the first convolution; halved by each block."""
    decoder_strides: _Strides = (8, 8, 4, 2)

    @property
    def hop(self) -> int:
        """Samples per frame."""
        return prod(self.encoder_strides) << self.halvings

    @property
    def work(self) -> int:
        """Bytes of working memory in float32: stream states, and four times the widest layer at the sample rate."""
        top = self.encoder_width << len(self.encoder_strides)
        state = self.layers * self.window * self.latent * MAX_STREAMS + self.encoder_layers * self.encoder_window * top
        channels = max(self.encoder_width, self.decoder_width >> len(self.decoder_strides))
        return 4 * (2 * state + 4 * MAX_STREAMS * _MAX_BLOCK_FRAMES * self.hop * channels)

    @classmethod
    def from_shapes(cls, shapes: Mapping[str, tuple[int, ...]], extra: _ExtraSizes) -> CodecSizes:
        """Derive the sizes from the shapes of a checkpoint's tensors, in which weight norms are merged into weights.

        Raises:
            WeightsError: a tensor is missing, or its size is invalid.
        """

        def matching_shapes(name: str, start: int = 0) -> list[tuple[int, ...]]:
            names = (name.format(i) for i in count(start))
            return [shapes[name] for name in takewhile(shapes.__contains__, names)]

        encoder = matching_shapes("encoder.block.{}.block.4.conv.weight", 1)
        top = f"encoder.block.{len(encoder)}.block.5.layers"
        quantizer = "quantizer.quantizer.quantizers.{}.codebook.weight"
        try:
            semantic = shapes["quantizer.semantic_quantizer.quantizers.0.codebook.weight"]
            sizes = cls(
                encoder_width=shapes["encoder.block.0.conv.weight"][0],
                encoder_strides=tuple(shape[2] // 2 for shape in encoder),
                encoder_layers=len(matching_shapes(top + ".{}.feed_forward.w1.weight")),
                encoder_mlp=shapes[f"{top}.0.feed_forward.w1.weight"][0],
                latent=shapes["decoder.model.0.conv.weight"][1],
                halvings=len(matching_shapes("quantizer.downsample.{}.0.conv.weight")),
                layers=len(matching_shapes("quantizer.pre_module.layers.{}.feed_forward.w1.weight")),
                mlp=shapes["quantizer.pre_module.layers.0.feed_forward.w1.weight"][0],
                codebooks=(semantic[0], *(shape[0] for shape in matching_shapes(quantizer))),
                codebook_width=semantic[1],
                decoder_width=shapes["decoder.model.0.conv.weight"][0],
                decoder_strides=tuple(s[2] // 2 for s in matching_shapes("decoder.model.{}.block.1.conv.weight", 1)),
                **extra.model_dump(),
            )
        except KeyError as missing:
            raise WeightsError(f"the codec has no tensor {missing.args[0]!r}") from missing
        widths = sizes.latent, sizes.encoder_width << len(sizes.encoder_strides)
        if any(width % sizes.head_width for width in widths) or not sizes.decoder_width >> len(sizes.decoder_strides):
            raise WeightsError(
                f"the codec's latent and encoder widths {widths} must be multiples of its head width {sizes.head_width}, "
                f"and its decoder width {sizes.decoder_width} at least {1 << len(sizes.decoder_strides)}"
            )
        if prod(sizes.encoder_strides) != prod(sizes.decoder_strides):
            raise WeightsError(
                f"encoder strides {sizes.encoder_strides} do not match decoder strides {sizes.decoder_strides}"
            )
        if sizes.hop > _MAX_HOP:
            raise WeightsError(f"a frame of the codec must have at most {_MAX_HOP} samples, got {sizes.hop}")
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
    enter, leave = Conv(1, sizes.encoder_width, 7), Conv(width, sizes.latent, 3)
    return LayerGroup("block", [enter, *(LayerGroup("block", block) for block in blocks), Snake(width), leave])


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
        # Uninitialized: to draw normal numbers on the meta device, torch imports its compiler, which takes seconds.
        self.codebook = nn.Embedding.from_pretrained(torch.empty(entries, sizes.codebook_width))

    def nearest(self, x: Tensor) -> Tensor:
        """Find the codebook entries (batch, time) at the smallest angle to latents (batch, latent, time)."""
        return cast("Tensor", (self.in_proj(x).transpose(1, 2) @ F.normalize(self.codebook.weight).T).argmax(-1))

    def entry(self, codes: Tensor) -> Tensor:
        """Look up the latents (batch, latent, time) of codes (batch, time); codes out of range get the last entry."""
        entries: Tensor = self.codebook(codes.clamp(max=self.codebook.num_embeddings - 1))
        return cast("Tensor", self.out_proj(entries.transpose(1, 2)))


class DualQuantizer(nn.Module):
    """Quantizer from the encoder's latents to codes, and from codes to the decoder's latents."""

    def __init__(self, sizes: CodecSizes) -> None:
        super().__init__()
        latent, stages = sizes.latent, range(sizes.halvings)
        self.downsample = Chain(Chain([Conv(latent, latent, 2, stride=2), ConvNext(latent)]) for _ in stages)
        self.pre_module = Transformer(latent, sizes.layers, sizes.mlp, sizes.window, sizes.head_width)
        semantic, *residual = (_Codebook(sizes, entries) for entries in sizes.codebooks)
        self.semantic_quantizer = nn.ModuleDict({"quantizers": nn.ModuleList([semantic])})
        self.quantizer = nn.ModuleDict({"quantizers": nn.ModuleList(residual)})
        self.post_module = Transformer(latent, sizes.layers, sizes.mlp, sizes.window, sizes.head_width)
        self.upsample = Chain(Chain([TransposedConv(latent, latent, 2, 2), ConvNext(latent)]) for _ in stages)

    def _codebooks(self) -> list[_Codebook]:
        groups = (self.semantic_quantizer, self.quantizer)
        return cast("list[_Codebook]", [book for group in groups for book in group["quantizers"].children()])

    def latents(self, x: Tensor, carry: Carry) -> Tensor:
        """Downsample encoder output (batch, latent, time) to (batch, latent, frames)."""
        return cast("Tensor", self.pre_module(self.downsample(x, carry), carry))

    def encode(self, x: Tensor, carry: Carry) -> Tensor:
        """Quantize (batch, latent, time) to codes (batch, frames, codebooks); each codebook encodes the previous residual."""
        residual = self.latents(x, carry)
        codes = []
        for codebook in self._codebooks():
            codes.append(codebook.nearest(residual))
            residual = residual - codebook.entry(codes[-1])
        return torch.stack(codes, dim=-1)

    def decode(self, codes: Tensor, carry: Carry) -> Tensor:
        """Decode codes (batch, frames, codebooks) to latents (batch, latent, time)."""
        x = sum(book.entry(column) for book, column in zip(self._codebooks(), codes.unbind(-1), strict=True))
        return cast("Tensor", self.upsample(self.post_module(x, carry), carry))


class DualCodec(nn.Module):
    """Encoder, quantizer and decoder of one checkpoint, in float32 on any device."""

    sample_rate = SAMPLE_RATE

    def __init__(self, sizes: CodecSizes) -> None:
        super().__init__()
        self.sizes, self.hop = sizes, sizes.hop
        self.encoder = _encoder(sizes)
        self.quantizer = DualQuantizer(sizes)
        self.decoder = _decoder(sizes)

    @property
    def device(self) -> torch.device:
        """Device of the parameters."""
        return next(self.parameters()).device

    @torch.inference_mode()
    def encode(self, samples: Tensor) -> Tensor:
        """Encode mono audio (time,), float32 at 44,100 Hz, to codes (frames, codebooks), int64 on the CPU.

        The end is zero-padded to a full frame.
        """
        samples = F.pad(samples, (0, -len(samples) % self.hop))
        codes, state = [torch.empty(0, len(self.sizes.codebooks), dtype=torch.int64)], None
        with torch.cuda.stream(side_stream(self.device)):  # concurrent with the language models' frames
            for block in samples.split(_CHUNK_FRAMES * self.hop) if len(samples) else ():
                carry = Carry([state])
                x = self.encoder(block.to(self.device)[None, None], carry)
                codes.append(self.quantizer.encode(x, carry)[0].cpu())
                (state,) = carry.states()
        return torch.cat(codes)

    @torch.inference_mode()
    def decode(self, codes: Tensor) -> Tensor:
        """Decode codes (frames, codebooks), int64, to audio (frames · hop,), float32 on the CPU."""
        samples = [torch.empty(0)]
        states: Sequence[State | None] = [None]
        for block in codes.split(_CHUNK_FRAMES) if len(codes) else ():
            audio, states = self.decode_blocks(block[None].to(self.device), states)
            samples.append(audio[0].cpu())
        return torch.cat(samples)

    @torch.inference_mode()
    def decode_blocks(self, codes: Tensor, states: Sequence[State | None]) -> tuple[Tensor, list[State]]:
        """Decode the next block of several streams.

        Args:
            codes: (streams, frames, codebooks) int64 on the codec's device.
            states: state of each stream after its previous block; None at its start.

        Returns:
            Audio (streams, frames · hop), float32 on the codec's device, and the new states.
        """
        carry = Carry(states)
        return self._audio(codes, carry), carry.states()

    def decode_tensors(self, codes: Tensor, *pasts: Tensor) -> tuple[Tensor, ...]:
        """Decode like `decode_blocks`, but take and return only tensors, so that the function can be compiled.

        Args:
            codes: (streams, codebooks, frames).
            pasts: states of the layers, each (streams, …).

        Returns:
            Audio, then the new states.
        """
        carry = Carry([pasts])
        return self._audio(codes.transpose(1, 2), carry), *carry.after

    def _audio(self, codes: Tensor, carry: Carry) -> Tensor:
        return torch.tanh(self.decoder(self.quantizer.decode(codes, carry), carry)[:, 0])


def side_stream(device: torch.device) -> torch.cuda.Stream | None:
    """Create a CUDA stream that starts after the work queued on the current stream; return None on other devices."""
    if device.type != "cuda":
        return None
    stream = torch.cuda.Stream(device)
    stream.wait_stream(torch.cuda.current_stream(device))
    return stream


class _Stream:
    """State of a decoding stream after its latest block."""

    state: State | None = None


class DualDecoding:
    """Implementation of `core.decoding.Decoding`: batched streaming with the codec's decoder, compiled on request.

    Blocks of equal length are decoded as one batch, on a separate CUDA stream.
    """

    def __init__(self, codec: DualCodec, max_batch: int, *, compile: bool = False) -> None:
        self._codec, self.max_batch = codec, max_batch
        self._regions = Regions(required=True, **COMPILING) if compile else None
        self._compiled = self._regions.compiled(codec.decode_tensors, {0: -1}) if self._regions else None
        self.sample_rate, self.hop, self.codebooks = codec.sample_rate, codec.hop, len(codec.sizes.codebooks)
        self._stream = side_stream(codec.device)

    def prepare(self) -> None:
        """Compile the decoder ahead of time, once for each batch size that needs different convolution kernels."""
        if self._regions is None:
            return
        sizes = sorted({1, min(2, self.max_batch), self.max_batch})
        for number, streams in enumerate(sizes, 1):
            begun = [_Stream() for _ in range(streams)]
            with self._regions.progress(f"the codec for {streams} streams (step {number} of {len(sizes)})"):
                for _ in range(2):
                    codes = np.zeros((2, self.codebooks), np.int64)
                    self.feed([CodeBlock(stream, codes, final=False) for stream in begun])

    def open(self, voice: Any) -> _Stream:  # noqa: ARG002 - decoding depends on the codes only
        """Open a stream; the voice is unused, since decoding depends on the codes only."""
        return _Stream()

    def feed(self, blocks: Sequence[CodeBlock]) -> list[Samples]:
        """Decode one block per stream; return the samples that each block completes."""
        samples = [torch.empty(0).numpy()] * len(blocks)
        for length in {len(block.codes) for block in blocks} - {0}:
            indices = [index for index, block in enumerate(blocks) if len(block.codes) == length]
            for index, decoded in zip(indices, self._decode([blocks[index] for index in indices]), strict=True):
                samples[index] = decoded
        return samples

    @torch.inference_mode()
    def _decode(self, blocks: Sequence[CodeBlock]) -> list[Samples]:
        before = [block.stream.state for block in blocks]
        with torch.cuda.stream(self._stream):
            codes = torch.from_numpy(np.stack([block.codes for block in blocks])).to(self._codec.device)
            # First blocks, and those of one frame, would each need another compilation.
            if self._compiled is None or None in before or codes.shape[1] == 1:
                audio, states = self._codec.decode_blocks(codes, before)
            else:
                pasts = map(torch.cat, zip(*before, strict=True))
                audio, *after = self._compiled(codes.transpose(1, 2).contiguous(), *pasts)
                states = list(zip(*(tensor.split(1) for tensor in after), strict=True))
            samples = audio.cpu().numpy()  # synchronizes this stream only
        for block, state in zip(blocks, states, strict=True):
            block.stream.state = state
        return list(samples)


class CodecFile(NamedTuple):
    """A `codec.pth` whose tensors are not read yet.

    Tensor names may have the prefix of the published file, and weight norms may be in either of torch's two forms.
    """

    codec: DualCodec
    """The codec, on the meta device."""
    files: TensorFiles
    normed: set[str]
    """Names of the weights that are stored as gain and direction."""

    @classmethod
    def open(cls, path: Path) -> CodecFile:
        """Open a codec file and derive the sizes from its tensors, and from `sizes.json` in its folder, if that exists.

        Raises:
            WeightsError: the file is not a codec, or a tensor is missing, unknown, or of the wrong shape or type.
        """
        files, sizes_file = TensorFiles.open(path).renamed(_plain_name), path.with_name("sizes.json")
        extra = read_json(sizes_file, TypeAdapter(_ExtraSizes)) if sizes_file.exists() else _ExtraSizes()
        shapes = {name.removesuffix("_v"): entry.shape for name, entry in files.entries.items()}
        with naming(path), torch.device("meta"):
            codec = DualCodec(CodecSizes.from_shapes(shapes, extra))
        parameters = {name: tuple(parameter.shape) for name, parameter in codec.named_parameters()}
        normed = {name for name in parameters if name + "_v" in files.entries}
        expected = {name: shape for name, shape in parameters.items() if name not in normed}
        for name in normed:
            rows, *trailing = parameters[name]
            expected |= {name + "_v": (rows, *trailing), name + "_g": (rows, *[1] * len(trailing))}
        files.check(expected)
        return cls(codec, files, normed)

    def load(self, device: torch.device) -> DualCodec:
        """Load the codec onto a device, in float32. Raises WeightsError if values cannot be read, or are not finite."""
        if device.type == "cuda":
            torch.backends.cudnn.allow_tf32 = _TF32

        def read(name: str) -> Tensor:
            return self.files.read(name, device, torch.float32)

        # Weight = g · v / ‖v‖, over all axes but the first.
        weights = {name: torch._weight_norm(read(name + "_v"), read(name + "_g"), 0) for name in self.normed}  # noqa: SLF001
        weights |= {name: read(name) for name in self.codec.state_dict() if name not in self.normed}
        self.codec.load_state_dict(weights, assign=True)
        return self.codec.requires_grad_(requires_grad=False).eval()


def _plain_name(name: str) -> str | None:
    """Remove the prefix of a tensor name, and rename weight norms to ``weight_g``, ``weight_v``; return None for buffers."""
    name = name.removeprefix("generator.")
    if name.endswith((".freqs_cis", ".causal_mask")):
        return None
    return name.replace(".parametrizations.weight.original0", ".weight_g").replace(
        ".parametrizations.weight.original1", ".weight_v"
    )

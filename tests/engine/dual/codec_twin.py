"""The open weights' codec once more, slow and plain, in float64: no state, no modules, whole signals only.

Written from the facts alone; the engine's codec is compared with it. `turned` states one fact wrongly, to show that the
comparison would notice: the numbers of a codec with such a mistake are what a test must tell from the right ones.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F


@dataclass(frozen=True)
class CodecTwin:
    """A checkpoint's tensors by their plain names, weight norms not folded."""

    tensors: Mapping[str, Tensor]
    encoder_strides: tuple[int, ...]
    decoder_strides: tuple[int, ...]
    window: int
    encoder_window: int
    turned: str = ""
    head_width: int = 64

    def latents(self, samples: Tensor) -> Tensor:
        """(time,) → (latent, frames), what the quantizer is given."""
        hop = math.prod(self.encoder_strides) * 4
        x = F.pad(samples.double(), (0, -len(samples) % hop))[None]
        x = self._conv("encoder.block.0", x)
        for i, stride in enumerate(self.encoder_strides, 1):
            for j, dilation in enumerate(self._dilations):
                x = self._residual(f"encoder.block.{i}.block.{j}", x, dilation)
            x = self._snake(f"encoder.block.{i}.block.3", x)
            x = self._conv(f"encoder.block.{i}.block.4", x, stride=stride)
        x = self._transformer(f"encoder.block.{i}.block.5", x, self.encoder_window)
        x = self._conv(f"encoder.block.{i + 2}", self._snake(f"encoder.block.{i + 1}", x))
        for i in (0, 1):
            x = self._conv(f"quantizer.downsample.{i}.0", x, stride=2)
            x = self._convnext(f"quantizer.downsample.{i}.1", x)
        return self._transformer("quantizer.pre_module", x, self.window)

    def encode(self, samples: Tensor) -> Tensor:
        """(time,) → (frames, codebooks)."""
        rest, codes = self.latents(samples), []
        for name in self._codebooks:
            table = self._tensor(f"{name}.codebook.weight")
            query = self._conv(f"{name}.in_proj", rest, of="").T
            if self.turned == "entries by distance":
                codes.append(torch.cdist(query, table).argmin(1))
            else:
                codes.append((F.normalize(query) @ F.normalize(table).T).argmax(1))
            if self.turned != "nothing subtracted":
                rest = rest - self._entry(name, codes[-1])
        return torch.stack(codes, 1)

    def decode(self, codes: Tensor) -> Tensor:
        """(frames, codebooks) → (time,)."""
        columns = codes.T.flip(0) if self.turned == "codebooks backwards" else codes.T
        x = torch.stack([self._entry(name, column) for name, column in zip(self._codebooks, columns, strict=True)]).sum(
            0
        )
        x = self._transformer("quantizer.post_module", x, self.window)
        for i in (0, 1):
            x = self._convnext(f"quantizer.upsample.{i}.1", self._transposed(f"quantizer.upsample.{i}.0", x, 2))
        x = self._conv("decoder.model.0", x)
        for i, stride in enumerate(self.decoder_strides, 1):
            x = self._snake(f"decoder.model.{i}.block.0", x)
            x = self._transposed(f"decoder.model.{i}.block.1", x, stride)
            for j, dilation in enumerate(self._dilations, 2):
                x = self._residual(f"decoder.model.{i}.block.{j}", x, dilation)
        x = self._conv(f"decoder.model.{i + 2}", self._snake(f"decoder.model.{i + 1}", x))
        return x[0] if self.turned == "no tanh" else torch.tanh(x[0])

    @property
    def _dilations(self) -> tuple[int, int, int]:
        return (1, 1, 1) if self.turned == "no dilation" else (1, 3, 9)

    @property
    def _codebooks(self) -> list[str]:
        others = sum(name.endswith("codebook.weight") for name in self.tensors) - 1
        first = "quantizer.semantic_quantizer.quantizers.0"
        return [first, *(f"quantizer.quantizer.quantizers.{i}" for i in range(others))]

    def _tensor(self, name: str) -> Tensor:
        return self.tensors[name].double()

    def _weight(self, name: str) -> Tensor:
        forms = (".weight_v", ".weight_g"), (".parametrizations.weight.original1", ".parametrizations.weight.original0")
        for v_name, g_name in forms:
            if name + v_name in self.tensors:
                v, g = self._tensor(name + v_name), self._tensor(name + g_name)
                axis = 0 if self.turned == "norm over the second axis" and v.shape[0] == v.shape[1] else 1
                return g * v / v.square().sum((axis, 2), keepdim=True).sqrt()
        return self._tensor(name + ".weight")

    def _conv(self, name: str, x: Tensor, *, stride: int = 1, dilation: int = 1, of: str = ".conv") -> Tensor:
        weight = self._weight(name + of)
        left = (weight.shape[-1] - 1) * dilation + 1 - stride
        groups = x.shape[0] if weight.shape[1] == 1 and name.endswith("dwconv") else 1
        pad = (left // 2, left - left // 2) if self.turned == "centred convolutions" else (left, 0)
        x = F.pad(x, pad, mode="replicate" if self.turned == "edges repeated" and left else "constant")
        return F.conv1d(x, weight, self._tensor(f"{name}{of}.bias"), stride, dilation=dilation, groups=groups)

    def _transposed(self, name: str, x: Tensor, stride: int) -> Tensor:
        y = F.conv_transpose1d(x, self._weight(name + ".conv"), self._tensor(name + ".conv.bias"), stride)
        length = x.shape[-1] * stride
        return y[:, -length:] if self.turned == "transposed cut in front" else y[:, :length]

    def _snake(self, name: str, x: Tensor) -> Tensor:
        alpha = self._tensor(name + ".alpha")[0]
        if self.turned == "snake without its divisor":
            return x + torch.sin(alpha * x) ** 2
        return x + torch.sin(alpha * x) ** 2 / (alpha + 1e-9)

    def _residual(self, name: str, x: Tensor, dilation: int) -> Tensor:
        y = self._conv(f"{name}.block.1", self._snake(f"{name}.block.0", x), dilation=dilation)
        y = self._conv(f"{name}.block.3", self._snake(f"{name}.block.2", y))
        return y if self.turned == "nothing added" else x + y

    def _convnext(self, name: str, x: Tensor) -> Tensor:
        y = self._conv(name + ".dwconv", x).T
        eps = 1e-2 if self.turned == "eps of the layer norm" else 1e-6
        y = F.layer_norm(y, y.shape[-1:], self._tensor(name + ".norm.weight"), self._tensor(name + ".norm.bias"), eps)
        y = F.linear(y, self._tensor(name + ".pwconv1.weight"), self._tensor(name + ".pwconv1.bias"))
        y = F.gelu(y, approximate="tanh" if self.turned == "gelu by tanh" else "none")
        y = F.linear(y, self._tensor(name + ".pwconv2.weight"), self._tensor(name + ".pwconv2.bias"))
        return x + (y if self.turned == "no gamma" else self._tensor(name + ".gamma") * y).T

    def _entry(self, name: str, codes: Tensor) -> Tensor:
        table = self._tensor(f"{name}.codebook.weight")
        if self.turned == "normalised entries":
            table = F.normalize(table)
        last = len(table) - 1
        codes = codes % len(table) if self.turned == "codes wrapped" else codes.clamp(max=last)
        return self._conv(f"{name}.out_proj", table[codes].T, of="")

    def _transformer(self, name: str, x: Tensor, window: int) -> Tensor:
        x, i = x.T, 0
        window += self.turned == "window one longer"
        while f"{name}.layers.{i}.attention.wo.weight" in self.tensors:
            x, i = self._layer(f"{name}.layers.{i}", x, window), i + 1
        return x.T if self.turned == "no last norm" else self._rms(f"{name}.norm", x).T

    def _layer(self, name: str, x: Tensor, window: int) -> Tensor:
        heads = x.shape[1] // self.head_width
        q, k, v = (self._tensor(f"{name}.attention.wqkv.weight") @ self._rms(f"{name}.attention_norm", x).T).chunk(3)
        if self.turned == "k and v swapped":
            k, v = v, k
        time = torch.arange(len(x))
        ahead = time - time[:, None]
        seen = (ahead <= 0) & (ahead > -window)
        out = []
        for head in range(heads):
            rows = slice(self.head_width * head, self.head_width * (head + 1))
            scores = self._rotated(q[rows].T) @ self._rotated(k[rows].T).T / math.sqrt(self.head_width)
            out.append(scores.masked_fill(~seen, -math.inf).softmax(1) @ v[rows].T)
        y = torch.cat(out, 1) @ self._tensor(f"{name}.attention.wo.weight").T
        scales = self.turned != "no layer scale"
        x = x + (self._tensor(f"{name}.attention_layer_scale.gamma") if scales else 1) * y
        y = self._rms(f"{name}.ffn_norm", x)
        w1, w2, w3 = (self._tensor(f"{name}.feed_forward.{w}.weight") for w in ("w1", "w2", "w3"))
        if self.turned == "w1 and w3 swapped":
            w1, w3 = w3, w1
        y = (F.silu(y @ w1.T) * (y @ w3.T)) @ w2.T
        return x + (self._tensor(f"{name}.ffn_layer_scale.gamma") if scales else 1) * y

    def _rms(self, name: str, x: Tensor) -> Tensor:
        eps = 1e-2 if self.turned == "eps of the RMS norm" else 1e-5
        return x * torch.rsqrt((x * x).mean(1, keepdim=True) + eps) * self._tensor(name + ".weight")

    def _rotated(self, x: Tensor) -> Tensor:
        base = 1e6 if self.turned == "rotary base" else 1e4
        first = 1 if self.turned == "positions from 1" else 0
        powers = torch.arange(0, self.head_width, 2).float() / self.head_width
        angles = torch.arange(first, len(x) + first).float()[:, None] * (1 / base**powers)
        cos, sin = angles.cos(), angles.sin()
        if self.turned != "rotary table in float32":
            cos, sin = cos.bfloat16(), sin.bfloat16()
        a, b = x.chunk(2, 1) if self.turned == "halves rotated" else (x[:, ::2], x[:, 1::2])
        pairs = a * cos.double() - b * sin.double(), b * cos.double() + a * sin.double()
        return torch.cat(pairs, 1) if self.turned == "halves rotated" else torch.stack(pairs, 2).flatten(1)

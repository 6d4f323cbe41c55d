"""Plain float64 reimplementations of language model and codec, as references for the fast ones.

Written from the facts alone, without state or modules, and for whole signals only. `turned_round` states one of the facts
wrongly: a comparison that does not notice it would prove nothing.
"""

from __future__ import annotations

import inspect
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from voicelab.engine.dual.codec import CodecSizes
from voicelab.engine.dual.config import DualConfig, TowerConfig


def turned_round(old: str, new: str) -> Any:
    """Reload this module with a part of its source replaced."""
    source, made = inspect.getsource(sys.modules[__name__]), ModuleType(__name__)
    assert old in source
    exec(source.replace(old, new), made.__dict__)  # noqa: S102 - the source is ours
    return made


class Heads(NamedTuple):
    """Sizes that `layer` needs of a codec transformer; names as in the language model's configuration."""

    heads: int
    kv_heads: int
    head_width: int
    rope_base: float = 1e4
    eps: float = 1e-5
    qk_norm: bool = False


Weights = Mapping[str, Tensor]
Tower = TowerConfig | Heads


def norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return x / ((x * x).mean(-1, keepdim=True) + eps).sqrt() * weight


def rotate(x: Tensor, base: float) -> Tensor:
    """Of (positions, heads, width)."""
    powers = torch.arange(0, x.shape[-1], 2).float() / x.shape[-1]
    angles = torch.arange(len(x)).float()[:, None] * (1 / base**powers)
    cos, sin = (one.bfloat16().double()[:, None] for one in (angles.cos(), angles.sin()))
    a, b = x[..., 0::2], x[..., 1::2]
    return torch.stack((a * cos - b * sin, b * cos + a * sin), -1).flatten(-2)


def attention(x: Tensor, w: Weights, at: str, tower: Tower, window: int) -> Tensor:
    heads, kv, width = tower.heads, tower.kv_heads, tower.head_width
    rows = x @ w[f"{at}.wqkv.weight"].T
    q, k, v = rows.reshape(len(x), -1, width).split([heads, kv, kv], 1)

    def normed(x: Tensor, name: str) -> Tensor:
        return norm(x, w[f"{at}.{name}_norm.weight"], tower.eps) if tower.qk_norm else x

    q, k = (rotate(normed(one, name), tower.rope_base) for one, name in ((q, "q"), (k, "k")))
    ahead = torch.arange(len(x)) - torch.arange(len(x))[:, None]
    unseen, out = (ahead > 0) | (ahead <= -window), []
    for head in range(heads):
        group = head // (heads // kv)
        scores = q[:, head] @ k[:, group].T / math.sqrt(width)
        out.append(scores.masked_fill(unseen, -math.inf).softmax(1) @ v[:, group])
    return torch.cat(out, 1) @ w[f"{at}.wo.weight"].T


def layer(x: Tensor, w: Weights, at: str, tower: Tower, window: int = 1 << 30) -> Tensor:
    before, between = (
        partial(norm, weight=w[f"{at}.{name}_norm.weight"], eps=tower.eps) for name in ("attention", "ffn")
    )
    attend = partial(attention, w=w, at=f"{at}.attention", tower=tower, window=window)
    z = x + attend(before(x)) * w.get(f"{at}.attention_layer_scale.gamma", 1.0)
    y = between(z)
    gate, through = (y @ w[f"{at}.feed_forward.{name}.weight"].T for name in ("w1", "w3"))
    y = (gate / (1 + torch.exp(-gate)) * through) @ w[f"{at}.feed_forward.w2.weight"].T
    return z + y * w.get(f"{at}.ffn_layer_scale.gamma", 1.0)


class Twin:
    """A language model by the common names of its tensors; `speech` are the ids of the first and the last speech token,
    and of the end.
    """

    def __init__(self, config: DualConfig, tensors: Weights, speech: tuple[int, int, int]) -> None:
        self.w, self.c = {name: tensor.double() for name, tensor in tensors.items()}, config
        self.begin, self.end, self.stop = speech
        self.speech = [*range(self.begin, self.end + 1), self.stop]
        """Ids of speech tokens and the end of speech."""

    def embed(self, column: Tensor) -> Tensor:
        token, *codes = column.tolist()
        x = self.w["embeddings.weight"][token]
        if self.begin <= token <= self.end:
            for i, code in enumerate(codes):
                x = x + self.w["codebook_embeddings.weight"][code + self.c.entries * i]
            if self.c.scaled:
                x = x / math.sqrt(self.c.codebooks + 1)
        return x

    def slow(self, columns: Tensor) -> tuple[Tensor, Tensor]:
        """Compute logits (n, vocabulary) and fast transformer inputs (n, width) of columns (n, 1 + codebooks)."""
        state = torch.stack([self.embed(column) for column in columns])
        for i in range(self.c.slow.layers):
            state = layer(state, self.w, f"layers.{i}", self.c.slow)
        normed = norm(state, self.w["norm.weight"], self.c.slow.eps)
        head = self.w["embeddings.weight" if self.c.tied else "output.weight"]
        given = normed if self.c.norm_state else state
        if "fast_project_in.weight" in self.w:
            given = given @ self.w["fast_project_in.weight"].T + self.w["fast_project_in.bias"]
        return normed @ head.T, given

    def codes(self, given: Tensor, first: int, pick: Callable[[Tensor], int]) -> list[int]:
        """Generate the codes of a frame without a cache."""
        x, codes = [given], [first]
        for _ in range(1, self.c.codebooks):
            x.append(self.w["fast_embeddings.weight"][codes[-1]])
            state = torch.stack(x)
            for i in range(self.c.fast.layers):
                state = layer(state, self.w, f"fast_layers.{i}", self.c.fast)
            normed = norm(state[-1], self.w["fast_norm.weight"], self.c.fast.eps)
            codes.append(pick(self.w["fast_output.weight"] @ normed))
        return codes

    def frames(
        self,
        prompt: Tensor,
        count: int,
        settings: tuple[float, float],
        randomness: Callable[[int], Tensor],
        *,
        twice: bool,
    ) -> Tensor:
        """Generate up to `count` frames (n, codebooks) after a prompt; fewer if speech ends.

        `settings` are temperature and top_p; `randomness(frame)` gives the uniform numbers of a frame: two for each id of
        `speech`, one for each code to choose from. `twice`: whether what repeats is drawn once more.
        """
        columns, window = prompt, [-1] * 10
        size, entries = len(self.speech), self.c.entries
        for frame in range(count):
            u = randomness(frame)
            logits, given = self.slow(columns)
            of_speech = logits[-1][self.speech]
            main = draw(of_speech, u[:size], *settings)
            if twice and frame > 0 and main in window and main < entries:
                main = draw(of_speech, u[size : 2 * size], 1.0, 0.9)
            if main == entries:
                break
            if frame > 0:
                window = [*window[1:], main]
            parts = iter(u[2 * size :].reshape(-1, entries))

            def pick(of: Tensor, parts: Iterator[Tensor] = parts) -> int:
                return draw(of, next(parts), *settings)

            codes = self.codes(given[-1], main, pick)
            columns = torch.cat((columns, torch.tensor([[self.begin + main, *codes]])))
        return columns[len(prompt) :, 1:]


def draw(logits: Tensor, u: Tensor, temperature: float, top_p: float, top_k: int = 30) -> int:
    """Draw an entry."""
    p = logits.softmax(0)
    kept, total = list[int](), 0.0
    for rank, entry in enumerate(logits.argsort(descending=True, stable=True).tolist()):
        inside = top_p >= 1 or total + float(p[entry]) <= top_p
        total += float(p[entry])
        if rank == 0 or (inside and rank < top_k):
            kept.append(entry)
    if temperature == 0:
        return kept[0]
    weights = (logits[kept] / max(temperature, 1e-5)).softmax(0)
    return kept[int((weights / -u[kept].log()).argmax())]


class CodecTwin:
    """A codec by plain tensor names, weight norms not folded."""

    def __init__(self, tensors: Weights, sizes: CodecSizes) -> None:
        self.w, self.sizes = {name: tensor.double() for name, tensor in tensors.items()}, sizes
        others = sum(name.endswith("codebook.weight") for name in tensors) - 1
        first = "quantizer.semantic_quantizer.quantizers.0"
        self.codebooks = [first, *(f"quantizer.quantizer.quantizers.{i}" for i in range(others))]

    def latents(self, samples: Tensor) -> Tensor:
        """Encode (time,) to latents (latent, frames) before quantization."""
        strides = self.sizes.encoder_strides
        x = F.pad(samples.double(), (0, -len(samples) % (math.prod(strides) * 4)))[None]
        x = self.conv("encoder.block.0", x)
        for i, stride in enumerate(strides, 1):
            for j, dilation in enumerate((1, 3, 9)):
                x = self.residual(f"encoder.block.{i}.block.{j}", x, dilation)
            x = self.conv(f"encoder.block.{i}.block.4", self.snake(f"encoder.block.{i}.block.3", x), stride=stride)
        x = self.transformer(f"encoder.block.{i}.block.5", x, self.sizes.encoder_window)
        x = self.conv(f"encoder.block.{i + 2}", self.snake(f"encoder.block.{i + 1}", x))
        for i in (0, 1):
            x = self.conv(f"quantizer.downsample.{i}.0", x, stride=2)
            x = self.convnext(f"quantizer.downsample.{i}.1", x)
        return self.transformer("quantizer.pre_module", x, self.sizes.window)

    def encode(self, samples: Tensor) -> Tensor:
        """Encode (time,) to codes (frames, codebooks)."""
        rest, codes = self.latents(samples), []
        for name in self.codebooks:
            table, query = self.w[f"{name}.codebook.weight"], self.conv(f"{name}.in_proj", rest, of="").T
            codes.append((F.normalize(query) @ F.normalize(table).T).argmax(1))
            rest = rest - self.entry(name, codes[-1])
        return torch.stack(codes, 1)

    def decode(self, codes: Tensor) -> Tensor:
        """Decode codes (frames, codebooks) to (time,)."""
        entries = [self.entry(name, column) for name, column in zip(self.codebooks, codes.T, strict=True)]
        x = self.transformer("quantizer.post_module", torch.stack(entries).sum(0), self.sizes.window)
        for i in (0, 1):
            x = self.convnext(f"quantizer.upsample.{i}.1", self.transposed(f"quantizer.upsample.{i}.0", x, 2))
        x = self.conv("decoder.model.0", x)
        for i, stride in enumerate(self.sizes.decoder_strides, 1):
            x = self.transposed(f"decoder.model.{i}.block.1", self.snake(f"decoder.model.{i}.block.0", x), stride)
            for j, dilation in enumerate((1, 3, 9), 2):
                x = self.residual(f"decoder.model.{i}.block.{j}", x, dilation)
        x = self.conv(f"decoder.model.{i + 2}", self.snake(f"decoder.model.{i + 1}", x))
        return torch.tanh(x[0])

    def weight(self, name: str) -> Tensor:
        forms = (".weight_v", ".weight_g"), (".parametrizations.weight.original1", ".parametrizations.weight.original0")
        for v_name, g_name in forms:
            if name + v_name in self.w:
                v = self.w[name + v_name]
                return self.w[name + g_name] * v / v.square().sum((1, 2), keepdim=True).sqrt()
        return self.w[name + ".weight"]

    def conv(self, name: str, x: Tensor, *, stride: int = 1, dilation: int = 1, of: str = ".conv") -> Tensor:
        weight = self.weight(name + of)
        left = (weight.shape[-1] - 1) * dilation + 1 - stride
        groups = x.shape[0] if weight.shape[1] == 1 and name.endswith("dwconv") else 1
        x = F.pad(x, (left, 0))
        return F.conv1d(x, weight, self.w[f"{name}{of}.bias"], stride, dilation=dilation, groups=groups)

    def transposed(self, name: str, x: Tensor, stride: int) -> Tensor:
        y = F.conv_transpose1d(x, self.weight(name + ".conv"), self.w[name + ".conv.bias"], stride)
        return y[:, : x.shape[-1] * stride]

    def snake(self, name: str, x: Tensor) -> Tensor:
        alpha = self.w[name + ".alpha"][0]
        return x + torch.sin(alpha * x) ** 2 / (alpha + 1e-9)

    def residual(self, name: str, x: Tensor, dilation: int) -> Tensor:
        y = self.conv(f"{name}.block.1", self.snake(f"{name}.block.0", x), dilation=dilation)
        return x + self.conv(f"{name}.block.3", self.snake(f"{name}.block.2", y))

    def convnext(self, name: str, x: Tensor) -> Tensor:
        y = self.conv(name + ".dwconv", x).T
        y = F.layer_norm(y, y.shape[-1:], self.w[name + ".norm.weight"], self.w[name + ".norm.bias"], 1e-6)
        y = F.gelu(F.linear(y, self.w[name + ".pwconv1.weight"], self.w[name + ".pwconv1.bias"]))
        y = F.linear(y, self.w[name + ".pwconv2.weight"], self.w[name + ".pwconv2.bias"])
        return x + (self.w[name + ".gamma"] * y).T

    def entry(self, name: str, codes: Tensor) -> Tensor:
        table = self.w[f"{name}.codebook.weight"]
        return self.conv(f"{name}.out_proj", table[codes.clamp(max=len(table) - 1)].T, of="")

    def transformer(self, name: str, x: Tensor, window: int) -> Tensor:
        heads, x, i = x.shape[0] // self.sizes.head_width, x.T, 0
        while f"{name}.layers.{i}.attention.wo.weight" in self.w:
            at, tower = f"{name}.layers.{i}", Heads(heads, heads, self.sizes.head_width)
            x, i = layer(x, self.w, at, tower, window), i + 1
        return norm(x, self.w[f"{name}.norm.weight"], 1e-5).T

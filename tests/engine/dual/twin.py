"""The language model written down once more, plainly, slowly, in float64: what the quick one is compared with.

`turned` names a fact that is turned round on purpose: a comparison that does not notice it would prove nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

Array = NDArray[np.float64]
Pick = Callable[[Array], int]


class Twin:
    """A checkpoint by the common names of its tensors.

    Args:
        tensors: by name.
        config: plain values: layers, heads, kv_heads, head_width, qk_norm of both transformers (`fast_…` for the fast one),
            eps, rope_base, codebooks, entries, tied, norm_state, scaled, and the ids begin, end, stop.
        turned: the fact that is turned round.
    """

    def __init__(self, tensors: Mapping[str, torch.Tensor], config: Mapping[str, Any], turned: str = "") -> None:
        self.w: dict[str, Array] = {name: tensor.double().numpy() for name, tensor in tensors.items()}
        self.c, self.turned = config, turned

    def embed(self, column: NDArray[np.int64]) -> Array:
        token, codes = int(column[0]), column[1:]
        x: Array = self.w["embeddings.weight"][token].copy()
        if self.c["begin"] <= token <= self.c["end"] or self.turned == "codes added to text":
            for i, code in enumerate(codes):
                place = (
                    code * self.c["codebooks"] + i
                    if self.turned == "tables interleaved"
                    else code + self.c["entries"] * i
                )
                x += self.w["codebook_embeddings.weight"][place]
            if self.c["scaled"] and self.turned != "no division":
                x /= math.sqrt(self.c["codebooks"] + (self.turned != "division without the token"))
        return x

    def norm(self, x: Array, name: str) -> Array:
        eps = 1e-3 if self.turned == "another eps" else self.c["eps"]
        y: Array = x / np.sqrt((x**2).mean(-1, keepdims=True) + eps) * self.w[name]
        return y

    def rotate(self, x: Array) -> Array:
        """Of (positions, heads, width)."""
        width = x.shape[-1]
        steps = torch.arange(0, width, 2, dtype=torch.float32) / width
        base, first = (
            (500.0 if self.turned == "another base" else self.c["rope_base"]),
            self.turned == "positions from 1",
        )
        angles = torch.outer(torch.arange(len(x), dtype=torch.float32) + first, 1 / base**steps)
        table = [angles.cos(), angles.sin()]
        if self.turned != "table in float32":
            table = [one.bfloat16() for one in table]
        cos, sin = (one.double().numpy()[:, None] for one in table)
        if self.turned == "rotated the other way":
            sin = -sin
        out = np.empty_like(x)
        if self.turned == "halves rotated":
            a, b = x[..., : width // 2], x[..., width // 2 :]
            out[..., : width // 2], out[..., width // 2 :] = a * cos - b * sin, b * cos + a * sin
        else:
            a, b = x[..., 0::2], x[..., 1::2]
            out[..., 0::2], out[..., 1::2] = a * cos - b * sin, b * cos + a * sin
        return out

    def attention(self, x: Array, at: str, fast: str) -> Array:
        heads, kv, width = (self.c[fast + name] for name in ("heads", "kv_heads", "head_width"))
        rows = x @ self.w[f"{at}.wqkv.weight"].T
        parts = rows.reshape(len(x), -1, width)
        if self.turned == "heads inside the width":
            parts = rows.reshape(len(x), width, -1).transpose(0, 2, 1)
        q, k, v = np.split(parts, [heads, heads + kv], axis=1)
        if self.turned == "keys before queries":
            k, q, v = np.split(parts, [kv, kv + heads], axis=1)
        if self.turned == "keys and values swapped":
            k, v = v, k
        if self.turned == "norm after rotation":
            q, k = self.rotate(q), self.rotate(k)
        if self.c[fast + "qk_norm"] and self.turned != "no norm of queries and keys":
            q, k = self.norm(q, f"{at}.q_norm.weight"), self.norm(k, f"{at}.k_norm.weight")
        if self.turned != "norm after rotation":
            q, k = self.rotate(q), self.rotate(k)
        out = np.zeros((len(x), heads, width))
        for head in range(heads):
            group = head % kv if self.turned == "key heads tiled" else head // (heads // kv)
            for position in range(len(x)):
                last = len(x) if self.turned == "not causal" else position + 1
                scores = k[:last, group] @ q[position, head]
                scores /= width if self.turned == "scale without root" else math.sqrt(width)
                weights = np.exp(scores - scores.max())
                out[position, head] = weights @ v[:last, group] / weights.sum()
        given: Array = out.reshape(len(x), -1) @ self.w[f"{at}.wo.weight"].T
        return given

    def tower(self, x: Array, prefix: str, fast: str = "") -> Array:
        for i in range(self.c[fast + "layers"]):
            at = f"{prefix}.{i}"
            y = x if self.turned == "no norm before attention" else self.norm(x, f"{at}.attention_norm.weight")
            attended = self.attention(y, f"{at}.attention", fast)
            if self.turned == "norm after attention":
                attended = self.norm(self.attention(x, f"{at}.attention", fast), f"{at}.attention_norm.weight")
            beside = x
            x = attended + (0 if self.turned == "nothing added to attention" else x)
            y = self.norm(beside if self.turned == "branches side by side" else x, f"{at}.ffn_norm.weight")
            gate, through = (y @ self.w[f"{at}.feed_forward.{name}.weight"].T for name in ("w1", "w3"))
            if self.turned == "gate and value swapped":
                gate, through = through, gate
            opened = (1 if self.turned == "gate without itself" else gate) / (1 + np.exp(-gate))
            x = x + (opened * through) @ self.w[f"{at}.feed_forward.w2.weight"].T
        return x

    def slow(self, columns: NDArray[np.int64]) -> tuple[Array, Array]:
        """Columns (n, 1 + codebooks) → logits (n, vocabulary) and what the fast transformer is given (n, width)."""
        state = self.tower(np.stack([self.embed(column) for column in columns]), "layers")
        normed = self.norm(state, "norm.weight")
        head = self.w["embeddings.weight" if self.c["tied"] else "output.weight"]
        given = normed if self.c["norm_state"] != (self.turned == "the other state") else state
        if "fast_project_in.weight" in self.w:
            given = given @ self.w["fast_project_in.weight"].T + self.w["fast_project_in.bias"]
        return normed @ head.T, given

    def codes(self, given: Array, first: int, pick: Pick) -> list[int]:
        """All codes of a frame, in ten passes of their own: nothing is kept from one to the next."""
        x, codes = [given], [first]
        if self.turned == "a frame before it":
            x = [given, given]
        if self.turned == "no state":
            x = []
        for _ in range(1, self.c["codebooks"]):
            x.append(self.w["fast_embeddings.weight"][codes[-1]])
            if self.turned == "only the last code":
                x = [given, x[-1]]
            state = self.tower(np.stack(x), "fast_layers", "fast_")[-1]
            codes.append(pick(self.w["fast_output.weight"] @ self.norm(state, "fast_norm.weight")))
        return codes

    def speech(self) -> list[int]:
        """Ids that may be chosen first: speech, and the end of it."""
        return [*range(self.c["begin"], self.c["end"] + 1), self.c["stop"]]

    def frames(
        self, prompt: NDArray[np.int64], count: int, settings: tuple[float, float], randomness: Any
    ) -> NDArray[np.int64]:
        """The first `count` frames (n, codebooks) after a prompt; fewer where speech ends.

        `settings` are temperature and top_p; `randomness(frame)` gives the uniform numbers of a frame: two for each id of
        `speech`, one for each code to choose from.
        """
        columns, window = prompt, [-1] * 10
        size, entries = len(self.speech()), self.c["entries"]
        for frame in range(count):
            u = randomness(frame)
            logits, given = self.slow(columns)
            of_speech = logits[-1][self.speech()]
            main = draw(of_speech, u[:size], *settings)
            again = draw(of_speech, u[size : 2 * size], 1.0, 0.9)
            if frame > 0 and main in window and main < entries:
                main = again
            if main == entries:
                break
            if frame > 0:
                window = [*window[1:], main]
            parts = iter(u[2 * size :].reshape(-1, entries))

            def pick(of: Array, parts: Iterator[Array] = parts) -> int:
                return draw(of, next(parts), *settings)

            codes = self.codes(given[-1], main, pick)
            columns = np.concatenate((columns, [[self.c["begin"] + main, *codes]]))
        return columns[len(prompt) :, 1:]


def draw(logits: Array, u: Array, temperature: float, top_p: float, top_k: int = 30, turned: str = "") -> int:
    """One draw, entry by entry."""
    if turned == "temperature first":
        logits, temperature = logits / max(temperature, 1e-5), 1.0
    p = np.exp(logits - logits.max())
    p /= p.sum()
    kept, total = [], 0.0
    for rank, entry in enumerate(np.argsort(-logits, kind="stable")):
        inside = top_p >= 1 or (total if turned == "the one that crosses stays" else total + p[entry]) <= top_p
        total += p[entry]
        if rank == 0 or (inside and (rank < top_k or turned == "no top k")):
            kept.append(int(entry))
    if temperature == 0:
        return kept[0]
    scaled = logits[kept] / max(temperature, 1e-5)
    weights = np.exp(scaled - scaled.max())
    return kept[int(np.argmax(weights / -np.log(u[kept])))]

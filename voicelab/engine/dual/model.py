"""The language model of a checkpoint: its tensors by name, what goes into a position, how a frame is chosen.

Choosing is on the device: nucleus, top-k, the race that draws, and the second draw of a token that repeats. Randomness is a
function of the sequence's seed and the frame's number, computed where it is needed: a row draws the same alone and among
others, and nothing comes from the host.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from voicelab.engine.dual.config import DualConfig, TowerConfig
from voicelab.engine.dual.files import INDEX, TensorFiles
from voicelab.engine.dual.tower import Slots, Tower, TowerLayer, packed
from voicelab.errors import WeightsError

TOP_K = 30
WINDOW = 10
"""Main tokens that a new one should not be among."""
AGAIN_TEMPERATURE, AGAIN_TOP_P = 1.0, 0.9
"""Settings of the draw that replaces a repetition."""
_COLDEST = 1e-5
# Of splitmix64, as signed numbers.
_GOLDEN, _FIRST, _SECOND = -0x61C8864680B583EB, -0x40A7B892E31B1A47, -0x6B2FB644ECCEEE15
_BITS = 23
"""So that the largest number is still below 1 in float32."""


def draw_steps(size: int, device: torch.device) -> Tensor:
    """(size,) int64: what each number of `uniform` adds to its state; Triton multiplies no index by so large a number."""
    return torch.arange(size, device=device) * _GOLDEN


def uniform(seeds: Tensor, frames: Tensor, steps: Tensor) -> Tensor:
    """(rows, size) float32 in (0, 1) of seeds and frame numbers (rows,), int64: splitmix64 (Steele, Lea, Flood, 2014)."""
    state = _mix(_mix(seeds) + frames)[:, None] + steps
    bits = _shift(_mix(state), 64 - _BITS)
    return (bits.float() + 0.5) * 0.5**_BITS


def _mix(z: Tensor) -> Tensor:
    z = (z ^ _shift(z, 30)) * _FIRST
    z = (z ^ _shift(z, 27)) * _SECOND
    return z ^ _shift(z, 31)


def _shift(z: Tensor, by: int) -> Tensor:
    """To the right, with zeros from the left."""
    return (z >> by) & ((1 << (64 - by)) - 1)


class Likeliest(NamedTuple):
    """What `choose` chooses from."""

    logits: Tensor
    """(rows, k), the largest first."""
    order: Tensor
    summed: Tensor
    """Probabilities so far, of all entries."""
    finite: Tensor
    """(rows,) whether no logit is infinite, but for those of what cannot be chosen, or none at all."""

    @classmethod
    def of(cls, logits: Tensor, top_k: int = TOP_K) -> Likeliest:
        """The `top_k` likeliest of logits (rows, n); -inf for what cannot be chosen."""
        total = logits.float().logsumexp(-1)
        largest, order = logits.float().topk(min(top_k, logits.shape[-1]), -1)
        return cls(largest, order, (largest - total[:, None]).exp().cumsum(-1), total.isfinite())


def choose(top: Likeliest, temperature: Tensor, top_p: Tensor, u: Tensor) -> Tensor:
    """The entry (rows,) that each row draws.

    Unlike the usual nucleus, the entry that crosses `top_p` is removed, and the temperature comes last.

    Args:
        top: of (rows, n) logits.
        temperature: (rows,) at 0 the likeliest is taken.
        top_p: (rows,) entries are kept while their probabilities, from the likeliest on, sum to no more.
        u: (rows, n) uniform in (0, 1), one for each entry.
    """
    within = (top.summed <= top_p[:, None]) | (top_p[:, None] >= 1)  # a sum of all may be rounded to more than 1
    kept = within & (temperature[:, None] > 0)
    kept[:, 0] = True
    likely = (top.logits / temperature.clamp_min(_COLDEST)[:, None]).masked_fill(~kept, -torch.inf).softmax(-1)
    winner = (likely / -u.gather(-1, top.order).log()).argmax(-1, keepdim=True)
    # A sum, for what is looked up by what was looked up becomes code that Triton does not compile (torch 2.13).
    return (top.order * (torch.arange(top.order.shape[-1], device=winner.device) == winner)).sum(-1)


def choose_main(
    top: Likeliest, temperature: Tensor, top_p: Tensor, u: tuple[Tensor, Tensor], recent: Tensor, again: Tensor
) -> Tensor:
    """As `choose` for a frame's first entry, of which the last of the n is the end of speech.

    Args:
        top: of (rows, n) logits.
        temperature: (rows,).
        top_p: (rows,).
        u: for each of two draws (rows, n).
        recent: (rows, WINDOW) entries of the frames before; -1 where there was none.
        again: (rows,) bool: whether an entry that is among them is drawn once more.
    """
    first = choose(top, temperature, top_p, u[0])
    warm = torch.full_like(temperature, AGAIN_TEMPERATURE)
    second = choose(top, warm, torch.full_like(top_p, AGAIN_TOP_P), u[1])
    repeats = (recent == first[:, None]).any(-1) & (first < u[0].shape[-1] - 1)
    return torch.where(repeats & again, second, first)


FILES = (INDEX, "model.safetensors", "model.pth")
"""What a folder's language model can be in; the first that is there is read."""
_TEXT, _AUDIO, _SHARED = "text_model.model.", "audio_decoder.", "codebook_embeddings."


def common_name(name: str) -> str | None:
    """A tensor's name, from the name in any of the family's files; None for what is left out."""
    if name.startswith(_TEXT):
        return name.removeprefix(_TEXT)
    if name.startswith(_AUDIO):
        rest = name.removeprefix(_AUDIO)
        return rest if rest.startswith(_SHARED) else f"fast_{rest}"
    return None if "audio_" in name else name.removeprefix("model.")


Read = Callable[..., Tensor]
"""Gives a tensor by its common name, which has the shape that follows it."""


def shapes_of(config: DualConfig) -> dict[str, tuple[int, ...]]:
    """The shape of every tensor that a checkpoint of these sizes has, by its common name: what a model reads of it."""
    shapes: dict[str, tuple[int, ...]] = {}

    def read(name: str, *shape: int) -> Tensor:
        shapes[name] = shape
        return torch.empty(shape, device="meta")

    DualLM(config, read, (0, config.entries - 1, config.entries), config.codebooks)
    return shapes


def model_file(folder: Path) -> Path:
    """The file of a folder's language model, or the index of its files. Raises WeightsError: there is none."""
    for name in FILES:
        if (folder / name).exists():
            return folder / name
    raise WeightsError(f"the weights {folder.name}: there is no {', '.join(FILES[:-1])} or {FILES[-1]} in the folder")


def model_tensors(folder: Path, config: DualConfig) -> TensorFiles:
    """The tensors of a folder's language model by their common names: those of `shapes_of`, all of one type.

    Raises:
        WeightsError: a file is missing or damaged, or holds others; the error names it, and the tensor.
    """
    files = TensorFiles.open(model_file(folder)).renamed(common_name)
    files.check(shapes_of(config), one_type=True)
    return files


class DualLM:
    """A checkpoint's language model on one device; it never changes.

    Args:
        config: its sizes.
        read: gives its tensors.
        speech: ids of the first and the last speech token, and of the end of speech, as `prompt.speech_ids` gives them.
        positions: most positions of a row.
    """

    def __init__(self, config: DualConfig, read: Read, speech: tuple[int, int, int], positions: int) -> None:
        self.config, self.positions, width, fast = config, positions, config.slow.width, config.fast.width
        self.begin, self.last, self.end = speech
        self.embeddings = read("embeddings.weight", config.vocabulary, width)
        head = self.embeddings if config.tied else read("output.weight", config.vocabulary, width)
        # Of all that the head could say only this can be chosen.
        self.head = torch.cat((head[self.begin : self.last + 1], head[self.end : self.end + 1]))
        del head
        self.codebook_embeddings = read("codebook_embeddings.weight", config.codebooks * config.entries, width)
        self.slow = Tower(config.slow, _blocks(config.slow, "layers", read), read("norm.weight", width), positions)
        self.project: tuple[Tensor, Tensor] | None = None
        if fast != width:
            self.project = (read("fast_project_in.weight", fast, width), read("fast_project_in.bias", fast))
        self.fast_embeddings = read("fast_embeddings.weight", config.entries, fast)
        blocks = _blocks(config.fast, "fast_layers", read)
        self.fast = Tower(config.fast, blocks, read("fast_norm.weight", fast), config.codebooks)
        self.fast_head = read("fast_output.weight", config.entries, fast)[: config.choices]
        device = self.embeddings.device
        self._tables = torch.arange(config.codebooks, device=device) * config.entries
        self._scale = math.sqrt(config.codebooks + 1) if config.scaled else 1.0

    def with_int8_depth(self) -> DualLM:
        """The same model with the fast transformer's matrices in 8 bits: half of what a frame reads is theirs."""
        other = copy.copy(self)
        blocks = [block.rounded() for block in self.fast.blocks]
        other.fast = Tower(self.config.fast, blocks, self.fast.norm_weight, self.config.codebooks)
        return other

    @property
    def device(self) -> torch.device:
        """Where it is."""
        return self.embeddings.device

    def embed(self, columns: Tensor) -> Tensor:
        """(…, width): what stands at positions, each a column (…, 1 + codebooks) of a token id and a frame's codes."""
        token, codes = columns[..., 0], columns[..., 1:]
        text = F.embedding(token, self.embeddings)
        frame = text + F.embedding(codes + self._tables, self.codebook_embeddings).sum(-2)
        spoken = (self.begin <= token) & (token <= self.last)
        return torch.where(spoken[..., None], frame / self._scale, text)

    def first_logits(self, state: Tensor) -> tuple[Tensor, Tensor]:
        """Of the slow states (…, width): the logits of all speech tokens and the end, and what the fast one is given."""
        normed = self.slow.norm(state, self.slow.norm_weight)
        given = normed if self.config.norm_state else state
        return F.linear(normed, self.head), given if self.project is None else F.linear(given, *self.project)

    def codes(self, given: Tensor, first: Tensor, pick: Callable[[int, Tensor], Tensor], slots: Slots) -> Tensor:
        """The codes (rows, codebooks) of a frame.

        The state and the first code are two positions of one pass; after them one pass a code.

        Args:
            given: (rows, width) as `first_logits` has it.
            first: (rows,) the first codes.
            pick: chooses (rows,) codes of the codebook of this number by the logits (rows, choices).
            slots: the fast transformer's, of at least so many rows; what they hold does not matter.
        """
        rows, chosen, count = first.shape[0], [first], self.config.codebooks
        places = torch.arange(count, device=first.device).expand(rows, -1)
        x = torch.stack((given, F.embedding(first, self.fast_embeddings)), 1)
        for i in range(1, count):
            at = places[:, :2] if i == 1 else places[:, i : i + 1]
            state = self.fast(x, slots, slice(rows), at, i + 1, whole=i > 1)[:, -1]
            logits = F.linear(self.fast.norm(state, self.fast.norm_weight), self.fast_head)
            chosen.append(pick(i, logits))
            x = F.embedding(chosen[-1], self.fast_embeddings)[:, None]
        return torch.stack(chosen, 1)

    def draws(self) -> int:
        """Uniform numbers that a frame takes: two for each entry of the first choice, one for each of the others."""
        return 2 * len(self.head) + (self.config.codebooks - 1) * self.config.choices

    def frame(
        self, state: Tensor, temperature: Tensor, top_p: Tensor, u: Tensor, recent: Tensor, again: Tensor, slots: Slots
    ) -> tuple[Tensor, Tensor]:
        """A frame after slow states (rows, width): its entries (rows, codebooks), and whether all was finite (rows,).

        The first entry is `entries` where speech ends; the others mean nothing then. `u` is (rows, draws()) uniform in
        (0, 1); the other arguments are as in `choose_main`.
        """
        logits, given = self.first_logits(state)
        size, choices = logits.shape[-1], self.config.choices
        top = Likeliest.of(logits)
        main = choose_main(top, temperature, top_p, (u[:, :size], u[:, size : 2 * size]), recent, again)
        finite = [top.finite]

        def pick(i: int, of: Tensor) -> Tensor:
            top = Likeliest.of(of)
            finite.append(top.finite)
            start = 2 * size + (i - 1) * choices
            return choose(top, temperature, top_p, u[:, start : start + choices])

        codes = self.codes(given, main.clamp_max(self.config.entries - 1), pick, slots)
        return torch.cat((main[:, None], codes[:, 1:]), 1), torch.stack(finite).all(0)


def _blocks(config: TowerConfig, prefix: str, read: Read) -> list[TowerLayer]:
    width, heads, head, hidden = config.width, config.heads * config.head_width, config.head_width, config.hidden
    blocks = []
    for i in range(config.layers):

        def weight(name: str, *shape: int, at: str = f"{prefix}.{i}") -> Tensor:
            return read(f"{at}.{name}.weight", *shape)

        blocks.append(
            TowerLayer(
                wqkv=packed(weight("attention.wqkv", heads + 2 * config.kv_heads * head, width)),
                wo=packed(weight("attention.wo", width, heads)),
                w13=packed(torch.cat([weight(f"feed_forward.{name}", hidden, width) for name in ("w1", "w3")])),
                w2=packed(weight("feed_forward.w2", width, hidden)),
                attention_norm=weight("attention_norm", width),
                ffn_norm=weight("ffn_norm", width),
                q_norm=weight("attention.q_norm", head) if config.qk_norm else None,
                k_norm=weight("attention.k_norm", head) if config.qk_norm else None,
            )
        )
    return blocks

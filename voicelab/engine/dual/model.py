"""The language model of open weights: its tensors by name, its embeddings, and the sampling of frames.

Sampling runs on the device: top-k and nucleus sampling by an exponential race, and a second draw for a repeated token.
Random numbers are a function of the sequence's seed and the frame index, computed on the device, so a row draws the same
numbers alone and in a batch.
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

from voicelab.engine.core.fused import Regions
from voicelab.engine.dual.config import DualConfig, TowerConfig
from voicelab.engine.dual.files import INDEX, TensorFiles
from voicelab.engine.dual.tower import Slots, Tower, TowerLayer, packed
from voicelab.errors import WeightsError

TOP_K = 30
WINDOW = 10
"""Number of recent main tokens that a new one should not repeat."""
REDRAW_TEMPERATURE, REDRAW_TOP_P = 1.0, 0.9
"""Settings of the redraw of a repeated token."""
_MIN_TEMPERATURE = 1e-5
# Constants of splitmix64, as signed integers.
_GOLDEN, _MIX_1, _MIX_2 = -0x61C8864680B583EB, -0x40A7B892E31B1A47, -0x6B2FB644ECCEEE15
_BITS = 23
"""Random bits per number, few enough that the largest number is below 1 in float32."""


def draw_steps(size: int, device: torch.device) -> Tensor:
    """Compute (size,) int64 multiples of a constant for `uniform`, since Triton cannot compute such large products."""
    return torch.arange(size, device=device) * _GOLDEN


def uniform(seeds: Tensor, frames: Tensor, steps: Tensor) -> Tensor:
    """Draw (rows, size) float32 numbers in (0, 1) from seeds and frames (rows,), by splitmix64 (Steele et al., 2014)."""
    state = _mix(_mix(seeds) + frames)[:, None] + steps
    bits = _shift(_mix(state), 64 - _BITS)
    return (bits.float() + 0.5) * 0.5**_BITS


def _mix(z: Tensor) -> Tensor:
    z = (z ^ _shift(z, 30)) * _MIX_1
    z = (z ^ _shift(z, 27)) * _MIX_2
    return z ^ _shift(z, 31)


def _shift(z: Tensor, by: int) -> Tensor:
    """Shift right logically."""
    return (z >> by) & ((1 << (64 - by)) - 1)


class Likeliest(NamedTuple):
    """The most likely entries, from which `choose` draws."""

    logits: Tensor
    """Logits (rows, k), in descending order."""
    order: Tensor
    summed: Tensor
    """Their cumulative probabilities (rows, k) among all entries."""
    finite: Tensor
    """(rows,) bool: whether all logits are finite, except -inf for masked entries."""

    @classmethod
    def of(cls, logits: Tensor, top_k: int = TOP_K) -> Likeliest:
        """Select the `top_k` most likely entries from logits (rows, n), in which masked entries are -inf."""
        total = logits.float().logsumexp(-1)
        largest, order = logits.float().topk(min(top_k, logits.shape[-1]), -1)
        return cls(largest, order, (largest - total[:, None]).exp().cumsum(-1), total.isfinite())


def choose(top: Likeliest, temperature: Tensor, top_p: Tensor, u: Tensor) -> Tensor:
    """Sample one entry per row; return the indices (rows,).

    Unlike in common nucleus sampling, the entry that crosses `top_p` is removed, and the temperature is applied last.

    Args:
        top: candidates of (rows, n) logits.
        temperature: (rows,); 0 means greedy.
        top_p: (rows,); entries are kept while their cumulative probability is at most this.
        u: (rows, n) uniform numbers in (0, 1), one per entry.
    """
    within = (top.summed <= top_p[:, None]) | (top_p[:, None] >= 1)  # the sum of all may round to more than 1
    nucleus = within & (temperature[:, None] > 0)
    nucleus[:, 0] = True
    likely = (
        (top.logits / temperature.clamp_min(_MIN_TEMPERATURE)[:, None]).masked_fill(~nucleus, -torch.inf).softmax(-1)
    )
    winner = (likely / -u.gather(-1, top.order).log()).argmax(-1, keepdim=True)
    # Written as a sum, because indexing with an indexed result becomes code that Triton does not compile (torch 2.13).
    return (top.order * (torch.arange(top.order.shape[-1], device=winner.device) == winner)).sum(-1)


def choose_main(
    top: Likeliest, temperature: Tensor, top_p: Tensor, u: tuple[Tensor, Tensor], recent: Tensor, redraw: Tensor
) -> Tensor:
    """Sample the first code of a frame like `choose`; the last of the n entries is the end of speech.

    Args:
        top: candidates of (rows, n) logits.
        temperature: (rows,).
        top_p: (rows,).
        u: uniform numbers (rows, n) for each of two draws.
        recent: (rows, WINDOW) entries of the previous frames; -1 for none.
        redraw: (rows,) bool: whether an entry is drawn again if it is among the recent ones.
    """
    drawn = choose(top, temperature, top_p, u[0])
    redraw_temperature = torch.full_like(temperature, REDRAW_TEMPERATURE)
    replacement = choose(top, redraw_temperature, torch.full_like(top_p, REDRAW_TOP_P), u[1])
    repeats = (recent == drawn[:, None]).any(-1) & (drawn < u[0].shape[-1] - 1)
    return torch.where(repeats & redraw, replacement, drawn)


MODEL_FILES = (INDEX, "model.safetensors", "model.pth")
"""Possible files of a folder's language model; the first that exists is read."""
_TEXT, _AUDIO, _SHARED = "text_model.model.", "audio_decoder.", "codebook_embeddings."


def common_name(name: str) -> str | None:
    """Convert a tensor name of any of the family's file formats to the common name; return None for unused tensors."""
    if name.startswith(_TEXT):
        return name.removeprefix(_TEXT)
    if name.startswith(_AUDIO):
        rest = name.removeprefix(_AUDIO)
        return rest if rest.startswith(_SHARED) else f"fast_{rest}"
    return None if "audio_" in name else name.removeprefix("model.")


Read = Callable[..., Tensor]
"""Function that returns a tensor by its common name; the arguments after the name are its expected shape."""


def shapes_of(config: DualConfig) -> dict[str, tuple[int, ...]]:
    """Compute the shapes of a checkpoint's tensors by common name."""
    shapes: dict[str, tuple[int, ...]] = {}

    def read(name: str, *shape: int) -> Tensor:
        shapes[name] = shape
        return torch.empty(shape, device="meta")

    DualLM(config, read, (0, config.entries - 1, config.entries), config.codebooks)
    return shapes


def model_file(folder: Path) -> Path:
    """Find the file of a folder's language model, or its index. Raises WeightsError if it is missing."""
    for name in MODEL_FILES:
        if (folder / name).exists():
            return folder / name
    raise WeightsError(f"the weights {folder.name}: the folder has none of {', '.join(MODEL_FILES)}")


def model_tensors(folder: Path, config: DualConfig) -> TensorFiles:
    """Open the tensors of a folder's language model by common name and check their shapes and types.

    Raises:
        WeightsError: a file is missing or damaged, or has unexpected tensors; the error names the file and the tensor.
    """
    files = TensorFiles.open(model_file(folder)).renamed(common_name)
    files.check(shapes_of(config), one_type=True)
    return files


class DualLM:
    """A checkpoint's language model on one device; immutable.

    Args:
        config: sizes of the model.
        read: function that returns a tensor by name.
        speech: ids of the first and the last speech token, and of the end of speech, from `prompt.speech_ids`.
        positions: maximum positions of a row.
    """

    def __init__(self, config: DualConfig, read: Read, speech: tuple[int, int, int], positions: int) -> None:
        self.config, self.positions, width, fast = config, positions, config.slow.width, config.fast.width
        self.begin, self.last, self.end = speech
        self.embeddings = read("embeddings.weight", config.vocabulary, width)
        head = self.embeddings if config.tied else read("output.weight", config.vocabulary, width)
        # Only speech tokens and the end can be sampled.
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
        # Positions of the fast transformer's passes; separate tensors, since a compiler copies inputs that are not aligned.
        self._passes = [
            torch.tensor([at], device=device) for at in ([0, 1], *([i] for i in range(2, config.codebooks)))
        ]
        self._fast_mask = self.fast.mask(self._passes[0], 2, self.embeddings.dtype)[:1]

    def compiled(self, regions: Regions) -> DualLM:
        """Return a copy with the embedding, both transformers' layers, logits and code sampling compiled."""
        model = copy.copy(self)
        model.slow, model.fast = self.slow.compiled(regions), self.fast.compiled(regions)
        for name in ("embed", "fast_logits", "choose_code", "first"):
            setattr(model, name, regions.compiled(getattr(self, name)))
        return model

    def with_int8_depth(self) -> DualLM:
        """Return a copy with the fast transformer's matrices in int8; a frame spends half of its memory traffic on them."""
        model = copy.copy(self)
        blocks = [block.rounded() for block in self.fast.blocks]
        model.fast = Tower(self.config.fast, blocks, self.fast.norm_weight, self.config.codebooks)
        return model

    @property
    def device(self) -> torch.device:
        """Device of the parameters."""
        return self.embeddings.device

    def embed(self, columns: Tensor) -> Tensor:
        """Embed columns (…, 1 + codebooks) of a token id and a frame's codes as (…, width)."""
        token, codes = columns[..., 0], columns[..., 1:]
        text = F.embedding(token, self.embeddings)
        frame = text + F.embedding(codes + self._tables, self.codebook_embeddings).sum(-2)
        is_speech = (self.begin <= token) & (token <= self.last)
        return torch.where(is_speech[..., None], frame / self._scale, text)

    def first_logits(self, state: Tensor) -> tuple[Tensor, Tensor]:
        """From states (…, width), compute logits of speech tokens and the end of speech, and the fast transformer's input."""
        normed = self.slow.norm(state, self.slow.norm_weight)
        fast_input = normed if self.config.norm_state else state
        return F.linear(normed, self.head), fast_input if self.project is None else F.linear(fast_input, *self.project)

    def codes(
        self, fast_input: Tensor, first_codes: Tensor, pick: Callable[[int, Tensor], Tensor], slots: Slots
    ) -> Tensor:
        """Generate the codes (rows, codebooks) of a frame.

        The first pass has two positions, the state and the first code. Each later pass has one position, the previous code.

        Args:
            fast_input: (rows, width) from `first_logits`.
            first_codes: (rows,).
            pick: chooses (rows,) codes given the codebook index and its logits (rows, choices).
            slots: slots of the fast transformer, at least one per row; their content is overwritten.
        """
        rows, chosen = first_codes.shape[0], [first_codes]
        x = torch.stack((fast_input, F.embedding(first_codes, self.fast_embeddings)), 1)
        for i, positions in enumerate(self._passes, 1):
            mask = self._fast_mask if i == 1 else None
            state = self.fast(x, slots, slice(rows), positions, i + 1, mask=mask, full=i > 1)[:, -1]
            if i == 1:
                state = state.clone(memory_format=torch.contiguous_format)  # laid out as in the other passes
            chosen.append(pick(i, self.fast_logits(state)))
            x = F.embedding(chosen[-1], self.fast_embeddings)[:, None]
        return torch.stack(chosen, 1)

    def fast_logits(self, state: Tensor) -> Tensor:
        """Compute logits (rows, choices) of a code from fast states (rows, width)."""
        return F.linear(self.fast.norm(state, self.fast.norm_weight), self.fast_head)

    def choose_code(
        self, logits: Tensor, temperature: Tensor, top_p: Tensor, u: Tensor, finite: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Draw one code per row for a codebook after the first.

        Returns the codes, and `finite` with False where a logit of this codebook is not finite; both are (rows,).
        """
        top = Likeliest.of(logits)
        return choose(top, temperature, top_p, u), finite & top.finite

    def first(
        self, state: Tensor, temperature: Tensor, top_p: Tensor, u: Tensor, recent: Tensor, redraw: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Draw the first entry of a frame for each row, a code or the end of speech; the arguments are those of `frame`."""
        logits, fast_input = self.first_logits(state)
        top, size = Likeliest.of(logits), logits.shape[-1]
        main = choose_main(top, temperature, top_p, (u[:, :size], u[:, size : 2 * size]), recent, redraw)
        return main, main.clamp_max(self.config.entries - 1), fast_input, top.finite

    def draws(self) -> int:
        """Count the random numbers per frame: two per entry of the first code, and one per entry of each later code."""
        return 2 * len(self.head) + (self.config.codebooks - 1) * self.config.choices

    def frame(
        self, state: Tensor, temperature: Tensor, top_p: Tensor, u: Tensor, recent: Tensor, redraw: Tensor, slots: Slots
    ) -> tuple[Tensor, Tensor]:
        """Sample a frame from slow states (rows, width): entries (rows, codebooks), and whether logits are finite (rows,).

        At the end of speech the first entry equals the number of `entries`, and the other entries are meaningless. `u` is
        (rows, draws()) uniform in (0, 1); the other arguments are as in `choose_main`.
        """
        main, code, fast_input, finite = self.first(state, temperature, top_p, u, recent, redraw)
        size, choices = 2 * len(self.head), self.config.choices

        def pick(i: int, logits: Tensor) -> Tensor:
            nonlocal finite
            draws = u[:, size + (i - 1) * choices :][:, :choices]
            code, finite = self.choose_code(logits, temperature, top_p, draws, finite)
            return code

        codes = self.codes(fast_input, code, pick, slots)
        return torch.cat((main[:, None], codes[:, 1:]), 1), finite


def _blocks(config: TowerConfig, prefix: str, read: Read) -> list[TowerLayer]:
    width, heads, head, hidden = config.width, config.heads * config.head_width, config.head_width, config.hidden
    blocks = []
    for i in range(config.layers):

        def weight(name: str, *shape: int, module: str = f"{prefix}.{i}") -> Tensor:
            return read(f"{module}.{name}.weight", *shape)

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

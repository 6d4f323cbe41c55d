"""What the embedded family's models are made of: sizes, read from a checkpoint and never guessed, and phones.

One architecture family, many checkpoints: the embedded voice is a small member. A field that a
checkpoint names and this version does not know is refused, since ignoring it would change what the voice says. The phones are
American English as flite writes it, vowels with stress; Mandarin, finals with tone; pauses.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Final, Self

from voicelab.errors import WeightsError


class _Config:
    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """The configuration that a checkpoint's metadata holds.

        Raises:
            WeightsError: a field is missing, or unknown to this version.
        """
        if unknown := sorted(set(values) - {f.name for f in fields(cls)}):  # type: ignore[arg-type]
            raise WeightsError(f"{cls.__name__}: this version does not know {unknown}; the weights are of a newer one")
        try:
            return cls(**{name: _value(value) for name, value in values.items()})
        except TypeError as error:
            raise WeightsError(f"{cls.__name__}: {error}") from error

    def to_dict(self) -> dict[str, Any]:
        """Plain values for a checkpoint's metadata."""
        return asdict(self)  # type: ignore[call-overload,no-any-return]


@dataclass(frozen=True)
class CodecConfig(_Config):
    """The neural codec: a log-spectrum encoder, residual quantizers, a causal harmonic-plus-noise decoder."""

    sample_rate: int = 44_100
    """Hz of the audio on both sides."""
    hop: int = 2048
    """Samples a code frame stands for: 21.53 frames a second at 44.1 kHz."""
    codebooks: tuple[int, ...] = (512,) * 8
    """Entries of each codebook; the first is the semantic one."""
    latent: int = 96
    """Width of the quantized vectors."""
    mel_bands: int = 80
    """Mel bands the encoder sees, up to `mel_top`."""
    mel_top: float = 8000.0
    """Hz."""
    linear_bins: int = 64
    """Lowest bins of the linear spectrum the encoder sees besides: they resolve the harmonics, so they carry F0."""
    width: int = 320
    """Channels at the code frame rate."""
    fine_width: int = 96
    """Channels at the rate of the vocoder's steps."""
    depth: int = 4
    """Convolution blocks at the code frame rate in the encoder and in the decoder, which has one less at the fine rate."""
    filter_bands: int = 100
    """Bands of the harmonic and of the noise filter."""
    phones: int = 72
    """Size of the phone inventory that the semantic codebook was trained to tell apart."""


@dataclass(frozen=True)
class StackConfig(_Config):
    """One transformer: pre-norm, rotary positions, gated MLP."""

    width: int
    layers: int
    heads: int
    hidden: int
    """Width of the gated MLP."""
    window: int
    """Positions that a position sees on each side that it may look to; a fixed window makes length no matter."""


@dataclass(frozen=True)
class LMConfig(_Config):
    """The dual autoregressive language model over codec frames, with the small members' monotonic text pointer."""

    codebooks: tuple[int, ...] = (512, 256, 256, 256, 256, 256, 256)
    """As in the codec."""
    latent: int = 96
    """Width of the codec's quantized vectors, of which the speaker vector is made."""
    phones: int = 62
    """Size of the phone inventory."""
    flags: int = 4
    """Places in a word: inside, first, last, only."""
    advances: int = 4
    """The pointer moves by 0 to ``advances - 1`` phones after a frame; the first symbol of a frame is (code, advance)."""
    dwell: int = 20
    """Most frames the pointer may rest on one phone before it is moved on."""
    text: StackConfig = StackConfig(width=256, layers=2, heads=4, hidden=512, window=32)
    """Bidirectional, over phones."""
    slow: StackConfig = StackConfig(width=256, layers=6, heads=4, hidden=704, window=192)
    """Causal, over frames."""
    depth: StackConfig = StackConfig(width=192, layers=2, heads=3, hidden=512, window=16)
    """Causal, over the codebooks of one frame."""


def _value(value: Any) -> Any:
    return StackConfig.of(value) if isinstance(value, Mapping) else tuple(value) if isinstance(value, list) else value


_VOWELS = ("aa", "ae", "ah", "ao", "aw", "ax", "ay", "eh", "er", "ey", "ih", "iy", "ow", "oy", "uh", "uw")
_CONSONANTS = tuple("b ch d dh f g hh jh k l m n ng p r s sh t th v w y z zh".split())

PAUSES = ("^", ",", ".", "?", "!")
"""The silence before speech, and those that punctuation asks for."""

LANGUAGES: tuple[str, ...] = ("en", "zh")
"""The languages that the front end reads; the sounds of Mandarin are `MANDARIN_PHONES`."""

PHONES: tuple[str, ...] = ("", *PAUSES, *_CONSONANTS, *(v + s for v in _VOWELS for s in "01"))
"""Position is id; id 0 is padding. ``ae1`` is a stressed vowel, ``ae0`` an unstressed one."""

_INITIALS: Final = tuple("b p m f d t n l g k h j q x zh ch sh r z c s".split())
FINALS: Final = tuple(
    (
        "a o e ai ei ao ou an en ang eng er i ir iz ia ie iao iou ian in iang ing iong u ua uo uai uei uan uen uang ueng "
        "ong v ve van vn ng"
    ).split()
)
"""In pinyin's full spelling; ``ir`` is the vowel of zhi, ``iz`` that of zi, ``v`` is ü."""

MANDARIN_PHONES: Final = tuple(
    [f"zh_{name}" for name in _INITIALS] + [f"zh_{name}{tone}" for name in FINALS for tone in "12345"] + ["zh_rr"]
)
"""Follow `PHONES` in the inventory of a voice that speaks Mandarin, so that the ids of the English ones stay. Finals carry
the tone, 5 the neutral one; ``zh_rr`` is the r of erhua."""

ALL_PHONES: Final = PHONES + MANDARIN_PHONES
"""The inventory of a voice that speaks both; position is id."""

VOWELS: Final = frozenset(number for number, name in enumerate(ALL_PHONES) if name[-1:].isdigit())
"""Ids of vowels and of Mandarin's finals: what a figure for stress or tone ends."""


@dataclass(frozen=True)
class Phonemes:
    """A segment as the language model reads it."""

    phones: tuple[int, ...]
    flags: tuple[int, ...]
    words: tuple[tuple[str, int, int], ...]
    """(word as written, its first phone, the phone after its last)."""
    pause_s: float = 0.0
    """Seconds of silence that a tag puts before it."""
    emphasised: frozenset[int] = frozenset()
    """Places of the vowels of words that a tag asks to emphasise."""

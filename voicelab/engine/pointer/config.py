"""Configurations of the embedded family's models, read from a checkpoint, and the family's phone inventory.

Checkpoints of different sizes share this architecture; the embedded voice is a small one. An unknown field in a checkpoint is
an error, because ignoring it would change the speech. The phones are those of American English as transcribed by flite
(vowels with stress), those of Mandarin (finals with tone), and pauses.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Final, Self

from voicelab.errors import WeightsError


class _Config:
    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """Parse the configuration in a checkpoint's metadata.

        Raises:
            WeightsError: a field is missing or unknown to this version.
        """
        if unknown := sorted(set(values) - {f.name for f in fields(cls)}):  # type: ignore[arg-type]
            raise WeightsError(
                f"{cls.__name__}: unknown fields {unknown}; the weights need a newer version of voicelab"
            )
        try:
            return cls(**{name: _value(value) for name, value in values.items()})
        except TypeError as error:
            raise WeightsError(f"{cls.__name__}: {error}") from error

    def to_dict(self) -> dict[str, Any]:
        """Convert to plain values for a checkpoint's metadata."""
        return asdict(self)  # type: ignore[call-overload,no-any-return]


@dataclass(frozen=True)
class CodecConfig(_Config):
    """Configuration of the codec: log-spectrum encoder, residual quantizers, causal harmonic-plus-noise decoder."""

    sample_rate: int = 44_100
    """Sample rate of input and output audio in Hz."""
    hop: int = 2048
    """Samples per code frame: 21.53 frames per second at 44.1 kHz."""
    codebooks: tuple[int, ...] = (512,) * 8
    """Number of entries of each codebook; the first codebook is semantic."""
    latent: int = 96
    """Width of the quantized vectors."""
    mel_bands: int = 80
    """Number of mel bands in the encoder's input, up to `mel_top`."""
    mel_top: float = 8000.0
    """Upper limit of the mel bands in Hz."""
    linear_bins: int = 64
    """Number of the lowest bins of a linear spectrum, which the encoder also receives because they carry F0."""
    width: int = 320
    """Channels at the code frame rate."""
    fine_width: int = 96
    """Channels at the rate of the vocoder's steps."""
    depth: int = 4
    """Number of convolution blocks at the code frame rate; at the rate of the steps, the decoder has one fewer."""
    filter_bands: int = 100
    """Number of bands of the harmonic filter and of the noise filter."""
    phones: int = 72
    """Number of phones distinguished in training the semantic codebook."""


@dataclass(frozen=True)
class StackConfig(_Config):
    """Configuration of a transformer: pre-norm, rotary positions, gated MLP."""

    width: int
    layers: int
    heads: int
    hidden: int
    """Width of the gated MLP."""
    window: int
    """Attention window: number of positions visible on each side (only the past if causal). As it is fixed, a sequence can
    have any length."""


@dataclass(frozen=True)
class LMConfig(_Config):
    """Configuration of the dual autoregressive language model over codec frames, with a monotonic text pointer."""

    codebooks: tuple[int, ...] = (512, 256, 256, 256, 256, 256, 256)
    """Number of entries of each codebook, as in the codec."""
    latent: int = 96
    """Width of the codec's quantized vectors, from which speaker statistics are computed."""
    phones: int = 62
    """Size of the phone inventory."""
    flags: int = 4
    """Number of flags for the position in a word: inside, first, last, only."""
    advances: int = 4
    """Number of possible advances of the pointer after a frame: 0 to ``advances - 1`` phones. The first symbol of a frame is
    (code, advance)."""
    dwell: int = 20
    """Maximum frames on one phone before the pointer is advanced."""
    text: StackConfig = StackConfig(width=256, layers=2, heads=4, hidden=512, window=32)
    """Text encoder: bidirectional, over phones."""
    slow: StackConfig = StackConfig(width=256, layers=6, heads=4, hidden=704, window=192)
    """Slow transformer: causal, over frames."""
    depth: StackConfig = StackConfig(width=192, layers=2, heads=3, hidden=512, window=16)
    """Depth transformer: causal, over the codebooks of one frame."""


def _value(value: Any) -> Any:
    return StackConfig.of(value) if isinstance(value, Mapping) else tuple(value) if isinstance(value, list) else value


_VOWELS = ("aa", "ae", "ah", "ao", "aw", "ax", "ay", "eh", "er", "ey", "ih", "iy", "ow", "oy", "uh", "uw")
_CONSONANTS = tuple("b ch d dh f g hh jh k l m n ng p r s sh t th v w y z zh".split())

PAUSES = ("^", ",", ".", "?", "!")
"""The silence before speech, and the pauses at punctuation marks."""

LANGUAGES: tuple[str, ...] = ("en", "zh")
"""Languages of the front end; the phones of Mandarin are `MANDARIN_PHONES`."""

PHONES: tuple[str, ...] = ("", *PAUSES, *_CONSONANTS, *(v + s for v in _VOWELS for s in "01"))
"""A phone's index is its id; id 0 is padding. ``ae1`` is a stressed vowel, ``ae0`` an unstressed one."""

_INITIALS: Final = tuple("b p m f d t n l g k h j q x zh ch sh r z c s".split())
FINALS: Final = tuple(
    (
        "a o e ai ei ao ou an en ang eng er i ir iz ia ie iao iou ian in iang ing iong u ua uo uai uei uan uen uang ueng "
        "ong v ve van vn ng"
    ).split()
)
"""Finals in pinyin's full spelling; ``ir`` is the vowel of zhi, ``iz`` that of zi, ``v`` is ü."""

MANDARIN_PHONES: Final = tuple(
    [f"zh_{name}" for name in _INITIALS] + [f"zh_{name}{tone}" for name in FINALS for tone in "12345"] + ["zh_rr"]
)
"""Appended to `PHONES` for voices that speak Mandarin, so English ids are unchanged. Finals carry the tone (5 is neutral);
``zh_rr`` is the r of erhua."""

ALL_PHONES: Final = PHONES + MANDARIN_PHONES
"""The inventory of a voice that speaks both languages; a phone's index is its id."""

VOWELS: Final = frozenset(number for number, name in enumerate(ALL_PHONES) if name[-1:].isdigit())
"""Ids of vowels and Mandarin finals: phones whose name ends in a digit for stress or tone."""


@dataclass(frozen=True)
class Phonemes:
    """Model input of one text segment."""

    phones: tuple[int, ...]
    flags: tuple[int, ...]
    words: tuple[tuple[str, int, int], ...]
    """Words as (word as written, index of its first phone, index after its last phone)."""
    pause_s: float = 0.0
    """Seconds of silence that a tag inserts before the segment."""
    emphasized: frozenset[int] = frozenset()
    """Indices of the vowels in words emphasized by a tag."""

"""Call: everything that decides one utterance: the request, the model and the seed.

A call is made here and only here: what the short names (``voice``, ``speed``, ``volume``) stand for, what a default
is, and within which bounds a seed is. Everything else makes one or passes it on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Self

from voicelab.errors import RequestInvalid
from voicelab.schema import DEFAULT_MODEL, Model, ProsodyControl, TTSRequest, VoiceModel, check_model

__all__ = ["MAX_SEED", "Call", "Voice", "VoicePreset", "check_seed", "merged_defaults", "voice_id"]

MAX_SEED: Final = 2**63 - 1
"""The largest seed; the smallest is 0."""

_NOTHING: Final[Mapping[str, object]] = MappingProxyType({})
_PROSODY: Final = tuple(ProsodyControl.model_fields)
# What says who speaks. A call that names one of them replaces the default speaker altogether.
_SPEAKER: Final = ("reference_id", "references")


@dataclass(frozen=True, slots=True)
class VoicePreset:
    """A voice that a backend brings with it; ``id`` is what ``reference_id`` takes."""

    id: str
    title: str
    description: str = ""


Voice = str | VoicePreset | VoiceModel
"""Who speaks: the id of a preset or of a stored voice, or the thing itself."""


@dataclass(frozen=True, slots=True)
class Call:
    """One utterance to be made: what a backend's ``synthesize`` takes.

    ``seed`` is a whole number from 0 to 2**63 - 1; None leaves it to the backend. Raises RequestInvalid for a model
    or a seed that there is not.
    """

    request: TTSRequest
    model: Model = DEFAULT_MODEL
    seed: int | None = None

    def __post_init__(self) -> None:
        check_model(self.model)
        if self.seed is not None:
            check_seed(self.seed)

    @classmethod
    def of(cls, text: str, defaults: Mapping[str, object] = _NOTHING, **fields: object) -> Self:
        """Make a call that says ``text``.

        Args:
            text: what to say.
            defaults: what ``fields`` do not say; by the same names.
            **fields: fields of TTSRequest, ``model``, ``seed``, and ``voice`` (an id, a preset or a VoiceModel) for
                ``reference_id``, ``speed`` and ``volume`` for those of ``prosody``. None for ``voice``, ``model`` or
                ``seed`` is the default. The format is wav when neither names one.

        Raises RequestInvalid, which names the field.
        """
        base = _named(defaults, None)
        given = {name: value for name, value in fields.items() if value is not None or name not in _OPTIONAL}
        given = _named(given, base.get("prosody"))
        if any(name in given for name in _SPEAKER):
            base = {name: value for name, value in base.items() if name not in _SPEAKER}
        merged = {"format": "wav", **base, **given, "text": text}
        model, seed = merged.pop("model", None), merged.pop("seed", None)
        return cls(TTSRequest.build(**merged), check_model(model), None if seed is None else check_seed(seed))

    def replace(self, **changes: object) -> Self:
        """Return the call with some fields changed, by the names that ``of`` takes, or dotted: ``prosody.speed``.

        A call with another voice clones no reference, and the other way round. Raises RequestInvalid.
        """
        fields = _named(changes, self.request.prosody)
        model, seed = fields.pop("model", self.model), fields.pop("seed", self.seed)
        if fields.get("reference_id") is not None:
            fields.setdefault("references", None)
        if "references" in fields:
            fields.setdefault("reference_id", None)
        request = self.request.replace(**fields) if fields else self.request
        return type(self)(request, check_model(model), None if seed is None else check_seed(seed))


_OPTIONAL: Final = ("voice", "model", "seed")


def merged_defaults(defaults: Mapping[str, object], changes: Mapping[str, object]) -> dict[str, object]:
    """Return defaults for ``Call.of`` with ``changes`` made to them, by the schema's names; None takes one away.

    Raises RequestInvalid for a default that no call can have.
    """
    base = _named(defaults, None)
    fields = _named(changes, base.get("prosody"))
    if any(fields.get(name) is not None for name in _SPEAKER):
        # Whoever is named speaks in the place of who spoke before.
        base = {name: value for name, value in base.items() if name not in _SPEAKER}
    merged = {name: value for name, value in {**base, **fields}.items() if value is not None}
    if "text" in merged:
        raise RequestInvalid.of("text", "the text belongs to the call, it has no default")
    Call.of("defaults", merged)
    return merged


def check_seed(seed: object) -> int:
    """Return a seed. Raises RequestInvalid when it is no whole number from 0 to 2**63 - 1."""
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed <= MAX_SEED:
        message = f"Input should be a whole number from 0 to {MAX_SEED}"
        raise RequestInvalid.of("seed", message, type="int_type", in_="header")
    return seed


def voice_id(voice: object) -> str:
    """Return the id of a voice, given as such, as a preset or as a record. Raises RequestInvalid."""
    if isinstance(voice, VoicePreset | VoiceModel):
        return voice.id
    if isinstance(voice, str) and voice:
        return voice
    raise RequestInvalid.of("voice", f"a voice is an id, a preset or a VoiceModel, not {type(voice).__name__}")


def _named(fields: Mapping[str, object], prosody: object) -> dict[str, object]:
    """Return the fields by the schema's names; of speed and volume, ``prosody`` says the one that is not given."""
    named = {
        name: value
        for name, value in fields.items()
        if name != "voice" and name.removeprefix("prosody.") not in _PROSODY
    }
    if "voice" in fields:
        voice = fields["voice"]
        if named.get("reference_id") is not None:
            raise RequestInvalid.of("reference_id", "give voice or reference_id, not both")
        named["reference_id"] = None if voice is None else voice_id(voice)
    parts = {
        name.removeprefix("prosody."): value
        for name, value in fields.items()
        if name.removeprefix("prosody.") in _PROSODY
    }
    if parts:
        if named.get("prosody") is not None:
            name = next(iter(parts))
            raise RequestInvalid.of(name, f"give prosody or {name}, not both")
        before = dict(prosody) if isinstance(prosody, Mapping | ProsodyControl) else {}
        # None is what was not said: for the part too, as for every field.
        named["prosody"] = {name: value for name, value in {**before, **parts}.items() if value is not None} or None
    return named

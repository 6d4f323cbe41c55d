"""What a page or a widget tells a listener, and takes from them: blinded, as JSON-able objects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from voicelab.errors import NotFound, RequestInvalid
from voicelab.experiments.listening.design import SCALES
from voicelab.experiments.listening.votes import Ballot

__all__ = ["Session"]

_MOST: Final = 2**31
"""More than anybody counts, and few enough for the file of votes."""


class Session:
    """A Ballot as its listeners see it: nothing here says which sound is which."""

    def __init__(self, ballot: Ballot) -> None:
        self.ballot = ballot
        self._stimuli = ballot.test.stimuli

    def join(self, name: object) -> dict[str, Any]:
        """Return ``{"listener": number}``. Raises RequestInvalid for a name that is none."""
        if not isinstance(name, str):
            raise RequestInvalid.of("name", "a listener needs a name", type="string_type")
        return {"listener": self.ballot.join(name)}

    def trial(self, listener: object) -> dict[str, Any] | None:
        """Return what the listener is asked next, None at the end. Raises NotFound for nobody's number."""
        asked = self.ballot.next_trial(_number(listener))
        if asked is None:
            return None
        place = int(asked.id.partition("-")[2])
        return {
            "id": asked.id,
            "kind": asked.kind,
            "question": self.ballot.test.question,
            "place": place,
            "total": len(self.ballot.test.trials(_number(listener))),
            "letters": [{"letter": letter, "sound": sound.id} for letter, sound in asked.slots.items()],
            "reference": asked.reference.id if asked.reference is not None else None,
            "scale": SCALES.get(asked.kind),
        }

    def sound(self, id: object) -> bytes:
        """Return a sound as a WAV file, by its blind id. Raises NotFound for any other."""
        stimulus = self._stimuli.get(id) if isinstance(id, str) else None
        if stimulus is None:
            raise NotFound("there is no such sound")
        clip = stimulus.clip
        # A browser's decoder takes any rate; the file formats of the service only some.
        return clip.to_bytes("wav") if clip.rate == 44_100 else clip.resample(44_100).to_bytes("wav")

    def vote(self, listener: object, body: Mapping[str, Any]) -> dict[str, Any]:
        """Keep an answer: ``{"trial": …, "answers": {…}, "seconds": …, "plays": …}``.

        Raises RequestInvalid, which names what is wrong, and NotFound.
        """
        trial, answers = body.get("trial"), body.get("answers")
        if not isinstance(trial, str):
            raise RequestInvalid.of("trial", "Input should be the id of a trial", type="string_type")
        if not isinstance(answers, Mapping):
            raise RequestInvalid.of("answers", "Input should be an object", type="model_type")
        seconds, plays = body.get("seconds", 0.0), body.get("plays", 0)
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < _MOST:
            raise RequestInvalid.of("seconds", "Input should be a number, 0 or more", type="float_type")
        if type(plays) is not int or not 0 <= plays < _MOST:
            raise RequestInvalid.of("plays", "Input should be a whole number from 0", type="int_type")
        self.ballot.vote(_number(listener), trial, answers, seconds=seconds, plays=plays)
        return {"kept": True}


def _number(listener: object) -> int:
    if type(listener) is not int or not 0 <= listener < _MOST:
        raise NotFound("nobody has this number; join first")
    return listener

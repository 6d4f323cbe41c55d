"""VoiceWork: recordings on their way to a voice: each is taken in for a trial, heard, noted on, and then used.

No widget is known here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, Protocol

from voicelab.audio.clip import Clip
from voicelab.errors import RequestInvalid, VoicelabError
from voicelab.schema import VoiceCreate, VoiceModel
from voicelab.voices.intake import MAX_FILES, prepare_samples
from voicelab.voices.transcripts import Recognizer, default_recognizer

__all__ = ["Recording", "VoiceMaker", "VoiceWork"]

_BEFORE: Final = "Voice file 1: "


@dataclass(frozen=True, slots=True)
class Recording:
    """One recording: what it is called, and what the intake made of it.

    ``clip`` is the sound as it would be kept and ``text`` what is said in it, as it was recognised or, where
    ``written``, as somebody put it down; ``notes`` are the intake's warnings, ``trouble`` why it cannot be used.
    """

    id: int
    name: str
    data: bytes = field(repr=False)
    state: Literal["listening", "ready", "refused"] = "listening"
    clip: Clip | None = None
    text: str = ""
    written: bool = False
    notes: tuple[str, ...] = ()
    trouble: str = ""


class VoiceMaker(Protocol):
    """What is asked of a Lab."""

    def create_voice(self, title: str, voices: Sequence[bytes], *, texts: Sequence[str], **fields: Any) -> VoiceModel:
        """Make a voice."""


class VoiceWork:
    """The recordings of a voice to be.

    ``told`` is called, from any thread, with the id of a recording about which something is new. Recordings are
    listened to in threads, one after another; after ``close`` nothing is told any more.
    """

    def __init__(self, lab: VoiceMaker, told: Callable[[int], object]) -> None:
        self._lab = lab
        self._told = told
        self._lock = threading.RLock()
        self._one_at_a_time = threading.Lock()
        self._recordings: dict[int, Recording] = {}
        self._threads: set[threading.Thread] = set()
        self._recognizer: tuple[Recognizer | None] | None = None
        self._last = 0
        self._enhanced = False
        self._closed = False

    @property
    def recordings(self) -> tuple[Recording, ...]:
        """All of them, in order."""
        return tuple(self._recordings.values())

    @property
    def enhanced(self) -> bool:
        """Whether noise is taken away first."""
        return self._enhanced

    @enhanced.setter
    def enhanced(self, wanted: bool) -> None:
        with self._lock:
            if wanted == self._enhanced:
                return
            self._enhanced = wanted
        for one in self.recordings:
            if one.data:
                self._begin(one)

    def add(self, name: str, data: bytes) -> int:
        """Take a recording, the bytes of a file, and begin to listen to it; returns its id."""
        with self._lock:
            self._last += 1
            one = Recording(self._last, name, data)
        self._begin(one)
        return one.id

    def refuse(self, name: str, why: str) -> int:
        """Keep in mind that something could not be taken."""
        with self._lock:
            self._last += 1
            self._recordings[self._last] = Recording(self._last, name, b"", "refused", trouble=why)
        self._told(self._last)
        return self._last

    def write(self, id: int, text: str) -> None:
        """Put down what is said in a recording, and compare it with the sound; blank lets it be recognised again."""
        with self._lock:
            one = self._recordings.get(id)
        if one is not None and text != one.text:
            self._begin(replace(one, text=text, written=bool(text.strip())))

    def drop(self, id: int) -> None:
        """Forget a recording."""
        with self._lock:
            self._recordings.pop(id, None)
        self._told(id)

    def check(self, title: str) -> None:
        """Raise RequestInvalid, which names the field, unless a voice can be made of what is there now."""
        for one in self.recordings:
            if one.state == "refused":
                raise RequestInvalid.of("voices", f"{one.name} cannot be used; remove it")
        if len(self.recordings) > MAX_FILES:
            raise RequestInvalid.of(
                "voices", f"There are {len(self.recordings)} recordings; at most {MAX_FILES} are taken"
            )
        VoiceCreate.build(title=title, voices=tuple(one.data for one in self.recordings), visibility="private")

    def create(self, title: str, **fields: Any) -> VoiceModel:
        """Make the voice, and forget what it was made of, unless ``check`` or the backend raises."""
        self.check(title)
        used = self.recordings
        # Transcripts go along as they are shown, so that the voice has what somebody has read and corrected.
        texts = [one.text for one in used] if any(one.text.strip() for one in used) else []
        files = [one.data for one in used]
        made = self._lab.create_voice(title, files, texts=texts, enhance_audio_quality=self._enhanced, **fields)
        # What was added meanwhile is for another voice.
        for one in used:
            self.drop(one.id)
        return made

    def wait(self, timeout: float = 60.0) -> bool:
        """Wait until all recordings have been listened to, each at most ``timeout`` seconds; returns whether they have."""
        for thread in tuple(self._threads):
            thread.join(timeout)
        return not any(thread.is_alive() for thread in tuple(self._threads))

    def close(self) -> None:
        """Tell nothing any more."""
        self._closed = True

    def _begin(self, one: Recording) -> None:
        with self._lock:
            self._recordings[one.id] = one = replace(one, state="listening", notes=(), trouble="")
            enhanced = self._enhanced
        self._told(one.id)
        thread = threading.Thread(target=self._run, args=(one, enhanced), name="voicelab-intake", daemon=True)
        with self._lock:
            thread.start()
            self._threads = {thread, *(other for other in self._threads if other.is_alive())}

    def _run(self, one: Recording, enhanced: bool) -> None:
        def wanted() -> bool:
            return not self._closed and enhanced == self._enhanced and self._recordings.get(one.id) is one

        with self._one_at_a_time:
            if not wanted():
                return
            found = self._listen(one, enhanced=enhanced)
        with self._lock:
            # Whatever was written or chosen meanwhile has begun another run.
            if not wanted():
                return
            self._recordings[one.id] = replace(one, **found)
        self._told(one.id)

    def _listen(self, one: Recording, *, enhanced: bool) -> Mapping[str, Any]:
        texts = (one.text,) if one.written else ()
        try:
            request = VoiceCreate.build(
                title="x", voices=(one.data,), texts=texts, visibility="private", enhance_audio_quality=enhanced
            )
            (sample,) = prepare_samples(request, self._listener)
            clip = Clip.load(sample.audio)
        except RequestInvalid as error:
            return {"state": "refused", "trouble": error.errors[0].msg.removeprefix(_BEFORE)}
        except VoicelabError as error:
            return {"state": "refused", "trouble": str(error)}
        return {"state": "ready", "clip": clip, "text": sample.text, "notes": sample.notes}

    def _listener(self) -> Recognizer | None:
        if self._recognizer is None:
            self._recognizer = (default_recognizer(),)
        return self._recognizer[0]

"""VoicePanel: recordings in, a voice out; the voices there are; and a sentence to try them with."""

from __future__ import annotations

import functools
import itertools
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from pathlib import Path
from typing import Any, Final, Literal

import anywidget
import ipywidgets as w
from IPython.core.getipython import get_ipython

from voicelab.asr.recognizers import default_recognizer
from voicelab.audio.formats import MAX_BYTES
from voicelab.call import Call
from voicelab.clip import Clip
from voicelab.errors import RequestInvalid, VoicelabError
from voicelab.schema import VoiceCreate, VoiceModel
from voicelab.session import Session
from voicelab.views.background import Task
from voicelab.views.bundles import clip_bundle, error_html, voice_bundle, voices_table
from voicelab.views.controls import voice_choices
from voicelab.views.explore_panel import TEXT, ExplorePanel
from voicelab.views.panel import (
    Ending,
    Panel,
    SavedOutput,
    button,
    classed,
    control,
    inlined,
    line,
    mark_wrong,
    styled,
)
from voicelab.views.player import Player
from voicelab.voices.intake import MAX_FILES, prepare_samples

_TITLE: Final = "My voice"
_HEAD: Final = '<div class="voicelab-heading">{}</div>'
_BEFORE: Final = "Voice file 1: "
# Files on their way at the same time; a page that was closed in the middle never sends the rest of its own.
_MOST_UPLOADS: Final = 32


class Recorder(anywidget.AnyWidget):
    """A place to drop files, a button to choose them, and one to record the microphone, where the browser allows.

    ``received`` is called with a name and the bytes of a file, whatever they are; ``refused`` with a name and a sentence
    for a file of more than ``MAX_BYTES``.
    """

    _esm = inlined("recorder.js")
    _css = styled("recorder.css")

    def __init__(self, received: Callable[[str, bytes], object], refused: Callable[[str, str], object]) -> None:
        self._received = received
        self._refused = refused
        self._files: dict[str, bytearray] = {}
        super().__init__()
        self.on_msg(self._on_message)

    def _on_message(self, _: Any, message: dict[str, Any], buffers: Sequence[Any]) -> None:
        if message.get("kind") != "piece":
            return
        file, name, size, at = (message.get(key) for key in ("file", "name", "size", "at"))
        if not (isinstance(file, str) and isinstance(name, str) and isinstance(size, int) and isinstance(at, int)):
            return
        if size > MAX_BYTES:
            self.send({"kind": "got", "file": file, "at": -1})
            self._refused(name, f"it has {size / 1e6:.0f} MB; at most {MAX_BYTES / 1e6:.0f} MB are taken")
            return
        data = self._files.setdefault(file, bytearray())
        while len(self._files) > _MOST_UPLOADS:
            del self._files[next(iter(self._files))]
        if at == len(data):
            for piece in buffers:
                data += bytes(piece)
        if len(data) >= size:
            self._files.pop(file, None)
        self.send({"kind": "got", "file": file, "at": len(data)})
        if len(data) >= size:
            self._received(name, bytes(data[:size]))

    def __repr__(self) -> str:
        return f"Recorder({len(self._files)} files on their way)"


@dataclass(frozen=True, slots=True)
class Recording:
    """One recording: its name, and what the intake made of it.

    ``clip`` is the sound as it would be stored and ``text`` what is said in it, as it was recognised or, where
    ``written``, as it was typed; ``notes`` are the intake's warnings, ``problem`` is why it cannot be used.
    """

    id: int
    name: str
    data: bytes = field(repr=False)
    state: Literal["analyzing", "ready", "refused"] = "analyzing"
    clip: Clip | None = None
    text: str = ""
    written: bool = False
    notes: tuple[str, ...] = ()
    problem: str = ""


class VoiceDraft:
    """The recordings that a voice is to be made of. No widget is known here.

    ``changed`` is called, from any thread, with the id of a recording that has changed. Recordings are analyzed in
    threads, one after another; after ``close`` it is called no more.
    """

    def __init__(self, lab: Session, changed: Callable[[int], object]) -> None:
        self._lab = lab
        self._changed = changed
        self._lock = threading.RLock()
        self._one_at_a_time = threading.Lock()
        self._recordings: dict[int, Recording] = {}
        self._tasks: set[Task] = set()
        self._recognizer = functools.cache(default_recognizer)
        self._ids = itertools.count(1)
        self._enhanced = False
        self.closed = False
        """Whether nothing is reported any more."""

    @property
    def recordings(self) -> tuple[Recording, ...]:
        """All of them, in order."""
        return tuple(self._recordings.values())

    def enhance(self, wanted: bool) -> None:
        """Reduce noise first, or no longer; what is there is analyzed anew."""
        with self._lock:
            changed, self._enhanced = wanted != self._enhanced, wanted
        for one in self.recordings:
            if changed and one.data:
                self._begin(one)

    def add(self, name: str, data: bytes) -> int:
        """Add a recording, the bytes of a file, and begin to analyze it; returns its id."""
        one = Recording(next(self._ids), name, data)
        self._begin(one)
        return one.id

    def refuse(self, name: str, why: str) -> int:
        """List a recording that could not be taken, and why."""
        one = Recording(next(self._ids), name, b"", "refused", problem=why)
        self._recordings[one.id] = one
        self._changed(one.id)
        return one.id

    def write(self, id: int, text: str) -> None:
        """Set what is said in a recording, and compare it with the sound; blank lets it be recognised again."""
        with self._lock:
            one = self._recordings.get(id)
        if one is not None and text != one.text:
            self._begin(replace(one, text=text, written=bool(text.strip())))

    def drop(self, id: int) -> None:
        """Forget a recording."""
        with self._lock:
            self._recordings.pop(id, None)
        self._changed(id)

    @property
    def usable(self) -> tuple[Recording, ...]:
        """Those that a voice is made of: all but the refused."""
        return tuple(one for one in self.recordings if one.state != "refused")

    def check(self, title: str) -> None:
        """Raise RequestInvalid, which names the field, unless a voice can be made of what is usable now."""
        used = self.usable
        if self.recordings and not used:
            raise RequestInvalid.of("voices", "none of the recordings can be used")
        if len(used) > MAX_FILES:
            raise RequestInvalid.of("voices", f"There are {len(used)} recordings; at most {MAX_FILES} are taken")
        VoiceCreate.build(title=title, voices=tuple(one.data for one in used), visibility="private")

    def create(self, title: str, **fields: Any) -> VoiceModel:
        """Make the voice, and forget what it was made of, unless ``check`` or the backend raises."""
        self.check(title)
        there, used = self.recordings, self.usable
        # Transcripts go along as they are shown, so that the voice has what the user has read and corrected.
        texts = [one.text for one in used] if any(one.text.strip() for one in used) else []
        files = [one.data for one in used]
        voice = self._lab.create_voice(title, files, texts=texts, enhance_audio_quality=self._enhanced, **fields)
        # What was added meanwhile is for another voice.
        for one in there:
            self.drop(one.id)
        return voice

    def wait(self, timeout: float = 60.0) -> bool:
        """Wait until all recordings are analyzed, each at most ``timeout`` seconds; returns whether they are."""
        return all(task.wait(timeout) for task in tuple(self._tasks))

    def close(self) -> None:
        """Report nothing any more."""
        self.closed = True

    def _begin(self, one: Recording) -> None:
        with self._lock:
            self._recordings[one.id] = one = replace(one, state="analyzing", notes=(), problem="")
        self._changed(one.id)
        task = Task(lambda: self._run(one), name="intake").start()
        with self._lock:
            self._tasks = {task, *(other for other in self._tasks if other.running)}

    def _run(self, one: Recording) -> None:
        def wanted() -> bool:
            # Whatever was written or chosen meanwhile has begun another run.
            return not self.closed and self._recordings.get(one.id) is one

        with self._one_at_a_time:
            if not wanted():
                return
            analyzed = self._analyzed(one)
        with self._lock:
            if not wanted():
                return
            self._recordings[one.id] = analyzed
        self._changed(one.id)

    def _analyzed(self, one: Recording) -> Recording:
        fields = {"texts": (one.text,) if one.written else (), "enhance_audio_quality": self._enhanced}
        try:
            request = VoiceCreate.build(title="x", voices=(one.data,), visibility="private", **fields)
            (sample,) = prepare_samples(request, self._recognizer)
            return replace(one, state="ready", clip=Clip.load(sample.audio), text=sample.text, notes=sample.notes)
        except RequestInvalid as error:
            problem = error.errors[0].msg.removeprefix(_BEFORE)
        except VoicelabError as error:
            problem = str(error)
        return replace(one, state="refused", problem=problem)


class VoicePanel(SavedOutput, Panel):
    """Makes a voice of files, of the microphone or of clips, lists the voices of a lab, and lets each say a sentence.

    What is added is analyzed at once: its warnings appear, and what is said in it, to be corrected. ``voice`` is the
    record of the voice that is chosen, None for one that the backend brings with it; ``message`` says what is wrong.
    Recordings are analyzed on this machine, voices are made where the lab speaks; both in threads. ``trial`` is a
    compact ExplorePanel. The notebook keeps the table of the voices, and what was said last.
    """

    about = "a panel to make voices of recordings and to try them"

    def __init__(self, lab: Session, recordings: Iterable[Clip | str | Path] = ()) -> None:
        self._lab = lab
        self._lock = threading.RLock()
        self._creating: Task | None = None
        self._suggested = _TITLE
        self._stored: Mapping[str, VoiceModel] = {}
        self._rows: dict[int, _RecordingRow] = {}
        self.draft = VoiceDraft(lab, self._recording_changed)
        self._build()
        super().__init__(
            "voices",
            [
                w.HTML(_HEAD.format("New voice")),
                self.recorder,
                line(self.name, self.add_button),
                self.list,
                line(self.title, self.enhance, self.make_button, self.status),
                self.message,
                w.HTML(_HEAD.format("Voices")),
                self.record,
                self.trial,
            ],
        )
        classed(self, "form")
        self.at_close(self._close_draft)
        self.refresh()
        if self._stored:
            self.choose(next(iter(self._stored)))
        self._check()
        for one in recordings:
            self.add(one)

    def _build(self) -> None:
        self.recorder = Recorder(self.draft.add, self.draft.refuse)
        names: Any = {"placeholder": "name of a variable", "options": list(_clips())}
        self.name = control(w.Combobox, "Or a clip", "clip-name", width="340px", **names)
        self.add_button = button("Add", self._add_named, "add-clip")
        self.list = w.VBox()
        self.title = control(w.Text, "Title", "title", value=_TITLE, width="340px")
        self.enhance = control(w.Checkbox, "Reduce noise", indent=False)
        self.make_button = button("Create voice", self.make, "make-voice", button_style="primary")
        self.status = classed(w.Label(), "making")
        self.record = classed(w.HTML(), "record-of-voice")
        self.trial = _Trial(self._lab, self._can_speak, self.update_saved_output)
        self.trial.controls.observe(lambda _: self._chosen(), names="values")
        self.title.observe(lambda _: self._check(), names="value")
        self.enhance.observe(lambda change: self.draft.enhance(change["new"]), names="value")

    @property
    def voice(self) -> VoiceModel | None:
        """The record of the stored voice that is chosen."""
        return self._stored.get(self.trial.controls.values["reference_id"])

    def choose(self, voice: str) -> None:
        """Let a voice, given by its id, say the sentence; "" is the default speaker."""
        self.trial.controls.set(reference_id=voice)

    def add(self, recording: Clip | str | Path, name: str | None = None) -> int:
        """Add a clip or the file at a path, and listen to it. Raises OSError for a file that cannot be read."""
        if isinstance(recording, Clip):
            return self.draft.add(name or f"clip {len(self.draft.recordings) + 1}", recording.to_bytes("wav"))
        path = Path(recording)
        return self.draft.add(name or path.name, path.read_bytes())

    def make(self) -> Task | None:
        """Do what the button does; returns the work, None where something is wrong."""
        if not self._check():
            return None
        title = self.title.value
        self.status.value = "creating the voice…"
        self.make_button.disabled = True
        self._creating = Task(lambda: self._make(title), name="voice", failed=self._make_failed)
        return self._creating.start()

    def refresh(self, chosen: str | None = None) -> None:
        """Look up the voices again, and choose one."""
        try:
            stored = self._lab.stored_voices()
        except VoicelabError as error:
            self.show_error(error)
            return
        with self._lock:
            self._stored = {voice.id: voice for voice in stored}
            mine = [(f"{voice.title} ({voice.state}, {voice.created_at:%Y-%m-%d %H:%M})", voice.id) for voice in stored]
            voices = [*mine, *voice_choices(self._lab.capabilities)]
            wanted = chosen or self.trial.controls.values["reference_id"]
            self.trial.controls.offer_voices(voices, wanted if wanted in {key for _, key in voices} else "")
        self._chosen()
        self.update_saved_output()

    def _close_draft(self) -> None:
        with self._lock:  # what is being shown of a recording is there then, and closed with the rest
            self.draft.close()

    def _add_named(self) -> None:
        name = self.name.value.strip()
        clip = _clips().get(name)
        if clip is None:
            wrong = f"the variable {name!r} holds no clip" if name else "give the name of a variable that holds a clip"
            self.show_error(RequestInvalid.of("clip", wrong))
            return
        self.show_error(None)
        self.add(clip, name)
        self.name.value = ""

    def _make(self, title: str) -> None:
        voice = self.draft.create(title)
        self._creating = None
        if self.title.value == title:
            self._suggested = self.title.value = _TITLE
        self.refresh(voice.id)
        self.status.value = f"{voice.title}: {voice.state}"

    def _make_failed(self, error: Exception) -> None:
        self.status.value = "failed"
        self._creating = None
        self._check()
        self.show_error(error)

    def _recording_changed(self, id: int) -> None:
        """Show what has changed of a recording; called from any thread."""
        with self._lock:
            if self.draft.closed:
                return
            there = {one.id: one for one in self.draft.recordings}
            for gone in [key for key in self._rows if key not in there]:
                self._rows.pop(gone).close()
            if id in there:
                if id not in self._rows:
                    self._rows[id] = _RecordingRow(self.draft, there[id])
                self._rows[id].show(there[id])
            self.list.children = tuple(self._rows.values())
            # The voice is named after the first file that has a voice in it, unless the user has named it.
            if self.title.value == self._suggested:
                files = [Path(one.name) for one in self.draft.recordings if one.state == "ready"]
                named = [file.stem for file in files if file.suffix and not file.name.startswith("Recording ")]
                self._suggested = self.title.value = (named or [_TITLE])[0]
            self._check()

    def _check(self) -> bool:
        """Name what is wrong with the form; returns whether a voice can be made of it."""
        wrong: RequestInvalid | None = None
        try:
            self.draft.check(self.title.value)
        except RequestInvalid as error:
            wrong = error
        fields = {item.field for item in wrong.errors} if wrong else set()
        analyzing = any(one.state == "analyzing" for one in self.draft.recordings)
        mark_wrong(self.title, "title" in fields)
        # An empty form is no mistake yet.
        self.show_error(wrong if self.draft.recordings or "title" in fields else None)
        left = [one.name for one in self.draft.recordings if one.state == "refused"]
        if left and wrong is None:
            self.say(f"The voice is made without {', '.join(left)}, which cannot be used.")
        self.make_button.disabled = wrong is not None or analyzing or self._creating is not None
        return not self.make_button.disabled

    def _can_speak(self, voice: str | None) -> bool:
        stored = self._stored.get(voice or "")
        return stored is None or stored.state == "trained"

    def _chosen(self) -> None:
        voice = self.voice
        self.record.value = "" if voice is None else _record_html(voice)
        self.trial.check()

    def __repr__(self) -> str:
        return f"VoicePanel({len(self.draft.recordings)} recordings, {len(self._stored)} voices)"

    def saved_output(self) -> Mapping[str, str]:
        """Return the table of the voices, above what was said last."""
        spoken = clip_bundle(self.trial.clip) if self.trial.clip is not None else {}
        return {**spoken, "text/html": voices_table(tuple(self._stored.values())) + spoken.get("text/html", "")}

    def _repr_mimebundle_(self, **options: Any) -> Any:
        self.name.options = list(_clips())
        return super()._repr_mimebundle_(**options)


class _Trial(ExplorePanel):
    """The sentence that the chosen voice says; one that is not trained yet cannot."""

    def __init__(self, lab: Session, can_speak: Callable[[str | None], bool], spoken: Callable[[], object]) -> None:
        self._can_speak = can_speak
        self._spoken = spoken
        super().__init__(lab, TEXT, compact=True)

    def check(self) -> Call | None:
        call = super().check()
        if call is None or self._can_speak(call.request.reference_id):
            return call
        self.controls.ready = False
        return None

    def update_saved_output(self) -> None:
        self._spoken()


class _RecordingRow(Ending, w.VBox):  # type: ignore[misc]  # ipywidgets publishes no types
    """One recording: to be heard, with its warnings and what is said in it."""

    def __init__(self, draft: VoiceDraft, one: Recording) -> None:
        self._clip: Clip | None = None
        self.player: Player | None = None
        self.name = classed(w.HTML(), "recording-name")
        self.sound = classed(w.HBox(), "recording-sound")
        self.remove = button("×", lambda: draft.drop(one.id), "remove", help=f"Remove {one.name}")
        self.notes = classed(w.HTML(), "intake")
        empty = "what is said in it; empty, it is recognised again"
        said: Any = {"rows": 2, "continuous_update": False, "placeholder": empty, "help": f"What is said in {one.name}"}
        self.text = control(w.Textarea, "Transcript", "transcript", **said)
        self.text.observe(lambda change: draft.write(one.id, change["new"]), names="value")
        head = line(self.name, self.sound, classed(self.remove, "icon"), name="buttons")
        super().__init__([head, self.notes, self.text])
        classed(self, "recording")

    def show(self, one: Recording) -> None:
        """Show its state."""
        seconds = f", {one.clip.duration:.1f} s" if one.clip is not None else ""
        self.name.value = f"{escape(one.name)}{seconds}"
        if one.clip is not None and one.clip is not self._clip:
            self._clip = one.clip
            if self.player is None:
                self.player = Player(one.clip, label=one.name, name=Path(one.name).stem, compact=True)
                self.sound.children = (self.player,)
            else:
                self.player.show(one.clip)
        if one.state == "refused":
            self.notes.value = error_html(RequestInvalid.of("voices", one.problem))
        elif one.state == "analyzing":
            self.notes.value = '<div role="status">analyzing…</div>'
        else:
            self.notes.value = "".join(f'<div role="note">⚠ {escape(note)}</div>' for note in one.notes)
        # What is being compared with the sound can be corrected further.
        self.text.disabled = one.state != "ready" and not one.written
        self.text.layout.display = "none" if one.state == "refused" else None
        self.text.value = one.text


def _record_html(voice: VoiceModel) -> str:
    """Return a voice in a line, its record behind it."""
    count = len(voice.samples)
    line = f"{voice.title}: {voice.state}, {voice.visibility}, {count} recording{'' if count == 1 else 's'}"
    record = voice_bundle(voice)["text/html"]
    return f"<details><summary>{escape(line)}</summary>{record}</details>"


def _clips() -> dict[str, Clip]:
    """Return the notebook's variables that hold clips; none where there is no notebook."""
    shell = get_ipython()
    names: Mapping[str, object] = shell.user_ns if shell is not None else {}
    return {name: value for name, value in names.items() if isinstance(value, Clip) and not name.startswith("_")}

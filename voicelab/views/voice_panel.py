"""VoicePanel: voice cloning from recordings, a list of voices, and a preview of the selected voice."""

from __future__ import annotations

import functools
import itertools
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from pathlib import Path
from typing import Any, Final, Literal

import ipywidgets as w
from IPython.core.getipython import get_ipython

from voicelab.asr.recognizers import transcribing_recognizer
from voicelab.audio.formats import MAX_BYTES
from voicelab.call import Call
from voicelab.clip import Clip
from voicelab.errors import RequestInvalid, VoicelabError
from voicelab.schema import VoiceCreate, VoiceModel
from voicelab.session import Session
from voicelab.views.background import Task
from voicelab.views.bundles import clip_bundle, voice_bundle, voices_table
from voicelab.views.controls import voice_choices
from voicelab.views.explore_panel import TEXT, ExplorePanel
from voicelab.views.panel import (
    Ending,
    Panel,
    SavedOutput,
    button,
    classed,
    close_widgets,
    control,
    hide,
    html,
    line,
    main_button,
    mark_wrong,
    problem_html,
    stack,
)
from voicelab.views.player import Player
from voicelab.views.scripts import PageWidget, look
from voicelab.voices.intake import MAX_FILES, prepare_samples

_TITLE: Final = "My voice"
_HEAD: Final = '<div class="voicelab-heading">{}</div>'
_FILE_PREFIX: Final = "Voice file 1: "
# Maximum number of concurrent uploads, since a closed page never completes its own.
_MAX_UPLOADS: Final = 32


class Recorder(PageWidget):
    """An area for file uploads, with buttons to choose files and to record from the microphone.

    ``received`` is called with the name and the bytes of a file, without validation; ``refused`` with the name and a
    message for a file of more than ``MAX_BYTES``.
    """

    script = "recorder.js"
    styles = ("recorder.css",)

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
            self._refused(name, f"the file must be at most {MAX_BYTES / 1e6:.0f} MB, got {size / 1e6:.0f} MB")
            return
        data = self._files.setdefault(file, bytearray())
        while len(self._files) > _MAX_UPLOADS:
            del self._files[next(iter(self._files))]
        if at == len(data):
            for chunk in buffers:
                data += bytes(chunk)
        if len(data) >= size:
            self._files.pop(file, None)
        self.send({"kind": "got", "file": file, "at": len(data)})
        if len(data) >= size:
            self._received(name, bytes(data[:size]))

    def __repr__(self) -> str:
        return f"Recorder({len(self._files)} uploads)"


@dataclass(frozen=True, slots=True)
class DraftRecording:
    """A recording of a draft, with the result of its analysis.

    ``clip`` is the audio as it would be stored; ``text`` is the transcript, ``typed`` by the user or recognized; ``notes``
    are warnings, ``problem`` is the reason why the recording cannot be used.
    """

    id: int
    name: str
    data: bytes = field(repr=False)
    state: Literal["analyzing", "ready", "refused"] = "analyzing"
    clip: Clip | None = None
    text: str = ""
    typed: bool = False
    notes: tuple[str, ...] = ()
    problem: str = ""


class VoiceDraft:
    """The recordings of a new voice, independent of widgets.

    Recordings are analyzed in threads, one at a time. ``changed`` is called from these threads with the id of a changed
    recording, until ``close``.
    """

    def __init__(self, lab: Session, changed: Callable[[int], object]) -> None:
        self._lab = lab
        self._changed = changed
        self._lock = threading.RLock()
        self._analysis_lock = threading.Lock()
        self._recordings: dict[int, DraftRecording] = {}
        self._tasks: set[Task] = set()
        self._recognizer = functools.cache(transcribing_recognizer)
        self._ids = itertools.count(1)
        self._enhanced = False
        self.closed = False
        """Whether ``close`` was called."""

    @property
    def recordings(self) -> tuple[DraftRecording, ...]:
        """All recordings of the draft, in order."""
        return tuple(self._recordings.values())

    def enhance(self, enabled: bool) -> None:
        """Switch noise reduction on or off, and analyze all recordings again."""
        with self._lock:
            changed, self._enhanced = enabled != self._enhanced, enabled
        for recording in self.recordings:
            if changed and recording.data:
                self._begin(recording)

    def add(self, name: str, data: bytes, text: str = "") -> int:
        """Add a recording, given as the bytes of a file, with its transcript, and start its analysis; return its id."""
        recording = DraftRecording(next(self._ids), name, data, text=text, typed=bool(text))
        self._begin(recording)
        return recording.id

    def refuse(self, name: str, reason: str) -> int:
        """Add a rejected recording with the reason; return its id."""
        recording = DraftRecording(next(self._ids), name, b"", "refused", problem=reason)
        self._recordings[recording.id] = recording
        self._changed(recording.id)
        return recording.id

    def write(self, id: int, text: str) -> None:
        """Set the transcript of a recording and check it against the audio; if it is blank, recognize it again."""
        with self._lock:
            recording = self._recordings.get(id)
        if recording is not None and text != recording.text:
            self._begin(replace(recording, text=text, typed=bool(text.strip())))

    def drop(self, id: int) -> None:
        """Remove a recording."""
        with self._lock:
            self._recordings.pop(id, None)
        self._changed(id)

    @property
    def usable(self) -> tuple[DraftRecording, ...]:
        """All recordings except the rejected ones."""
        return tuple(recording for recording in self.recordings if recording.state != "refused")

    def check(self, title: str) -> None:
        """Raise RequestInvalid, which names the field, unless a voice can be created from the usable recordings."""
        used = self.usable
        if self.recordings and not used:
            raise RequestInvalid.of("voices", "none of the recordings can be used")
        if len(used) > MAX_FILES:
            raise RequestInvalid.of("voices", f"must have at most {MAX_FILES} recordings, got {len(used)}")
        VoiceCreate.build(title=title, voices=tuple(recording.data for recording in used), visibility="private")

    def create(self, title: str, **fields: Any) -> VoiceModel:
        """Create the voice and remove its recordings. Raises the same errors as ``check``, and those of the backend."""
        self.check(title)
        recordings, used = self.recordings, self.usable
        # The transcripts are passed as displayed, since the user has checked them.
        texts = [recording.text for recording in used] if any(recording.text.strip() for recording in used) else []
        files = [recording.data for recording in used]
        voice = self._lab.create_voice(title, files, texts=texts, enhance_audio_quality=self._enhanced, **fields)
        # Recordings added in the meantime remain for the next voice.
        for recording in recordings:
            self.drop(recording.id)
        return voice

    def wait(self, timeout: float = 60.0) -> bool:
        """Wait for the analysis of all recordings, for each at most ``timeout`` seconds; return whether all have ended."""
        return all(task.wait(timeout) for task in tuple(self._tasks))

    def close(self) -> None:
        """Stop calling ``changed``."""
        self.closed = True

    def _begin(self, recording: DraftRecording) -> None:
        recording = replace(recording, state="analyzing", notes=(), problem="")
        with self._lock:
            self._recordings[recording.id] = recording
        self._changed(recording.id)
        task = Task(lambda: self._run(recording), name="intake").start()
        with self._lock:
            self._tasks = {task, *(running for running in self._tasks if running.running)}

    def _run(self, recording: DraftRecording) -> None:
        def current() -> bool:
            # A later change replaces the recording and starts another run.
            return not self.closed and self._recordings.get(recording.id) is recording

        with self._analysis_lock:
            if not current():
                return
            result = self._analyze(recording)
        with self._lock:
            if not current():
                return
            self._recordings[recording.id] = result
        self._changed(recording.id)

    def _analyze(self, recording: DraftRecording) -> DraftRecording:
        fields = {"texts": (recording.text,) if recording.typed else (), "enhance_audio_quality": self._enhanced}
        try:
            request = VoiceCreate.build(title="x", voices=(recording.data,), visibility="private", **fields)
            (sample,) = prepare_samples(request, self._recognizer)
            return replace(recording, state="ready", clip=Clip.load(sample.audio), text=sample.text, notes=sample.notes)
        except RequestInvalid as error:
            problem = error.errors[0].msg.removeprefix(_FILE_PREFIX)
        except VoicelabError as error:
            problem = str(error)
        return replace(recording, state="refused", problem=problem)


class VoicePanel(SavedOutput, Panel):
    """A panel to create voices from files, the microphone or clips, and to preview the voices of a lab.

    Recordings are analyzed when added: warnings and an editable transcript appear. ``voice`` is the record of the
    selected stored voice, None for a preset; ``message`` shows errors. Recordings are analyzed locally, and voices are
    created by the lab's backend; both run in threads. ``trial`` is a compact ExplorePanel. The saved notebook contains
    the table of voices and the latest preview.
    """

    about = "a panel to create voices from recordings and to preview them"

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
                html(_HEAD.format("New voice")),
                self.recorder,
                line(self.name, self.add_button),
                self.list,
                line(self.title, self.enhance, self.make_button, self.status),
                self.message,
                html(_HEAD.format("Voices")),
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
        for recording in recordings:
            self.add(recording)

    def _build(self) -> None:
        self.recorder = Recorder(self.draft.add, self.draft.refuse)
        names: Any = {"placeholder": "variable name", "options": list(_clips())}
        self.name = control(w.Combobox, "Or a Clip", "clip-name", width="340px", **names)
        self.add_button = button("Add", self._add_variable, "add-clip")
        self.list = stack()
        self.title = control(w.Text, "Title", "title", value=_TITLE, width="340px")
        self.enhance = control(w.Checkbox, "Reduce noise", indent=False)
        self.make_button = main_button("Create voice", self.make, "make-voice")
        self.status = control(w.Label, "", "making")
        self.record = html("", "record-of-voice")
        self.trial = _Preview(self._lab, self._can_speak, self.update_saved_output)
        self.trial.controls.observe(lambda _: self._chosen(), names="values")
        self.title.observe(lambda _: self._check(), names="value")
        self.enhance.observe(lambda change: self.draft.enhance(change["new"]), names="value")

    @property
    def voice(self) -> VoiceModel | None:
        """Record of the selected stored voice; None for a preset."""
        return self._stored.get(self.trial.controls.values["reference_id"])

    def choose(self, voice: str) -> None:
        """Select a voice by its id; "" is the default speaker."""
        self.trial.controls.set(reference_id=voice)

    def add(self, recording: Clip | str | Path, name: str | None = None) -> int:
        """Add a clip or a file and start its analysis; return its id. Raises OSError for an unreadable file."""
        if isinstance(recording, Clip):
            name = name or f"clip {len(self.draft.recordings) + 1}"
            return self.draft.add(name, recording.to_bytes("wav"), recording.spoken_text or "")
        path = Path(recording)
        return self.draft.add(name or path.name, path.read_bytes())

    def make(self) -> Task | None:
        """Create the voice, like the button "Create voice"; return the task, or None if the form is invalid."""
        if not self._check():
            return None
        title = self.title.value
        self.status.value = "creating the voice…"
        self.make_button.disabled = True
        self._creating = Task(lambda: self._make(title), name="voice", failed=self._make_failed)
        return self._creating.start()

    def refresh(self, chosen: str | None = None) -> None:
        """Reload the list of voices, and select one."""
        try:
            stored = self._lab.stored_voices()
        except VoicelabError as error:
            self.show_error(error)
            return
        with self._lock:
            self._stored = {voice.id: voice for voice in stored}
            mine = [(f"{voice.title} ({voice.state}, {voice.created_at:%Y-%m-%d %H:%M})", voice.id) for voice in stored]
            voices = [*mine, *voice_choices(self._lab.capabilities)]
            voice = chosen or self.trial.controls.values["reference_id"]
            self.trial.controls.offer_voices(voices, voice if voice in {key for _, key in voices} else "")
        self._chosen()
        self.update_saved_output()

    def _close_draft(self) -> None:
        with self._lock:  # so that rows being added are closed too
            self.draft.close()

    def _add_variable(self) -> None:
        name = self.name.value.strip()
        clip = _clips().get(name)
        if clip is None:
            wrong = f"the variable {name!r} is not a Clip" if name else "enter the name of a variable that holds a Clip"
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
        """Update the row of a recording; called from any thread."""
        with self._lock:
            if self.draft.closed:
                return
            recordings = {recording.id: recording for recording in self.draft.recordings}
            for removed in [key for key in self._rows if key not in recordings]:
                close_widgets([self._rows.pop(removed)])
            if id in recordings:
                if id not in self._rows:
                    self._rows[id] = _RecordingRow(self.draft, recordings[id])
                self._rows[id].show(recordings[id])
            self.list.children = tuple(self._rows.values())
            # The default title is the name of the first valid file, unless the user has typed a title.
            if self.title.value == self._suggested:
                files = [Path(recording.name) for recording in self.draft.recordings if recording.state == "ready"]
                titles = [file.stem for file in files if file.suffix and not file.name.startswith("Recording ")]
                self._suggested = self.title.value = (titles or [_TITLE])[0]
            self._check()

    def _check(self) -> bool:
        """Validate the form and show errors; return whether a voice can be created."""
        wrong: RequestInvalid | None = None
        try:
            self.draft.check(self.title.value)
        except RequestInvalid as error:
            wrong = error
        fields = {item.field for item in wrong.errors} if wrong else set()
        analyzing = any(recording.state == "analyzing" for recording in self.draft.recordings)
        mark_wrong(self.title, "title" in fields)
        # An empty form is not an error.
        self.show_error(wrong if self.draft.recordings or "title" in fields else None)
        rejected = [recording.name for recording in self.draft.recordings if recording.state == "refused"]
        if rejected and wrong is None:
            self.say(f"Excluded from the voice as unusable: {', '.join(rejected)}.")
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
        """Return the table of voices, above the latest preview."""
        bundle = clip_bundle(self.trial.clip) if self.trial.clip is not None else {}
        return {**bundle, "text/html": voices_table(tuple(self._stored.values())) + bundle.get("text/html", "")}

    def _repr_mimebundle_(self, **options: Any) -> Any:
        self.name.options = list(_clips())
        return super()._repr_mimebundle_(**options)


class _Preview(ExplorePanel):
    """Synthesis with the selected voice, disabled while it is being trained."""

    def __init__(self, lab: Session, can_speak: Callable[[str | None], bool], updated: Callable[[], object]) -> None:
        self._can_speak = can_speak
        self._updated = updated
        super().__init__(lab, TEXT, compact=True)

    def check(self) -> Call | None:
        call = super().check()
        if call is None or self._can_speak(call.request.reference_id):
            return call
        self.controls.ready = False
        return None

    def update_saved_output(self) -> None:
        self._updated()


class _RecordingRow(Ending, w.VBox):  # type: ignore[misc]  # ipywidgets publishes no types
    """A recording with its player, warnings and transcript."""

    def __init__(self, draft: VoiceDraft, recording: DraftRecording) -> None:
        self._clip: Clip | None = None
        self.player: Player | None = None
        self.name = html("", "recording-name")
        self.sound = control(w.HBox, "", "recording-sound")
        self.remove = button("×", lambda: draft.drop(recording.id), "remove", "icon", help=f"Remove {recording.name}")
        self.notes = html("", "intake")
        empty = "leave empty to transcribe automatically, if a recognizer is installed"
        options: Any = {"rows": 2, "continuous_update": False, "placeholder": empty}
        self.text = control(w.Textarea, "Transcript", "transcript", help=f"Transcript of {recording.name}", **options)
        self.text.observe(lambda change: draft.write(recording.id, change["new"]), names="value")
        head = line(self.name, self.sound, self.remove, name="buttons")
        super().__init__([head, self.notes, self.text], layout=look(w.Layout))
        classed(self, "recording")

    def show(self, recording: DraftRecording) -> None:
        """Update the row to the state of its recording."""
        seconds = f", {recording.clip.duration:.1f} s" if recording.clip is not None else ""
        self.name.value = f"{escape(recording.name)}{seconds}"
        if recording.clip is not None and recording.clip is not self._clip:
            self._clip = recording.clip
            if self.player is None:
                self.player = Player(recording.clip, label=recording.name, name=Path(recording.name).stem, compact=True)
                self.sound.children = (self.player,)
            else:
                self.player.show(recording.clip)
        if recording.state == "refused":
            self.notes.value = problem_html(RequestInvalid.of("voices", recording.problem))
        elif recording.state == "analyzing":
            self.notes.value = '<div role="status">analyzing…</div>'
        else:
            self.notes.value = "".join(f'<div role="note">⚠ {escape(note)}</div>' for note in recording.notes)
        # A typed transcript stays editable during its check.
        self.text.disabled = recording.state != "ready" and not recording.typed
        hide(self.text, recording.state == "refused")
        self.text.value = recording.text


def _record_html(voice: VoiceModel) -> str:
    """Return a one-line summary of a voice, with its record as details."""
    count = len(voice.samples)
    line = f"{voice.title}: {voice.state}, {voice.visibility}, {count} recording{'' if count == 1 else 's'}"
    record = voice_bundle(voice)["text/html"]
    return f"<details><summary>{escape(line)}</summary>{record}</details>"


def _clips() -> dict[str, Clip]:
    """Return the notebook's variables of type Clip; empty outside notebooks."""
    shell = get_ipython()
    names: Mapping[str, object] = shell.user_ns if shell is not None else {}
    return {name: value for name, value in names.items() if isinstance(value, Clip) and not name.startswith("_")}

"""VoicePanel: recordings in, a voice out; the voices there are; and a sentence to try them with."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from html import escape
from pathlib import Path
from typing import Any, Final, Protocol

import ipywidgets as w
from IPython.core.getipython import get_ipython

from voicelab.audio.clip import Clip
from voicelab.errors import RequestInvalid, VoicelabError
from voicelab.schema import VoiceModel
from voicelab.views.display import clip_bundle
from voicelab.views.form import error_html, voice_choices
from voicelab.views.lasting import Lasting
from voicelab.views.player import Player
from voicelab.views.recorder import Recorder
from voicelab.views.records import voice_bundle, voices_table
from voicelab.views.speaking import Speaker, shut
from voicelab.views.takesview import flow, small
from voicelab.views.trial import Trial
from voicelab.views.voicework import Recording, VoiceMaker, VoiceWork

__all__ = ["VoiceLab", "VoicePanel"]

_TITLE: Final = "My voice"
_BAD: Final = "2px solid var(--jp-error-color1, #c62828)"
_HEAD: Final = '<b style="font-size:var(--jp-ui-font-size2, 15px)">{}</b>'


class VoiceLab(Speaker, VoiceMaker, Protocol):
    """What the panel asks of a Lab."""

    def stored_voices(self) -> tuple[VoiceModel, ...]:
        """Return the voices that are there."""


class VoicePanel(Lasting, w.VBox):  # type: ignore[misc]  # ipywidgets publishes no types
    """Makes a voice of files, of the microphone or of clips, lists the voices of a lab, and lets each say a sentence.

    What is added is listened to at once: its warnings appear, and what is said in it, to be corrected. ``voice`` is the
    record of the voice that is chosen, None for one that the backend brings with it; ``message`` says what is wrong.
    Recordings are listened to on this machine, voices are made where the lab speaks; both in threads, which ``close()``
    tells nothing any more. The notebook keeps the table of the voices, and what was said last.
    """

    about = "a panel to make voices of recordings and to try them"

    def __init__(self, lab: VoiceLab, recordings: Iterable[Clip | str | Path] = ()) -> None:
        self._lab = lab
        self._lock = threading.RLock()
        self._making: threading.Thread | None = None
        self._suggested = _TITLE
        self._known: Mapping[str, VoiceModel] = {}
        self._rows: dict[int, _Row] = {}
        self.work = VoiceWork(lab, self._news)
        self._build()
        # Recordings in a notebook's own names are added by these.
        clip_line = flow(self.name, self.add_button)
        make_line = flow(self.title, self.enhance, self.make_button, self.status)
        super().__init__(
            [
                w.HTML(_HEAD.format("New voice")),
                self.recorder,
                clip_line,
                self.list,
                make_line,
                self.message,
                w.HTML(_HEAD.format("Voices")),
                self.choice,
                self.record,
                self.trial,
            ]
        )
        self.add_class("voicelab-voices")
        self.refresh()
        self._check()
        for one in recordings:
            self.add(one)

    def _build(self) -> None:
        self.recorder = Recorder(self._came, self.work.refuse)
        self.name = w.Combobox(
            description="or a clip",
            placeholder="name of a variable",
            options=list(_clips()),
            layout=w.Layout(width="300px"),
        )
        self.name.add_class("voicelab-clip-name")
        self.add_button = small("Add", self._add_named, "add-clip")
        self.list = w.VBox()
        self.title = w.Text(value=_TITLE, description="title", layout=w.Layout(width="300px"))
        self.title.add_class("voicelab-title")
        self.enhance = w.Checkbox(
            description="take noise away first", indent=False, layout=w.Layout(width="auto", margin="0 12px")
        )
        self.make_button = small("Make the voice", self.make, "make-voice", button_style="primary", icon="user-plus")
        self.status = w.Label()
        self.status.add_class("voicelab-making")
        self.message = w.HTML()
        self.message.add_class("voicelab-message")
        self.choice = w.Dropdown(description="voice", layout=w.Layout(width="420px"))
        self.choice.add_class("voicelab-voice")
        self.record = w.HTML()
        self.record.add_class("voicelab-record-of-voice")
        self.trial = Trial(self._lab, self._tried, self.last)
        self.title.observe(lambda _: self._check(), names="value")
        self.enhance.observe(lambda change: setattr(self.work, "enhanced", change["new"]), names="value")
        self.choice.observe(lambda _: self._chosen(), names="value")

    @property
    def voice(self) -> VoiceModel | None:
        """The record of the stored voice that is chosen."""
        return self._known.get(self.choice.value)

    def add(self, recording: Clip | str | Path, name: str | None = None) -> int:
        """Add a clip or the file at a path, and listen to it. Raises OSError for a file that cannot be read."""
        if isinstance(recording, Clip):
            return self.work.add(name or f"clip {len(self.work.recordings) + 1}", recording.to_bytes("wav"))
        path = Path(recording)
        return self._came(name or path.name, path.read_bytes())

    def make(self) -> threading.Thread | None:
        """Do what the button does; returns the work, None where something is wrong."""
        if not self._check():
            return None
        self.status.value = "making the voice…"
        self.make_button.disabled = True
        work = threading.Thread(target=self._make, args=(self.title.value,), name="voicelab-voice", daemon=True)
        self._making = work
        work.start()
        return work

    def refresh(self, chosen: str | None = None) -> None:
        """Look up the voices again, and choose one."""
        try:
            stored = self._lab.stored_voices()
        except VoicelabError as error:
            self.message.value = error_html(error)
            return
        with self._lock:
            self._known = {voice.id: voice for voice in stored}
            mine = [(f"{voice.title} ({voice.state}, {voice.created_at:%Y-%m-%d %H:%M})", voice.id) for voice in stored]
            brought = [(label, key or "") for label, key in voice_choices(self._lab.capabilities)]
            before = self.choice.value
            self.choice.options = [*mine, *brought]
            wanted = chosen or before
            self.choice.value = (
                wanted if wanted in {key for _, key in self.choice.options} else self.choice.options[0][1]
            )
        self._chosen()
        self.last()

    def close(self) -> None:
        """Stop what is being said, and take the panel off the page."""
        if hasattr(self, "trial"):
            self.work.close()
            shut(self)
        super().close()

    def _came(self, name: str, data: bytes) -> int:
        # The first file names the voice, unless somebody has.
        if self.title.value == self._suggested and not self.work.recordings and not name.startswith("Recording "):
            self._suggested = self.title.value = Path(name).stem or _TITLE
        return self.work.add(name, data)

    def _add_named(self) -> None:
        name = self.name.value.strip()
        clip = _clips().get(name)
        if clip is None:
            found = f"the variable {name!r} holds no clip" if name else "give the name of a variable that holds a clip"
            self.message.value = error_html(RequestInvalid.of("clip", found))
            return
        self.message.value = ""
        self.add(clip, name)
        self.name.value = ""

    def _make(self, title: str) -> None:
        try:
            made = self.work.create(title)
        except Exception as error:  # noqa: BLE001 - the end of the thread: nobody above could see it
            self.status.value = "failed"
            self._making = None
            self._check()
            self.message.value = error_html(error)
            return
        self._making = None
        if self.title.value == title:
            self._suggested = self.title.value = _TITLE
        self.refresh(made.id)
        self.status.value = f"{made.title}: {made.state}"

    def _news(self, id: int) -> None:
        """Show what is new of a recording; comes from any thread."""
        with self._lock:
            there = {one.id: one for one in self.work.recordings}
            for gone in [key for key in self._rows if key not in there]:
                self._rows.pop(gone).close()
            if id in there:
                if id not in self._rows:
                    self._rows[id] = _Row(self.work, there[id])
                self._rows[id].show(there[id])
            self.list.children = tuple(self._rows.values())
            self._check()

    def _check(self) -> bool:
        """Name what is wrong with the form; returns whether a voice can be made of it."""
        wrong: RequestInvalid | None = None
        try:
            self.work.check(self.title.value)
        except RequestInvalid as error:
            wrong = error
        fields = {item.field for item in wrong.errors} if wrong else set()
        listening = any(one.state == "listening" for one in self.work.recordings)
        self.title.layout.border = _BAD if "title" in fields else None
        # An empty form is no mistake yet.
        told = wrong is not None and (bool(self.work.recordings) or "title" in fields)
        self.message.value = error_html(wrong) if wrong is not None and told else ""
        self.make_button.disabled = wrong is not None or listening or self._making is not None
        return not self.make_button.disabled

    def _chosen(self) -> None:
        voice = self.voice
        self.record.value = "" if voice is None else _told(voice)
        self.trial.check()

    def _tried(self) -> str | None:
        """Return the id of the voice that is chosen, None for one that cannot speak."""
        voice = self.voice
        return None if voice is not None and voice.state != "trained" else self.choice.value or ""

    def __repr__(self) -> str:
        return f"VoicePanel({len(self.work.recordings)} recordings, {len(self._known)} voices)"

    def lasting(self) -> Mapping[str, str]:
        """Return the table of the voices, above what was said last."""
        said = clip_bundle(self.trial.clip) if self.trial.clip is not None else {}
        return {**said, "text/html": voices_table(tuple(self._known.values())) + said.get("text/html", "")}

    def _repr_mimebundle_(self, **options: Any) -> Any:
        self.name.options = list(_clips())
        return super()._repr_mimebundle_(**options)


class _Row(w.VBox):  # type: ignore[misc]  # ipywidgets publishes no types
    """One recording: to be heard, with its warnings and what is said in it."""

    def __init__(self, work: VoiceWork, one: Recording) -> None:
        self._clip: Clip | None = None
        self.player: Player | None = None
        self.name = w.HTML(layout=w.Layout(min_width="180px"))
        self.sound = w.HBox(layout=w.Layout(flex="1 1 200px", min_width="0"))
        self.remove = small("", lambda: work.drop(one.id), "remove", icon="times", tooltip=f"Remove {one.name}")
        self.notes = w.HTML()
        self.notes.add_class("voicelab-intake")
        self.text = w.Textarea(rows=2, continuous_update=False, layout=w.Layout(width="auto"))
        self.text.placeholder = "what is said in it; empty, it is recognised again"
        self.text.tooltip = f"What is said in {one.name}"
        self.text.add_class("voicelab-transcript")
        self.text.observe(lambda change: work.write(one.id, change["new"]), names="value")
        head = w.HBox([self.name, self.sound, self.remove], layout=w.Layout(align_items="center"))
        super().__init__([head, self.notes, self.text])
        self.add_class("voicelab-recording")

    def show(self, one: Recording) -> None:
        """Show what is known of it now."""
        seconds = f", {one.clip.duration:.1f} s" if one.clip is not None else ""
        self.name.value = f"{escape(one.name)}{seconds}"
        if one.clip is not None and one.clip is not self._clip:
            self._clip = one.clip
            if self.player is None:
                self.player = Player(one.clip, label=one.name, name=Path(one.name).stem, compact=True)
                self.player.layout.flex = "1 1 auto"
                self.sound.children = (self.player,)
            else:
                self.player.show(one.clip)
        if one.state == "refused":
            self.notes.value = error_html(RequestInvalid.of("voices", one.trouble))
        elif one.state == "listening":
            self.notes.value = '<div role="status">listening…</div>'
        else:
            notes = "".join(f'<div role="note">⚠ {escape(note)}</div>' for note in one.notes)
            self.notes.value = f'<div style="line-height:1.5">{notes}</div>'
        # What is being compared with the sound can be corrected further.
        self.text.disabled = one.state != "ready" and not one.written
        self.text.layout.display = "none" if one.state == "refused" else None
        self.text.value = one.text

    def close(self) -> None:
        """Leave the page."""
        if hasattr(self, "sound"):
            shut(self)
        super().close()


def _told(voice: VoiceModel) -> str:
    """Return a voice in a line, its record behind it."""
    count = len(voice.samples)
    line = f"{voice.title}: {voice.state}, {voice.visibility}, {count} recording{'' if count == 1 else 's'}"
    record = voice_bundle(voice)["text/html"]
    return f'<details style="line-height:1.5"><summary>{escape(line)}</summary>{record}</details>'


def _clips() -> dict[str, Clip]:
    """Return the notebook's variables that hold clips; none where there is no notebook."""
    shell = get_ipython()
    names: Mapping[str, object] = shell.user_ns if shell is not None else {}
    return {name: value for name, value in names.items() if isinstance(value, Clip) and not name.startswith("_")}

"""Listening tests as a notebook widget, as a served page, and as a static site."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from voicelab.errors import VoicelabError
from voicelab.listening.study import CHECKS, RIGHT, Study, answer_hash, check_answer, check_trial, check_wav
from voicelab.listening.votes import Ballot, BlindBallot, BlindTest
from voicelab.storage import check_own, write_atomic
from voicelab.views.panel import SavedOutput
from voicelab.views.scripts import STATIC, PageWidget


class ListeningWidget(SavedOutput, PageWidget):
    """A listening test in a notebook, for one listener after another; answers are saved in the Ballot.

    Keys: 1 to 9 or the letters select a stimulus, space plays and pauses, L loops, Enter submits. ``finished`` is called
    after the final answer of a listener.
    """

    about = "a listening test; answers are in its file"
    script = "listening.js"
    styles = ("listening.css",)

    def __init__(self, ballot: Ballot, finished: Callable[[], object] = lambda: None) -> None:
        super().__init__()
        self._finished = finished
        self.ballot = ballot
        self._session = BlindBallot(ballot)
        self.on_msg(self._on_message)

    def _on_message(self, _: Any, message: dict[str, Any], __: Sequence[Any]) -> None:
        number = message.get("number")
        try:
            value = self._session.answer(message.get("call"), message.get("listener"), message)
        except VoicelabError as error:
            self.send({"number": number, "error": str(error)})
            return
        binary = isinstance(value, bytes)
        self.send({"number": number, "value": None if binary else value}, [value] if binary else None)
        if message.get("call") == "trial" and value is None:
            self._finished()

    def __repr__(self) -> str:
        test = self.ballot.test
        return f"ListeningWidget({test.kind} {test.name!r}, {len(test.items)} items, {len(test.systems)} systems)"


def listen(ballot: Ballot) -> ListeningWidget:
    """Return the test of a Ballot as a widget, to be displayed in a notebook."""
    return ListeningWidget(ballot)


def listening_page(
    ballot: Ballot, study: Study | None = None, *, host: str = "127.0.0.1", port: int = 0
) -> AbstractContextManager[str]:
    """Serve the test, or a study based on it, as a web page during a ``with`` block, which receives the URL.

    Listeners may take part in parallel. ``host`` "0.0.0.0" accepts connections from the network. Raises RequestInvalid if
    the address cannot be bound.
    """
    from voicelab.listening.server import serving

    return serving(ballot, STATIC, study, host=host, port=port)


def export_study(study: Study, folder: Path, to: str) -> Path:
    """Write a study as a static site for any web host. Raises StoreError, also if it would replace other files."""
    from voicelab.listening.server import FILES, PAGE

    blind, sounds = BlindTest(study.test), dict[str, bytes]()

    def by_content(trial: dict[str, Any]) -> dict[str, Any]:
        """Replace the sound ids of a trial by blinded stimulus ids, so that all listeners load the same files."""
        letters = [{**letter, "sound": stimulus_id(letter["sound"])} for letter in trial["letters"]]
        return {**trial, "letters": letters, "reference": trial["reference"] and stimulus_id(trial["reference"])}

    def stimulus_id(id: str) -> str:
        stimulus = blind.stimulus(id)
        if stimulus.id not in sounds:
            sounds[stimulus.id] = blind.wav(stimulus, stimulus.id)
        return stimulus.id

    checks = range(CHECKS) if study.headphones else ()
    shared = {
        "headphones": [check_trial(study, 0, number) for number in checks],
        "right": [answer_hash(f"headphones {number}", check_answer(0, number)) for number in checks],
    }
    files = {f"sounds/0-headphones{number}.wav": check_wav(study.headphones, 0, number) for number in checks}
    for block in range(study.listeners):
        trials = [by_content(blind.shown(trial)) for trial in study.test.trials(block)]
        training = [by_content(trial) for trial in blind.training(block)]
        content = {**shared, "volume": stimulus_id(blind.volume(block)), "training": training, "trials": trials}
        files[f"blocks/{block}.json"] = json.dumps(content).encode()
    files |= {f"sounds/{name}.wav": data for name, data in sounds.items()}
    files |= {name: (STATIC / name).read_bytes() for name in FILES}
    files["index.html"] = PAGE.replace("LINE", "overFiles").replace("FILE", "listening-study.js").encode()
    settings = {
        "steps": study.steps,
        "code": study.code,
        "return_to": study.return_to,
        "needed": RIGHT[study.headphones],
    }
    settings["design"] = study.test.digest
    page = {**settings, "test": {**blind.test(), "study": study.page(static=True)}, "blocks": study.listeners, "to": to}
    page["id"] = hashlib.sha256(json.dumps([page, sorted(sounds)]).encode()).hexdigest()[:16]
    files = {"study.json": json.dumps(page).encode(), **files}
    check_own(folder, files, "study.json")
    for name, data in files.items():
        write_atomic(folder / name, data, sync=False)
    return folder

"""ListeningWidget: a listening test inside a notebook; the votes go into its Ballot as they are given."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import anywidget

from voicelab.errors import VoicelabError
from voicelab.experiments.listening.votes import Ballot, BlindBallot
from voicelab.service.listening import serving
from voicelab.service.run import LOOPBACK
from voicelab.views.panel import STATIC, SavedOutput, inlined, styled


class ListeningWidget(SavedOutput, anywidget.AnyWidget):
    """The test of ``ballot`` for the reader of the notebook; several listeners one after another.

    Keys: 1 to 9 or the letters choose a sound, space plays and pauses, L loops, Enter goes on.
    """

    about = "a listening test, whose votes are in its file"
    _esm = inlined("listening.js")
    _css = styled("listening.css")

    def __init__(self, ballot: Ballot) -> None:
        super().__init__()
        self.ballot = ballot
        self._session = BlindBallot(ballot)
        self.on_msg(self._on_message)

    def _on_message(self, _: Any, message: dict[str, Any], __: Sequence[Any]) -> None:
        number = message.get("number")
        try:
            value = self._answer(message)
        except VoicelabError as error:
            self.send({"number": number, "error": str(error)})
        else:
            if isinstance(value, bytes):
                self.send({"number": number}, [value])
            else:
                self.send({"number": number, "value": value})

    def _answer(self, message: dict[str, Any]) -> Any:
        call, listener = message.get("call"), message.get("listener")
        if call == "test":
            return self._session.test()
        if call == "join":
            return self._session.join(message.get("name"))
        if call == "trial":
            return self._session.trial(listener)
        if call == "sound":
            return self._session.sound(message.get("id"))
        if call == "vote":
            return self._session.vote(listener, message)
        return None

    def __repr__(self) -> str:
        test = self.ballot.test
        return f"ListeningWidget({test.kind} {test.name!r}, {len(test.items)} items, {len(test.systems)} systems)"


def listen(ballot: Ballot) -> ListeningWidget:
    """Return the test of ``ballot`` for the reader of the notebook; show it as a cell's last value."""
    return ListeningWidget(ballot)


def listening_page(ballot: Ballot, *, host: str = LOOPBACK, port: int = 0) -> AbstractContextManager[str]:
    """Serve the test as a page for the length of a ``with`` block, which gets its address.

    Several listeners may come at once, each in their own browser. ``host`` "0.0.0.0" lets other machines of the
    network come too. Raises RequestInvalid when the address cannot be used.
    """
    return serving(ballot, STATIC, host=host, port=port)

from __future__ import annotations

import pytest

from tests.tones import ToneBackend
from voicelab.call import Call
from voicelab.experiments.sweeps.sweep import Sweep
from voicelab.experiments.sweeps.typed import retyped, texts_of
from voicelab.schema import TTSRequest

TEXTS = ["One line.\r\nTwo.", "a\u2028b\x0cc\x85d", r"Open C:\new folder", "Two\nlines", r"\\ and \r", "Plain."]


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_that_nobody_touched_stays_as_it_is(text: str) -> None:
    given = Sweep.of(ToneBackend(), Call(TTSRequest(text=text)), {})
    assert retyped(given, texts_of(given), []) == given
    assert "\n" not in texts_of(given)


def test_texts_that_nobody_touched_stay_while_another_is_added() -> None:
    given = Sweep.of(ToneBackend(), Call(TTSRequest(text="One.")), {"text": TEXTS})
    assert retyped(given, texts_of(given), []) == given
    (axis,) = retyped(given, texts_of(given) + "\nNew.", []).axes
    assert list(axis.values) == [*TEXTS, "New."]


def test_what_is_typed_is_read_as_it_is_meant() -> None:
    given = Sweep.of(ToneBackend(), Call(TTSRequest(text="One.")), {})
    assert retyped(given, r"A\nB", []).base.request.text == "A\nB"
    assert retyped(given, r"C:\temp, C:\\new", []).base.request.text == r"C:\temp, C:\new"
    assert [axis.values for axis in retyped(given, "A\n\n B\n", []).axes] == [("A", " B")]

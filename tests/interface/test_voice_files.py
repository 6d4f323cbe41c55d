"""Part 4.2, the files of a form, and who may use a voice: parts 2.4 and the decided questions about them."""

from __future__ import annotations

import numpy as np
import pytest

from tests.interface.conftest import Voice
from tests.interface.rules import proves
from tests.interface.sound import file
from tests.interface.uploads import COVER, SAID, body, both, parts
from tests.interface.wire import Caller, File, fields, refusal


@proves("4.2/title:meaning", "4.2/title:required")
def test_the_title_is_kept(voice: Voice, speech: bytes) -> None:
    for title in ("Grüße, 東京 🎈", 'quotes " and ; semicolons', "x" * 300):
        assert [answer.json()["title"] for answer in both(voice.caller, speech, title=title)] == [title] * 2


@proves("4.2/voices:meaning")
def test_one_or_more_files_make_a_voice(voice: Voice, speech: bytes, other_speech: bytes) -> None:
    files = [speech, other_speech]
    sent = parts(speech, voices=None, texts=None)
    assert fields(voice.caller.create(sent)) == [["body", "voices"]]
    texts = [("texts", "a"), ("texts", "b")]
    one = voice.caller.create([*sent, ("voices", File(speech)), *texts[:1]]).json()
    two = voice.caller.create([*sent, *(("voices", File(data)) for data in files), *texts]).json()
    three = voice.caller.create({**body(speech, texts=["a", "b", "c"]), "voices": [*files, speech]}).json()
    assert [len(record["samples"]) for record in (one, two, three)] == [1, 2, 3]
    for kind in ("MP3", "FLAC"):
        answer = voice.caller.create(parts(file(voice.say(SAID), kind)))
        assert answer.status == 201, (kind, answer.body)


@proves("4.2/voices:indexed", "D-12")
def test_file_parts_may_be_indexed(voice: Voice, speech: bytes, other_speech: bytes) -> None:
    sent = parts(speech, voices=None, texts=None)
    texts = [("texts[1]", "the second"), ("texts[0]", "the first")]
    for first, second in (("voices", "voices"), ("voices[]", "voices[]"), ("voices[0]", "voices[1]")):
        answer = voice.caller.create([*sent, (first, File(speech)), (second, File(other_speech)), *texts])
        assert answer.status == 201, answer.body
        assert [sample["text"] for sample in answer.json()["samples"]] == ["the first", "the second"]


def test_an_index_says_which_file_it_is_wherever_it_stands(voice: Voice, speech: bytes) -> None:
    sent = parts(speech, voices=None, texts=None)
    bad, good = File(b"no audio"), File(speech)
    for uploads, wrong in (
        ([("voices[1]", bad), ("voices[0]", good)], "1"),
        ([("voices[1]", good), ("voices[0]", bad)], "0"),
        ([("voices", good), ("voices", bad)], "1"),
    ):
        answer = voice.caller.create([*sent, *uploads])
        assert fields(answer) == [["body", "voices"]]
        assert answer.json()[0]["ctx"] == f"index: {wrong}"


@proves("4.2/texts:meaning", "D-13")
def test_texts_are_the_transcripts_of_the_voices_in_order(voice: Voice, speech: bytes, other_speech: bytes) -> None:
    sent = parts(speech, voices=None, texts=None)
    uploads = [("voices", File(speech)), ("voices", File(other_speech))]
    for names in (("texts", "texts"), ("texts[]", "texts[]"), ("texts[0]", "texts[1]")):
        answer = voice.caller.create([*sent, *uploads, *zip(names, ("one, two", "three"), strict=True)])
        assert [sample["text"] for sample in answer.json()["samples"]] == ["one, two", "three"]
    packed = {**body(speech), "voices": [speech, other_speech], "texts": ["one, two", "three"]}
    assert [sample["text"] for sample in voice.caller.create(packed).json()["samples"]] == ["one, two", "three"]
    assert voice.caller.create(body(speech, texts="only one")).json()["samples"][0]["text"] == "only one"


@proves("4.2/tags:meaning", "D-13")
def test_tags_are_kept(voice: Voice, speech: bytes) -> None:
    for names in (("tags", "tags"), ("tags[]", "tags[]"), ("tags[0]", "tags[1]")):
        answer = voice.caller.create([*parts(speech), *zip(names, ("calm, low", "日本"), strict=True)])
        assert answer.json()["tags"] == ["calm, low", "日本"]
    assert voice.caller.create(body(speech, tags=["calm", "low"])).json()["tags"] == ["calm", "low"]
    assert voice.caller.create(body(speech, tags="calm")).json()["tags"] == ["calm"]


@proves("D-14")
def test_another_number_of_texts_than_voices_is_422(voice: Voice, speech: bytes) -> None:
    sent = parts(speech, texts=None)
    for texts in (["a", "b"], ["a", "b", "c"]):
        assert fields(voice.caller.create([*sent, *(("texts", text) for text in texts)])) == [["body", "texts"]]
        assert fields(voice.caller.create(body(speech, texts=texts))) == [["body", "texts"]]
    assert fields(voice.caller.create({**body(speech), "voices": [speech, speech]})) == [["body", "texts"]]


@proves("4.2/texts:recognised")
def test_without_texts_the_speech_is_recognised(voice: Voice) -> None:
    text = "Glue the sheet to the dark blue background."
    sample = voice.caller.create(parts(file(voice.say(text, seed=0), "WAV"), texts=None)).json()["samples"][0]
    heard = set(sample["text"].lower().replace(".", "").split())
    # The small recogniser makes mistakes; half the words is far beyond chance.
    said = set(text.lower().replace(".", "").split())
    assert len(heard & said) >= len(said) / 2, sample


@proves("4.2/enhance_audio_quality:meaning")
def test_enhancing_takes_noise_away(voice: Voice) -> None:
    clean = np.frombuffer(voice.say(SAID), "<i2")
    noise = np.random.default_rng(1).standard_normal(clean.size) * 600
    noisy = file((clean + noise).clip(-32768, 32767).astype("<i2").tobytes(), "WAV")
    said = []
    for enhance in ("false", "true"):
        answer = voice.caller.create(parts(noisy, enhance_audio_quality=enhance))
        assert answer.status == 201, answer.body
        said.append(voice.say(reference_id=answer.json()["_id"]))
    assert said[0] != said[1]


def _uses(voice: Voice, caller: Caller, id: str) -> tuple[int, int]:
    """(status of GET, status of speech)."""
    return caller.get(id).status, caller.tts({"text": "Yes.", "format": "pcm", "reference_id": id}).status


@proves("2.4-1")
def test_a_public_model_is_open_to_all(voice: Voice, speech: bytes) -> None:
    made = voice.caller.create(parts(speech, visibility="public", cover_image=COVER)).json()["_id"]
    assert _uses(voice, voice.caller, made) == _uses(voice, voice.other, made) == (200, 200)


@proves("2.4-2")
def test_an_unlisted_model_is_open_to_who_knows_its_id(voice: Voice, speech: bytes) -> None:
    made = voice.caller.create(parts(speech, visibility="unlist")).json()["_id"]
    assert _uses(voice, voice.caller, made) == _uses(voice, voice.other, made) == (200, 200)


@proves("2.4-3", "D-16", "D-7")
def test_a_private_model_is_its_creators_alone_and_unknown_to_others(voice: Voice, speech: bytes) -> None:
    made = voice.caller.create(parts(speech, visibility="private")).json()["_id"]
    assert _uses(voice, voice.caller, made) == (200, 200)
    unknown = made[:-4] + ("0000" if made[-4:] != "0000" else "1111")

    def answers(id: str) -> list[object]:
        found, spoken = voice.other.get(id), voice.other.tts({"text": "Hi", "reference_id": id})
        refusal(found, 404)
        assert fields(spoken) == [["body", "reference_id"]]
        return [
            (answer.body.replace(id.encode(), b""), {**answer.headers, "date": "", "x-request-id": ""})
            for answer in (found, spoken)
        ]

    assert answers(made) == answers(unknown)


@proves("D-18")
def test_upload_limits(voice: Voice, speech: bytes) -> None:
    def kept() -> list[str]:
        return sorted(str(path) for path in voice.folder.rglob("*") if path.is_file())

    before = kept()
    sent = parts(speech, voices=None, texts=None)
    for many in ([*sent, *[("voices", File(speech[:2000]))] * 21], body(b"", voices=[speech[:2000]] * 21, texts=None)):
        assert fields(voice.caller.create(many)) == [["body", "voices"]]
    quiet = file(b"\x10\x00\xf0\xff" * 8000 * 301, "FLAC")  # 301 s
    answer = voice.caller.create([*sent, ("voices", File(quiet))])
    assert all(loc[:2] == ["body", "voices"] for loc in fields(answer))
    assert kept() == before
    assert any("sqlite" in path for path in before)


@pytest.mark.thorough
@proves("D-18")
def test_a_file_of_more_than_50_mib_is_413(voice: Voice, speech: bytes) -> None:
    huge = speech + bytes(50 * 2**20)
    sent = parts(speech, voices=None, texts=None)
    refusal(voice.caller.create([*sent, ("voices", File(huge))]), 413)


def test_what_is_no_speech_is_no_voice(voice: Voice) -> None:
    for data in (b"no audio", file(bytes(64_000), "WAV"), b"ffconcat version 1.0\nfile 'secret.wav'\n", b"RIFF"):
        locs = fields(voice.caller.create(parts(data)))
        assert all(loc[:2] == ["body", "voices"] for loc in locs)

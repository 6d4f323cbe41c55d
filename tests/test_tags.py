import pytest

from voicelab.call import Call
from voicelab.tags import ignored, read_tags, said


@pytest.mark.parametrize(
    ("sent", "spoken_text"),
    [
        ("[whispering]I did not say that.", "I did not say that."),
        ("I [laughs] did [sigh] [in a hurry, out of breath] not.", "I did not."),
        ("So [whisper]come here[/whisper] now.", "So come here now."),
        ("Wait. [pause] What?", "Wait. What?"),
        ("No.[laughs]Yes", "No. Yes"),
        ('"[whispering] Come," he said.', '"Come," he said.'),
        ("The end [sighs]", "The end"),
        ("<|speaker:0|>Hi.<|speaker:1|>There.", "Hi. There."),
        ('One <break time="500ms"/> two', "One two"),
        ("An <|phoneme_start|>EH1 N JH AH0 N<|phoneme_end|>.", "An."),
        ("I [read](/ɹɛd/) it", "I read it"),
        ('I <phoneme alphabet="x-arpabet" ph="R EH1 D">read</phoneme> it', "I read it"),
        ("我[笑]说<|phoneme_start|>ni3<|phoneme_end|>。", "我说。"),
        ("  no tags \n here ", "  no tags \n here "),
    ],
)
def test_spoken_text(sent: str, spoken_text: str) -> None:
    read = read_tags(sent)
    assert (read.sent, read.said, read.notes) == (sent, spoken_text, ())
    assert all(sent[tag.start : tag.end] == tag.text for tag in read.tags)
    assert read_tags(spoken_text).said == spoken_text


def test_brackets_depend_on_the_model() -> None:
    text = "(happy) a (really) [happy] (long-break) b"
    round_brackets, square = read_tags(text, "s1"), read_tags(text, "s2-pro")
    assert round_brackets.said == "a (really) [happy] b"
    assert [(tag.kind, tag.name, tag.at) for tag in round_brackets.tags] == [
        ("style", "happy", 0),
        ("pause", "long-break", 18),
    ]
    assert square.said == "(happy) a (really) (long-break) b"
    assert square.notes[0] == "(happy) is not a tag of s2-pro: it stays in the text"
    assert said("[angry] No!", "another") == "No!"


@pytest.mark.parametrize(
    ("sent", "spoken_text"),
    [
        ("I <whisper>did not</whisper> say that.", "I did not say that."),
        ("<whisper>Come,</whisper> he said.", "Come, he said."),
        ("[voice:ann]Hi.[voice:bob]There.", "Hi. There."),
        ("<soft><slow>So</slow></soft> it is, <sing>la</sing>", "So it is, la"),
        ("a < b and <b> unclosed, 3</4>", "a < b and <b> unclosed, 3</4>"),
    ],
)
def test_paired_tags_and_speakers_of_other_models(sent: str, spoken_text: str) -> None:
    read = read_tags(sent, "drama-3")
    assert (read.said, read.notes) == (spoken_text, ())
    assert all(sent[tag.start : tag.end] == tag.text for tag in read.tags)
    assert {tag.kind for tag in read.tags} <= {"style", "speaker"}
    assert read_tags(sent, "s2-pro").said == (spoken_text if "voice" in sent else sent)


def test_pause_durations() -> None:
    seconds = [tag.seconds for tag in read_tags('a [pause] b <break time="1.5s"/> c <break/>').tags]
    assert seconds == [0.6, 1.5, 0.6]
    assert Call.of("one [long pause] two").expected_seconds > Call.of("one two").expected_seconds + 1


@pytest.mark.parametrize(
    ("text", "spoken_text", "note"),
    [
        (
            "[whispering I did not",
            "[whispering I did not",
            "[whispering I did not is an unclosed tag: it stays in the text",
        ),
        ("un[angry]believable", "unbelievable", "[angry] is inside a word"),
        ("un[pause]believable", "un believable", "[pause] is inside a word"),
        ("see [1]", "see [1]", "[1] is not a tag of s2-pro: it stays in the text"),
        ('a <break time="20s"/> b', "a b", '<break time="20s"/> is limited to 10 s'),
        ('a <break time="-1s"/> b', "a b", '<break time="-1s"/> has no time such as 500ms, and lasts 0.6 s'),
        ("<|voice|> x", "<|voice|> x", "<|voice|> is not a tag of s2-pro: it stays in the text"),
        (
            "a <|phoneme_start|>EH1",
            "a <|phoneme_start|>EH1",
            "<|phoneme_start|>EH1 is an unclosed tag: it stays in the text",
        ),
    ],
)
def test_bad_tags_are_noted(text: str, spoken_text: str, note: str) -> None:
    read = read_tags(text)
    assert (read.said, read.notes) == (spoken_text, (note,))


def test_spell_replaces_phoneme_spans() -> None:
    text = "An <|phoneme_start|>EH1<|phoneme_end|> and [read](/x/)."
    assert read_tags(text, spell=lambda tag: tag.word or f"<{tag.name}>").said == "An <EH1> and read."
    assert Call.of("[angry] Yes").said == "Yes"


def test_notes_on_many_tags_are_bounded() -> None:
    tags = [f"[tag {chr(97 + n // 26)}{chr(97 + n % 26)} {'x' * 80}]" for n in range(200)]
    text = read_tags(
        " ".join(tags) + "".join(f" un{tag}able" for tag in tags) + " [1] " + "".join(f"[{n}]" for n in range(99))
    )
    notes = (*text.notes, *ignored(text))
    assert len(notes) == 9 + 9 + 1
    assert max(map(len, notes)) < 600
    assert "and 192 more" in notes[-1]
    assert notes[8] == "192 more texts: each is inside a word"

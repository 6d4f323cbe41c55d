import pytest

from voicelab.call import Call
from voicelab.tags import ignored, read_tags, said


@pytest.mark.parametrize(
    ("sent", "heard"),
    [
        ("[whispering]I did not say that.", "I did not say that."),
        ("I [laughs] did [sigh] [in a hurry, out of breath] not.", "I did not."),
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
def test_what_is_said(sent: str, heard: str) -> None:
    read = read_tags(sent)
    assert (read.sent, read.said, read.notes) == (sent, heard, ())
    assert all(sent[tag.start : tag.end] == tag.text for tag in read.tags)
    assert read_tags(heard).said == heard


def test_each_model_has_its_own_brackets() -> None:
    text = "(happy) a (really) [happy] (long-break) b"
    round_ones, square = read_tags(text, "s1"), read_tags(text, "s2-pro")
    assert round_ones.said == "a (really) [happy] b"
    assert [(tag.kind, tag.name, tag.at) for tag in round_ones.tags] == [
        ("style", "happy", 0),
        ("pause", "long-break", 18),
    ]
    assert square.said == "(happy) a (really) (long-break) b"
    assert square.notes[0] == "(happy) is no tag of s2-pro: it stays in the text"
    assert said("[angry] No!", "another") == "No!"


def test_pauses_have_lengths() -> None:
    seconds = [tag.seconds for tag in read_tags('a [pause] b <break time="1.5s"/> c <break/>').tags]
    assert seconds == [0.6, 1.5, 0.6]
    assert Call.of("one [long pause] two").expected_seconds > Call.of("one two").expected_seconds + 1


@pytest.mark.parametrize(
    ("text", "heard", "note"),
    [
        (
            "[whispering I did not",
            "[whispering I did not",
            "[whispering I did not is a tag that is never closed: it stays in the text",
        ),
        ("un[angry]believable", "unbelievable", "[angry] stands in the middle of a word"),
        ("un[pause]believable", "un believable", "[pause] stands in the middle of a word"),
        ("see [1]", "see [1]", "[1] is no tag of s2-pro: it stays in the text"),
        ("<|voice|> x", "<|voice|> x", "<|voice|> is no tag of s2-pro: it stays in the text"),
        (
            "a <|phoneme_start|>EH1",
            "a <|phoneme_start|>EH1",
            "<|phoneme_start|>EH1 is a tag that is never closed: it stays in the text",
        ),
    ],
)
def test_bad_tags_are_noted(text: str, heard: str, note: str) -> None:
    read = read_tags(text)
    assert (read.said, read.notes) == (heard, (note,))


def test_notes_on_many_tags_are_bounded() -> None:
    tags = [f"[tag {chr(97 + n // 26)}{chr(97 + n % 26)} {'x' * 80}]" for n in range(200)]
    text = read_tags(
        " ".join(tags) + "".join(f" un{tag}able" for tag in tags) + " [1] " + "".join(f"[{n}]" for n in range(99))
    )
    notes = (*text.notes, *ignored(text))
    assert len(notes) == 9 + 9 + 1
    assert max(map(len, notes)) < 600
    assert "and 192 more" in notes[-1]
    assert notes[8] == "192 more texts: each stands in the middle of a word"


def test_a_span_is_said_as_its_reader_wishes() -> None:
    text = "An <|phoneme_start|>EH1<|phoneme_end|> and [read](/x/)."
    assert read_tags(text, spell=lambda tag: tag.word or f"<{tag.name}>").said == "An <EH1> and read."
    assert Call.of("[angry] Yes").said == "Yes"

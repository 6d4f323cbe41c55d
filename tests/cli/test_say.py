from __future__ import annotations

import io
import os
import re
import signal
import stat
import struct
import subprocess
import time
import wave
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import voicelab
from tests.backends.test_piper import voice as piper_voice
from tests.served import VOICELAB, serving, until
from tests.tones import ToneBackend
from voicelab.audio.formats import decode
from voicelab.call import Call
from voicelab.cli.say import complete_wav
from voicelab.schema import AudioFormat, ReferenceAudio, TTSRequest

REPORT = re.compile(r"(\S+): (\d+\.\d\d) s of audio in (\d+\.\d\d) s on (.+)")


def test_a_file_is_written_and_reported(run: Any, service: str) -> None:
    done = run.well("say", "one two three", "-o", "a.wav", "--base-url", service)
    match = REPORT.fullmatch(done.stdout.strip())
    assert match is not None
    assert (match[1], match[2], match[4]) == ("a.wav", "0.65", "remote")
    with wave.open("a.wav") as file:
        # The wave module trusts the header: exact sizes, or it would say another length.
        assert (file.getnframes(), file.getframerate()) == (13 * 2205, 44100)
        assert len(file.readframes(10**9)) == 13 * 2205 * 2


@pytest.mark.parametrize(
    ("name", "chosen", "audio_format"),
    [
        ("a.wav", None, "wav"),
        ("a.MP3", None, "mp3"),
        ("a.ogg", None, "opus"),
        ("a.opus", None, "opus"),
        ("a.pcm", None, "pcm"),
        ("a.raw", None, "pcm"),
        ("take.2", "wav", "wav"),
        ("Ordner ä/x 1.wav", None, "wav"),
        ("speech.mp3", None, "mp3"),
        ("speech.opus", "opus", "opus"),
    ],
)
def test_the_suffix_chooses_the_format_and_the_format_the_name(
    run: Any, service: str, tones: Any, name: str, chosen: str | None, audio_format: AudioFormat
) -> None:
    output = () if name.startswith("speech") else ("-o", name)
    done = run.well("say", "ten chars!", *output, *(("--format", chosen) if chosen else ()), "--base-url", service)
    assert done.stdout.startswith(f"{name}: ")
    assert tones.asked[0][0].format == audio_format
    if audio_format != "pcm":
        samples, rate = decode(Path(name).read_bytes())
        assert samples.size / rate == pytest.approx(0.5, abs=0.08)
        assert 0.2 < abs(samples).max() < 0.5


def test_backend_parameters(run: Any, tmp_path: Path) -> None:
    backend = f"piper:{piper_voice(tmp_path)}"
    for name in ("one", "two"):
        run.well("say", "hello", "-o", f"{name}.wav", "--backend", backend, "--knob", "noise-scale=0")
    assert Path("one.wav").read_bytes() == Path("two.wav").read_bytes(), "without noise"
    for typed, message in (
        ("pep=1", "knob: unknown parameter 'pep'; must be noise_scale or noise_w"),
        ("noise_scale", "knob: must be NAME=VALUE"),
        ("noise_scale=much", "noise_scale: must be a number"),
        ("noise_scale=3", "noise_scale: must be between 0 and 2, got 3"),
    ):
        refused = run("say", "hello", "--backend", backend, "--knob", typed)
        assert refused.exit_code != 0
        assert message in str(refused.stderr or refused.exception), refused


def test_the_text_comes_from_stdin(run: Any, service: str, tones: Any) -> None:
    run.well("say", "-", "--base-url", service, stdin="from a pipe")
    assert tones.asked[0][0].text == "from a pipe"
    run.well("say", "-", "--base-url", service, stdin=b"\xef\xbb\xbfcaf\xc3\xa9")
    assert tones.asked[1][0].text == "café"
    run.well("say", "-", "--base-url", service, stdin=b"one\r\ntwo\rthree\n")
    assert tones.asked[2][0].text == "one\ntwo\nthree\n"


def test_a_text_that_is_no_utf_8_is_refused(run: Any) -> None:
    for start, place in ((b"", "3"), (b"\xef\xbb\xbf", "6")):
        line = run.refused("say", "-", stdin=start + b"caf\xe9")
        assert "text: " in line
        assert f"byte {place}" in line


def test_stdout_carries_audio_and_nothing_else(run: Any, service: str) -> None:
    done = run.well("say", "one two", "-o", "-", "--format", "pcm", "--base-url", service)
    assert len(done.stdout_bytes) == 7 * 2205 * 2
    assert REPORT.fullmatch(done.stderr.strip())


def test_seed_model_and_voice_reach_the_backend(run: Any, service: str, tones: Any) -> None:
    run.well("say", "one", "--seed", "7", "--model", "s1", "--voice", "ada", "--base-url", service)
    ((request, model, seed),) = tones.asked
    assert (request.reference_id, model, seed) == ("ada", "s1", 7)


def test_references_reach_the_backend_with_their_transcripts(run: Any, service: str, tones: Any) -> None:
    for name, words in (("a.wav", "one two"), ("b.wav", "three")):
        run.well("say", words, "-o", name, "--base-url", service)
    run.well(
        *("say", "four", "--base-url", service),
        *("--reference", "a.wav", "--reference-text", "one two", "--reference", "b.wav", "--reference-text", "three"),
    )
    assert tones.asked[-1][0].references == (
        ReferenceAudio(audio=Path("a.wav").read_bytes(), text="one two"),
        ReferenceAudio(audio=Path("b.wav").read_bytes(), text="three"),
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("", "-o", "a.wav"), "text: "),
        (("  \n", "-o", "a.wav"), "text: "),
        (("one", "--seed", "x"), "seed: "),
        (("one", "--voice", "eve"), ": voice: "),
        (("one", "--speed", "9"), ": speed: must be between"),
        (("one", "--model", "s9"), "model: "),
        (("one", "--reference", "missing.wav"), "missing.wav: "),
        (("one", "--reference-text", "two"), "references: "),
        (("one", "-o", "a.wav", "--format", "mp3"), "format: "),
        (("one", "-o", "a.flac"), "format: "),
    ],
)
def test_invalid_arguments_are_one_line_and_write_no_file(
    run: Any, service: str, arguments: tuple[str, ...], said: str
) -> None:
    assert said in run.refused("say", *arguments, "--base-url", service)
    assert not [path for path in Path().rglob("*.*") if path.suffix in {".wav", ".flac"}]


def test_a_wrong_key_is_one_line_without_the_key(run: Any, service: str, monkeypatch: pytest.MonkeyPatch) -> None:
    planted = "vl_" + "Zz" * 24 + "9"
    monkeypatch.setenv("VOICELAB_API_KEY", planted)
    assert planted not in run.refused("say", "one", "--base-url", service)


def test_unreachable_service_leaves_an_existing_file_unchanged(run: Any) -> None:
    Path("a.wav").write_bytes(b"older")
    assert run.refused("say", "one", "-o", "a.wav", "--base-url", "http://127.0.0.1:9").startswith("voicelab: ")
    assert Path("a.wav").read_bytes() == b"older"
    assert [path.name for path in Path().iterdir()] == ["a.wav"]


def test_the_file_has_the_permissions_of_any_other(run: Any, service: str) -> None:
    before = os.umask(0o027)
    try:
        run.well("say", "one", "-o", "a.wav", "--base-url", service)
    finally:
        os.umask(before)
    assert stat.S_IMODE(Path("a.wav").stat().st_mode) == 0o640


@pytest.mark.parametrize(("flag", "shown"), [("--progress", True), ("--no-progress", False)])
def test_the_progress_bar_is_on_stderr(run: Any, service: str, flag: str, shown: bool) -> None:
    done = run.well("say", "word " * 200, "-o", "a.wav", flag, "--base-url", service)
    assert REPORT.fullmatch(done.stdout.strip())
    assert ("s of audio" in done.stderr) is shown


def test_broken_pipe(service: str, tmp_path: Path) -> None:
    command = [VOICELAB, "say", "word " * 400, "-o", "-", "--format", "wav", "--base-url", service]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        head = process.stdout.read(44)
        process.stdout.close()
        assert b"Traceback" not in process.stderr.read()
        assert process.wait(timeout=60) == 1
    assert struct.unpack("<I", head[40:44])[0] == 0xFFFFFFFF


def test_ctrl_c_stops_it_and_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = ToneBackend(step=lambda _: time.sleep(0.1))
    with serving(tmp_path, slow) as service:
        monkeypatch.setenv("VOICELAB_API_KEY", service.secret)
        (tmp_path / "out").mkdir()
        command = [VOICELAB, "say", "many words " * 40, "-o", "out/a.wav", "--base-url", service.url]
        with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
            # Audio has begun to arrive once the unfinished file holds some.
            until(lambda: any(path.stat().st_size for path in (tmp_path / "out").iterdir()), 60)
            process.send_signal(signal.SIGINT)
            _, complaint = process.communicate(timeout=60)
        assert (process.returncode, complaint.splitlines()) == (130, ["voicelab: stopped"])
        assert list((tmp_path / "out").iterdir()) == []
        until(lambda: slow.open == 0)


AUDIO = bytes(range(10))
UNKNOWN = 0xFFFFFFFF


def _wav(*, riff: int, data: int, extra: bytes = b"") -> bytes:
    fmt = b"fmt " + struct.pack("<IHHIIHH", 16, 1, 1, 8000, 16000, 2, 16)
    return b"RIFF" + struct.pack("<I", riff) + b"WAVE" + fmt + extra + b"data" + struct.pack("<I", data) + AUDIO


LIST = b"LIST" + struct.pack("<I", 3) + b"abc\0"


@pytest.mark.parametrize(
    ("content", "complete"),
    [
        (_wav(riff=UNKNOWN, data=UNKNOWN), _wav(riff=46, data=10)),
        (_wav(riff=UNKNOWN, data=UNKNOWN, extra=LIST), _wav(riff=58, data=10, extra=LIST)),
        *((same, same) for same in (_wav(riff=46, data=10), b"", b"RIFF", b"ID3" + bytes(60), b"RIFF\0\0\0\0WAVE")),
    ],
    ids=["plain", "odd chunk before", "exact", "empty", "cut", "mp3", "no data"],
)
def test_wav_sizes_are_completed(content: bytes, complete: bytes) -> None:
    file = io.BytesIO(content)
    complete_wav(file)
    assert file.getvalue() == complete


def test_embedded_voice_gives_the_same_samples_as_the_library(run: Any) -> None:
    spoken = run.well("say", "A seed repeats.", "-o", "a.pcm", "--seed", "7", "--temperature", "0.5")
    assert spoken.stdout.startswith("a.pcm: ")
    with closing(voicelab.LocalBackend()) as backend:
        request = TTSRequest.build(text="A seed repeats.", temperature=0.5, format="pcm")
        assert Path("a.pcm").read_bytes() == b"".join(backend.synthesize(Call(request, seed=7)))
    # The bytes are speech: more than a third of a second of it, and not all the same.
    assert len(Path("a.pcm").read_bytes()) > 2 * 44_100 / 3
    assert len(set(Path("a.pcm").read_bytes())) > 50
    Path("noise.wav").write_bytes(b"this is no audio")
    for arguments, said in (
        (("!?… —",), "text: "),
        (("word " * 5000,), "text: "),
        (("Hello.", "--voice", "nobody"), "voice: "),
        (("Hello.", "--reference", "noise.wav"), "reference"),
        (("Hello.", "--device", "abacus"), "abacus"),
    ):
        assert said in run.refused("say", *arguments, "-o", "a.wav")
        assert not Path("a.wav").exists()


def test_show_text_pairs_each_amount_with_its_words(run: Any) -> None:
    result = run("say", "It costs £3.50 and $4.20 or so, 5 to 6 of 7.", "--show-text")
    assert "£3.50 and $4.20 → three pounds and fifty pence and four dollars and twenty cents (" in str(result.stdout)


def test_show_text_prints_the_readings_of_homographs(run: Any) -> None:
    printed = str(run("say", "Yesterday he read it, she will [read](/ɹid/) the résumé.", "--show-text").stdout)
    assert "read → R EH1 D (homograph)" in printed
    assert "read → R IY1 D (homograph)" in printed
    assert "$5.50， → 五点五美元, (" in str(run("say", "他花了$5.50，見 [銀行](https://a.b)。", "--show-text").stdout)
    assert "resume → R EH1 Z AH0 M EY0 (homograph)" in printed
    assert "重庆銀行 → chong2 qing4 yin2 hang2 (pinyin)" in str(run("say", "重庆銀行", "--show-text").stdout)


def test_show_text_prints_words_and_changes(run: Any) -> None:
    result = run("say", "Pay <b>$5</b> to Dr. Lee, x = (-b), in a café [1]", "--show-text")
    assert "Pay five dollars to Doctor Lee, x equals minus b, in a cafe" in str(result.stdout)
    assert "<b>$5</b> → five dollars (markup, money)" in str(result.stdout)
    assert "Dr. → Doctor (saint or street)" in str(result.stdout)
    assert "= (-b), → equals minus b, (sum)" in str(result.stdout)
    assert "café [1] → cafe, one (characters, number)" in str(result.stdout)
    assert "note: text in angle brackets left out: <b>, </b>" in str(result.stdout)


@pytest.mark.parametrize(
    ("text", "note"),
    [
        ("[foo](/fØ9/) bar", "note: [foo](/fØ9/): Ø9 must be English IPA, Arpabet or pinyin"),
        ("東京都の天気予報を見る", "note: the text looks like Japanese; its kanji are read as Mandarin"),
        ("Hi [emphasis]", "note: [emphasis] had no effect: no word follows it"),
    ],
)
def test_show_text_prints_the_notes_of_speaking(run: Any, text: str, note: str) -> None:
    assert note in str(run("say", text, "--show-text").stdout)


def test_show_text_rejects_what_cannot_be_spoken(run: Any) -> None:
    assert "the text must have a letter or a digit" in run.refused("say", "|", "--show-text")

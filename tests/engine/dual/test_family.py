"""Open weights behind LocalBackend: a folder of tiny models and a tiny codec, from text and recordings to audio."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch

import voicelab
from tests.engine.dual.tiny import write_model
from tests.engine.dual.tiny_codec import save_codec, tiny_tensors
from voicelab.call import Call
from voicelab.clip import Clip
from voicelab.engine import speech
from voicelab.engine.dual.codec import CodecFile
from voicelab.engine.dual.family import DualFamily
from voicelab.engine.dual.folder import MAX_POSITIONS, MemoryPlan, free_memory, model_folders
from voicelab.engine.dual.prompt import DualVoice, Reference
from voicelab.engine.dual.tower import bytes_of
from voicelab.engine.local import LocalBackend
from voicelab.errors import EngineError, RequestInvalid
from voicelab.lab import Lab
from voicelab.schema import Model, ReferenceAudio, TTSRequest, VoiceCreate
from voicelab.service.keys import KeyStore
from voicelab.service.run import running
from voicelab.voices.store import VoiceStore

CPU = torch.device("cpu")
TEXT = "Hello there."


@pytest.fixture(autouse=True)
def audible(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tiny codec's level is arbitrary, so disable the silence check."""
    monkeypatch.setattr(speech, "_SILENCE_PEAK", 0.0)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("open-weights")
    models: dict[Model, str] = {"s2-pro": "s2-pro", "s1": "openaudio-s1-mini"}
    for model, name in models.items():
        save_codec(write_model(folder / name, model) / "codec.pth", tiny_tensors())
    return folder


@pytest.fixture(scope="module")
def backend(both: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBackend]:
    store = VoiceStore(tmp_path_factory.mktemp("voices"))
    made = LocalBackend("cpu", weights=both, rows=4, voices=store)
    yield made
    made.close()
    store.close()


def with_codec(folder: Path, both: Path) -> Path:
    for name in ("codec.pth", "sizes.json"):
        shutil.copy(both / "s2-pro" / name, folder)
    return folder


def recording(seed: int = 0, seconds: float = 0.05) -> bytes:
    """An amplitude-modulated buzz."""
    t = np.arange(round(44_100 * seconds)) / 44_100
    buzz = 0.3 * ((t * (110 + 10 * seed)) % 1 - 0.5) * np.sin(4 * np.pi * t) ** 2
    return Clip(buzz.astype(np.float32), 44_100).to_bytes("wav")


def call(text: str = TEXT, seed: int = 1, model: str = "s2-pro", **fields: Any) -> Call:
    return Call.of(text, {}, seed=seed, model=model, **{"max_new_tokens": 40, **fields})


def samples(backend: LocalBackend, *given: Any, **fields: Any) -> np.ndarray:
    return backend.synthesize(call(*given, **fields)).clip().samples


def test_capabilities(backend: LocalBackend) -> None:
    capabilities = backend.capabilities
    assert capabilities.seed == "best-effort"
    assert not capabilities.one_model
    assert [voice.id for voice in capabilities.voices] == ["default"]
    assert len(capabilities.fingerprint) == 16


def test_both_models_speak_and_differ(backend: LocalBackend) -> None:
    one, other = samples(backend), samples(backend, model="s1")
    assert one.size
    assert one.size % 24 == 0
    assert not np.array_equal(one, other)


@pytest.mark.parametrize("latency", ["low", "balanced", "normal"])
@pytest.mark.parametrize("frames", [8, 24])
def test_cut_at_block_end_fades(backend: LocalBackend, latency: str, frames: int) -> None:
    clip = backend.synthesize(call(seed=3, latency=latency, max_new_tokens=frames)).clip()
    assert clip.samples.size == frames * 24
    assert clip.notes == (f"segment 1 was cut off by max_new_tokens={frames}",)
    assert abs(clip.samples[-1]) < 1e-6 < np.abs(clip.samples[:-24]).max()


def test_speech_is_cut_at_the_last_position_with_a_note(both: Path, tmp_path: Path) -> None:
    folder = with_codec(write_model(tmp_path, "s1", max_seq_len=64), both)
    with LocalBackend("cpu", weights=folder, rows=1) as small:
        clips = [small.synthesize(call(seed=seed, max_new_tokens=1000)).clip() for seed in range(6)]
    why = "segment 1 was cut off: the model has no positions left"
    cut = [one for one in clips if "".join(one.notes).startswith(why)]
    assert cut
    assert all(abs(one.samples[-1]) < 1e-6 for one in cut)


def test_reference_is_used_and_encoded_once(backend: LocalBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    family = backend._family
    assert isinstance(family, DualFamily)
    encode = Mock(side_effect=family._encode)
    monkeypatch.setattr(family, "_encode", encode)
    given: dict[str, Any] = {"references": [ReferenceAudio(audio=recording(1), text="One.")]}
    first, again = samples(backend, **given), samples(backend, **given)
    assert [len(given.args[0]) for given in encode.call_args_list] == [round(44_100 * 0.05)]
    assert np.array_equal(first, again)
    assert not np.array_equal(first, samples(backend))
    clip = backend.synthesize(call(**given)).clip()
    assert clip.take is not None
    assert clip.take.similarity is None
    assert any("10 to 30 s are recommended" in note for note in clip.notes)


def test_stored_voice_is_saved_as_codes(backend: LocalBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    request = VoiceCreate.build(
        title="Ada", voices=(recording(5, 1.0),), texts=("One.",), visibility="private", enhance_audio_quality=False
    )
    monkeypatch.setattr(backend._family, "_room", 10_000)
    voice = backend.create_voice(request)
    monkeypatch.setattr(backend._family, "_encode", None)
    speaker = backend._stored(voice.id)
    assert speaker is not None
    assert len(speaker.references[0].codes) == -(-44_100 // 24)


def test_voice_serialization_roundtrip() -> None:
    voice = DualVoice(
        (Reference("One.", torch.tensor([[3, 1, 2], [4095, 0, 5]])), Reference("", torch.zeros(0, 3).long()))
    )
    entries = 4096, 3, 6
    back = DualVoice.from_bytes(voice.to_bytes(), entries)
    assert back is not None
    assert back.key == voice.key
    assert [one.codes.tolist() for one in back.references] == [[[3, 1, 2], [4095, 0, 5]], []]
    for bad in (b"", b"\xc1", b"\x91\xa5other", voice.to_bytes()[:-1]):
        assert DualVoice.from_bytes(bad, entries) is None
    assert DualVoice.from_bytes(voice.to_bytes(), (4096,) * 4) is None
    assert DualVoice.from_bytes(voice.to_bytes(), (4095, 3, 6)) is None  # a code that the codec lacks
    assert DualVoice.from_bytes(DualVoice((Reference("", torch.tensor([[0, -1, 0]])),)).to_bytes(), entries) is None


@pytest.mark.parametrize("audio", [b"no audio", Clip(np.zeros(4410, np.float32), 44_100).to_bytes("wav")])
def test_error_names_the_reference(backend: LocalBackend, audio: bytes) -> None:
    references = [ReferenceAudio(audio=one, text="One.") for one in (recording(), audio)]
    with pytest.raises(RequestInvalid) as caught:
        samples(backend, references=references)
    assert caught.value.errors[0].field == "references.1.audio"


def test_too_long_references_are_rejected(backend: LocalBackend) -> None:
    with pytest.raises(RequestInvalid, match="no room for speech; use 10 to 30 s"):
        samples(backend, references=[ReferenceAudio(audio=recording(1, 0.5), text="One.")])


def _read(backend: LocalBackend, text: str, **fields: Any) -> list[str]:
    request = TTSRequest.build(text=text, **fields)
    return [turn.tag + turn.text for turn in backend._family.plan(Call(request)).segments]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("Just words, as they are.", "Just words, as they are."),
        (
            "It is 5 o'clock. [whisper] That costs $3 of 10 (softly).",
            "It is five o'clock. [whisper] That costs three dollars of ten (softly).",
        ),
        ("[laugh] NASA's plan: no figures here!", "[laugh] NASA's plan: no figures here!"),
        ("J'ai 3 chats.", "J'ai 3 chats."),
        ("猫が3匹います。", "猫が3匹います。"),
        ("我有3只猫。", "我有三只猫."),
    ],
)
def test_numbers_are_normalized_and_tags_kept(backend: LocalBackend, text: str, read: str) -> None:
    assert _read(backend, text) == ["<|speaker:0|>" + read]
    assert _read(backend, text, normalize=False) == ["<|speaker:0|>" + text]


def test_speaker_tag_carries_over_segments(backend: LocalBackend) -> None:
    one, other = "A first long sentence of the one. " * 3, "The other one speaks here. " * 5
    text = f"<|speaker:0|>{one}<|speaker:1|>{other}"
    turns = _read(backend, text, chunk_length=100)
    assert turns[0].startswith("<|speaker:0|>A")
    assert turns[-1].startswith("<|speaker:1|>")
    assert all(turn.startswith("<|speaker:") for turn in turns)


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ({"repetition_penalty": 1.5}, "redrawn once"),
        ({"repetition_penalty": 0.5}, "cannot be made to repeat"),
        ({"text": "J'ai 3 chats."}, "normalize had no effect"),
    ],
)
def test_fields_without_effect_have_notes(backend: LocalBackend, fields: dict[str, Any], what: str) -> None:
    request = TTSRequest.build(**{"text": TEXT, **fields})
    assert any(what in note for note in backend._family.plan(Call(request)).notes)
    assert backend._family.plan(Call(TTSRequest.build(text=TEXT))).notes == ()


def test_address_works_locally_and_over_http(both: Path, tmp_path: Path, backend: LocalBackend) -> None:
    with voicelab.connect(f"local:{both}", device="cpu") as lab:
        spoken = lab.speak(TEXT, seed=1, max_new_tokens=20, model="s1")
    assert np.array_equal(spoken.samples, samples(backend, model="s1", max_new_tokens=20))
    with KeyStore(tmp_path / "keys") as keys:
        secret = keys.create("test").secret
        with running(backend, keys=keys) as url, voicelab.connect(url, api_key=secret) as remote:
            clip = remote.speak(TEXT, seed=1, max_new_tokens=20, model="s1")
    assert np.array_equal(clip.samples, spoken.samples)


def test_weights_in_bf16_speak(both: Path, tmp_path: Path) -> None:
    folder = with_codec(write_model(tmp_path, "s2-pro", dtype=torch.bfloat16), both)
    with LocalBackend("cpu", weights=folder) as backend:
        given = {"references": [ReferenceAudio(audio=recording(1), text="One.")]}
        assert np.array_equal(samples(backend, **given), samples(backend, **given))


def test_threads_reach_the_language_model(both: Path) -> None:
    before = torch.get_num_threads()
    try:
        with LocalBackend("cpu", threads=2, weights=both) as backend:
            assert backend._models.parts("s2-pro").scheduler._threads == 2
            assert samples(backend).size
    finally:
        torch.set_num_threads(before)


def test_single_model_serves_both_names(both: Path) -> None:
    with LocalBackend("cpu", weights=both / "openaudio-s1-mini") as backend:
        assert backend.capabilities.one_model
        notes = backend.synthesize(call()).clip().notes
    assert any(note.startswith("model s2-pro: this voice has a single model") for note in notes)


def test_fingerprint_depends_on_weights(both: Path, backend: LocalBackend, tmp_path: Path) -> None:
    shutil.copytree(both, tmp_path / "copy")
    with LocalBackend("cpu", weights=tmp_path / "copy", rows=4) as same:
        assert same.capabilities.fingerprint == backend.capabilities.fingerprint
    write_model(tmp_path / "copy" / "s2-pro", "s2-pro", seed=1)
    with LocalBackend("cpu", weights=tmp_path / "copy", rows=4) as other:
        assert other.capabilities.fingerprint != backend.capabilities.fingerprint


def test_shared_codec_in_the_parent_folder(both: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(both, tmp_path / "copy"))
    for path in folder.rglob("codec.pth"):
        path.unlink()
    save_codec(folder / "codec.pth", tiny_tensors())
    assert {one.codec for one in model_folders(folder)} == {folder / "codec.pth"}
    with LocalBackend("cpu", weights=folder) as backend:
        assert Lab(backend).speak(TEXT, seed=1, max_new_tokens=5).samples.size


def test_insufficient_memory_is_an_error(both: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = model_folders(both)[0]
    plan = MemoryPlan.of(one, 16, CodecFile.open(one.codec).codec.sizes)
    tensors = sum(path.stat().st_size for path in one.folder.glob("*.safetensors"))
    assert 0 < tensors - plan.weights < 20_000  # their headers
    # Rows and what is kept of references, both, layers, heads, width, positions, bytes; a frame in the fast transformer.
    assert plan.slots == 17 * 2 * 2 * 2 * 16 * 512 * 4 + 16 * 2 * 2 * 2 * 16 * 3 * 4
    monkeypatch.setattr("voicelab.engine.dual.folder.free_memory", lambda _: plan.total - 1)
    with pytest.raises(
        EngineError,
        match=r"weights s2-pro/config\.json: s2-pro needs 0\.\d\d GB: weights .* but cpu has .* GB free; use fewer rows",
    ):
        LocalBackend("cpu", weights=both, rows=16)
    free = free_memory(CPU)
    assert free is None or free > 1e8


def test_digest_includes_all_shards(both: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(both / "s2-pro", tmp_path / "copy"))
    (folder / "model-00002-of-00002.safetensors").rename(folder / "rest.safetensors")
    index = folder / "model.safetensors.index.json"
    index.write_text(index.read_text().replace("model-00002-of-00002", "rest"))
    assert folder / "rest.safetensors" in model_folders(folder)[0].files
    with LocalBackend("cpu", weights=folder, rows=1) as backend:
        assert samples(backend).size


def test_the_published_model_fits_into_24_gb(both: Path) -> None:
    """16 rows of 4,096 positions of S2-Pro: 147,456 bytes a position in bf16."""
    one = model_folders(both)[0]
    large = one.config.slow.__class__(36, 2560, 32, 8, 128, 9728, True, 32_768, 1e6, 1e-6)
    assert MAX_POSITIONS * 147_456 == 603_979_776
    slots = 17 * bytes_of(large, MAX_POSITIONS, 2)
    assert slots == 17 * 603_979_776
    assert 9_123_704_832 + 1_871_099_728 + slots + 32 * 512 * 4096 * 14 < 24e9

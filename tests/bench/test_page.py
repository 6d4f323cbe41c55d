"""bench/page.py generates docs/performance.md from results of any shape."""

from __future__ import annotations

import json
import re
from pathlib import Path

import page
import pytest

MACHINE = {"cpu": "Some CPU", "cores": 2, "python": "3.11.7", "torch": "2.13.0", "load": 0.1}


def test_performance_page_is_up_to_date() -> None:
    assert page.PAGE.read_text(encoding="utf-8") == page.page(page.read()), "run python bench/page.py"


def test_figures_on_other_pages_are_up_to_date() -> None:
    results = page.read()
    for path in page.pages():
        text = path.read_text(encoding="utf-8")
        assert page.filled(text, results) == text, f"{path.name}: run python bench/page.py"


def test_filling_in_single_figures() -> None:
    text = "it takes <!-- figure speed/models/a/first_audio_s/low -->9 s<!-- / -->, <!-- figure none/a -->3<!-- / -->"
    figures = {"models": {"a": {"first_audio_s": {"low": 0.0181}}}}
    assert page.filled(text, {"speed": figures}) == text.replace("9 s", "0.0181 s")
    assert page.filled(text, {}) == text
    with pytest.raises(KeyError, match="models"):
        page.filled(text, {"speed": {}})


def test_rates_in_percent() -> None:
    figures = {"whisper": {"value": 0.042, "low": 0.031, "high": 0.054}, "clean": {"first": 0.46}}
    text = "<!-- figure voice/whisper --><!-- / -->, <!-- figure voice/clean/first --><!-- / -->"
    numbers = re.sub("<.*?>", "", page.filled(text, {"voice": figures}))
    assert numbers == "4.2 % (3.1 to 5.4), 46 %"


def test_suite_has_every_benchmark() -> None:
    assert {"speed", "voice", "parameters", "samples"} <= set(page.SUITE)
    for name, (file, *_) in page.SUITE.items():
        text = (page.ROOT / file).read_text(encoding="utf-8")
        assert 'if __name__ == "__main__":' in text, f"{name} is not a benchmark: add it to _HELPER_MODULES"


def test_failed_benchmark_does_not_stop_the_suite(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "docs" / "make").mkdir(parents=True)
    (tmp_path / "docs" / "make" / "blocks.py").write_text("")
    (tmp_path / "README.md").write_text("<!-- figure good/value -->1<!-- / -->")
    (tmp_path / "good.py").write_text("print('{\"value\": 3}')\n")
    (tmp_path / "bad.py").write_text("raise SystemExit(3)\n")
    for name, value in {"ROOT": tmp_path, "RESULTS": tmp_path / "results", "PAGE": tmp_path / "docs" / "p.md"}.items():
        monkeypatch.setattr(page, name, value)
    monkeypatch.setattr(
        page, "read", lambda: {path.stem: json.loads(path.read_text()) for path in page.RESULTS.iterdir()}
    )
    monkeypatch.setattr(page, "SUITE", {"bad": ("bad.py",), "good": ("good.py",)})
    assert page.every(["bad", "good"]) == 1
    assert (tmp_path / "README.md").read_text() == "<!-- figure good/value -->3<!-- / -->"
    output = capsys.readouterr().out
    assert re.search(r"^== good: \d+ s, \d+ s in all$", output, re.MULTILINE)
    assert output.endswith("bad.py failed\n")


def test_formats_of_figures() -> None:
    text = page.page(
        {
            "speed": {
                "command": "python bench/page.py --repeats 2",
                "date": "2026-11-21",
                "machine": MACHINE,
                "first_audio_s": {"low": {"median": 0.018, "p95": 0.02, "repeats": 12}},
                "wer": {"value": 0.155, "low": 0.133, "high": 0.179},
                "load_ms": 1234.5,
                "systems": {"a": {"ms": 1, "same": True}, "b": {"ms": 2, "same": False}},
                "rounds": [{"way": "blocking", "clip_s": 1}, {"way": "event loop", "clip_s": 60}],
            }
        }
    )
    for line in (
        "Generate docs/performance.md from the results in bench/results/, and rerun benchmarks.",
        "`python bench/page.py --repeats 2`, 2026-11-21; Some CPU, 2 cores, Python 3.11.7, torch 2.13.0, system load 0.1",
        "| first audio: low | 0.018 s (95 % within 0.02 s, 12 times) |",
        "| wer | 0.155 (0.133 to 0.179) |",
        "| load | 1,234 ms |",
        "| systems | ms | same |",
        "| b | 2 | no |",
        "| way | clip |",
        "| event loop | 60 s |",
    ):
        assert line in text.splitlines(), line


def test_result_has_command_and_date(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "ROOT", tmp_path)
    (tmp_path / "figures.py").write_text("print('on the way')\nprint('{\"value\": 3}')\n")
    result = page.measured(["figures.py", "--often"])
    assert (result["command"], result["value"]) == ("python figures.py --often", 3)
    assert len(result["date"]) == 10
    (tmp_path / "figures.py").write_text("raise SystemExit(3)\n")
    with pytest.raises(SystemExit, match=r"figures\.py failed"):
        page.measured(["figures.py"])
    assert json.dumps(result)

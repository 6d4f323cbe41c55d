"""The sweep panel without a page: what is typed is checked, what runs can be stopped, what came can be sent on."""

from __future__ import annotations

import contextlib
import html
import io
import re
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from ipywidgets.widgets import widget as registry

from tests.tones import DECLARED, ToneBackend, there, until
from voicelab.capabilities import Price
from voicelab.errors import StoreError
from voicelab.lab import Lab
from voicelab.runs.cache import Cache
from voicelab.takes.export import LAYOUTS
from voicelab.views import scripts
from voicelab.views.result_panel import _LAYOUTS, ResultPanel
from voicelab.views.sweep_panel import SweepPanel, _rounded

TEXT = "Eight notes, then some more."


@pytest.fixture
def panels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., SweepPanel]]:
    monkeypatch.chdir(tmp_path)
    made: list[SweepPanel] = []

    def make(backend: ToneBackend | None = None, **asked: Any) -> SweepPanel:
        asked = {"text": TEXT, "temperature": [0, 0.5, 1], **asked}
        panel: SweepPanel = Lab(backend or ToneBackend()).sweep(cache=Cache(tmp_path / "cache"), **asked).panel()
        made.append(panel)
        assert panel.form.settled()
        return panel

    yield make
    for panel in made:
        panel.close()


def ran(panel: SweepPanel) -> SweepPanel:
    """Run it to its end."""
    panel.run()
    assert panel.wait(20)
    return panel


def typed(panel: SweepPanel, place: int, text: str) -> Any:
    row = panel.form.axes.children[place]
    row.values.value = text
    assert panel.form.settled()
    return row


def test_what_would_do_nothing_is_off_with_the_reason(panels: Callable[..., SweepPanel]) -> None:
    form = panels(ToneBackend(seed="none", prices=())).form
    assert (form.seed.disabled, form.limits["cost"].disabled) == (True, True)
    assert form.seed.tooltip == "No effect: seeds are not supported."
    assert form.limits["cost"].tooltip == "No effect: the backends have no prices."
    form = panels(ToneBackend(prices=(Price(1.0),))).form
    assert not form.seed.disabled
    assert not form.limits["cost"].disabled


def test_it_opens_with_what_it_was_asked_and_tells_what_that_needs(panels: Callable[..., SweepPanel]) -> None:
    panel = panels(ToneBackend(prices=(Price(1000.0),)), repeats=2, voice=["ada", "ben"], text=["One.", "Two!"])
    assert panel.form.texts.value == "One.\nTwo!"
    assert [(row.field.value, row.values.value) for row in panel.form.axes.children] == [
        ("temperature", "0..1 step 0.5"),
        ("reference_id", "ada, ben"),
    ]
    assert [row.field.label for row in panel.form.axes.children] == ["Temperature", "Voice"]
    assert (
        "12 cells, 24 takes: 24 requests, 96 characters, about 7 s of audio, costs 0.096." in panel.form.estimate.value
    )
    assert not panel.run_button.disabled


def test_what_is_wrong_is_named_at_its_field_and_nothing_can_run(panels: Callable[..., SweepPanel]) -> None:
    backend = ToneBackend()
    panel = panels(backend, latency=["low"])
    row = typed(panel, 0, "0..2 step 0.5")
    assert "<b>Temperature</b>: must be between 0 and 1, got " in row.problem.value
    assert "voicelab-wrong" in row.values._dom_classes
    assert panel.run_button.disabled
    assert panel.run() is None
    other = typed(panel, 1, "quick")
    assert "Latency" in other.problem.value
    assert row.problem.value, "both are told at once"
    typed(panel, 0, "0.3")
    assert row.problem.value == ""
    assert "voicelab-wrong" not in row.values._dom_classes
    typed(panel, 1, "low, balanced")
    assert not panel.run_button.disabled
    panel.form.texts.value = "  "
    assert panel.form.settled()
    assert "empty or blank" in panel.form.texts_problem.value
    assert backend.asked == []


def test_run_right_after_a_change_waits_for_its_validation(panels: Callable[..., SweepPanel]) -> None:
    panel = panels()
    panel.form.axes.children[0].values.value = "2"
    assert panel.run() is None
    panel.form.axes.children[0].values.value = "0.3"
    assert not panel.run_button.disabled
    assert panel.run() is not None
    assert panel.wait(20)
    assert [take.request.temperature for take in panel.result.takes] == [0.3]


def test_a_panel_that_never_ran_has_its_form_and_one_sentence(panels: Callable[..., SweepPanel]) -> None:
    panel = panels(voice=["ada", "ben"])
    panel.cancel()
    assert panel.progress.status == "Run synthesizes the takes, which appear here."
    assert (panel.ballot, len(panel.frame())) == (None, 0)
    assert panel.children == (panel.design, panel.children[1], panel.message)
    assert panel.result.state == "waiting"
    assert [_rounded(seconds) for seconds in (1, 42, 89, 846)] == ["1 s", "40 s", "90 s", "14 min"]


def test_a_limit_is_hard(panels: Callable[..., SweepPanel]) -> None:
    panel = panels()
    panel.form.limits["requests"].value = "2"
    assert panel.form.settled()
    assert "the estimate must be within 2, got 3" in panel.form.problem.value
    assert panel.run_button.disabled
    panel.form.limits["requests"].value = "few"
    assert panel.form.settled()
    assert "<b>Requests</b>: must be a number" in panel.form.problem.value
    panel.form.limits["requests"].value = ""
    assert panel.form.settled()
    assert not panel.run_button.disabled


def test_values_are_picked(panels: Callable[..., SweepPanel]) -> None:
    panel = panels(voice=["ada"], latency=["low"], normalize=[True])
    number, voice, latency, normalize = panel.form.axes.children
    assert [part.value for part in number._parts] == ["0", "1", "0.5"]
    number._parts[2].value = "0.25"
    assert number.values.value == "0..1 step 0.25"
    number.values.value = "0.1, 0.2"
    assert [part.value for part in number._parts] == ["", "", ""]
    number._parts[0].value = "0.3"
    number.values.value = ""
    assert [part.value for part in number._parts] == ["0.3", "", ""], "an incomplete range is kept"
    number._parts[1].value, number._parts[2].value = "0.5", "0.1"
    assert number.values.value == "0.3..0.5 step 0.1"
    assert [part.description for part in voice._parts] == ["Ada", "Ben"]
    voice.picker.children[-1].click()  # all
    assert (voice.values.value, [part.value for part in voice._parts]) == ("ada, ben", [True, True])
    voice._parts[0].value = False
    assert voice.values.value == "ben"
    assert [part.description for part in latency._parts] == ["low", "normal", "balanced"]
    assert [part.description for part in normalize._parts] == ["false", "true"]
    latency.field.value = "model"
    assert [part.description for part in latency._parts] == ["s1", "s2-pro"]


def test_repeats_are_checked_not_clamped(panels: Callable[..., SweepPanel]) -> None:
    panel = panels()
    panel.form.repeats.value = 0
    assert panel.form.settled()
    assert (panel.form.repeats.value, panel.run()) == (0, None)
    assert "<b>Repeats</b>: must be between 1 and 10,000, got 0" in panel.form.repeats_problem.value


def test_an_axis_is_added_and_removed(panels: Callable[..., SweepPanel]) -> None:
    panel = panels()
    panel.form.add_axis()
    row = panel.form.axes.children[1]
    row.field.value = "prosody.speed"
    typed(panel, 1, "1, 0.9")
    assert [axis.name for axis in there(panel.sweep).axes] == ["temperature", "prosody.speed"]
    row.field.value = "temperature"
    assert panel.form.settled()
    assert "axes must have unique names" in row.problem.value
    panel.form.remove(row)
    assert panel.form.settled()
    assert len(panel.sweep or ()) == 3


def test_the_estimate_learns_from_takes_that_are_there(panels: Callable[..., SweepPanel]) -> None:
    panel = panels(repeats=2)
    (before,) = re.findall(r"6 requests, .* about (.*) s of audio", panel.form.estimate.value)
    ran(panel)
    assert panel.form.settled()
    assert "0 requests" in panel.form.estimate.value
    panel.form.repeats.value = 4
    assert panel.form.settled()
    (after,) = re.findall(r"6 requests, .* about (.*) s of audio, about .* of work", panel.form.estimate.value)
    # 50 ms a character, as its takes were.
    assert (round(6 * 0.05 * len(TEXT)), before != after) == (int(after), True)


def test_run_brings_every_take_and_a_failing_one_says_why(panels: Callable[..., SweepPanel]) -> None:
    again = threading.Event()
    panel = panels(ToneBackend(lambda _: again.wait(20), voices=DECLARED), voice=["ada", "nobody"])
    run = panel.run()
    assert panel.run() is run
    again.set()
    assert panel.wait(20)
    assert panel.takes.grid.work.settled(20)
    rows = panel.takes.grid.work.rows
    assert [row.state for row in rows] == ["done", "failed"] * 3
    assert rows[1].error == "reference_id: There is no such voice"
    assert rows[0].figures["duration"] == pytest.approx(1.4)
    assert panel.progress.status == "6 of 6 takes, done, 3 failed"
    assert "There is no such voice" in panel.message.value
    assert (panel.progress.share, panel.progress.tone) == (1.0, "danger")
    assert len(panel.result.takes) == 3


def test_a_failing_cell_keeps_a_secret(panels: Callable[..., SweepPanel]) -> None:
    def fail(_: int) -> None:
        raise OSError("refused: Authorization: Bearer abcdefghij0123456789, api_key=hunter2hunter2")

    panel = ran(panels(ToneBackend(fail)))
    error = panel.takes.grid.work.rows[0].error
    assert error == "OSError: refused: Authorization: Bearer …, api_key=…"
    assert (panel.progress.status, panel.run_button.description) == ("3 of 3 takes, failed", "Retry failed")
    # Nor do the table, what a notebook keeps, and what is exported.
    assert set(panel.result.frame()["error"]) == {error}
    assert error in panel.result._repr_mimebundle_()["text/html"]


def test_after_a_run_that_failed_another_can_begin(
    panels: Callable[..., SweepPanel], monkeypatch: pytest.MonkeyPatch
) -> None:
    panel = panels()
    with monkeypatch.context() as broken:
        broken.setattr(Cache, "look", lambda *_: 1 / 0)
        failed = panel.run()
        assert panel.wait(20)
    assert failed is not None
    assert failed.state == "failed"
    assert "division by zero" in panel.message.value
    assert {row.state for row in panel.takes.grid.work.rows} == {"missing"}
    assert (panel.run_button.disabled, panel.run_button.description) == (False, "Run")
    again = panel.run()
    assert again is not failed
    assert panel.wait(20)
    assert panel.message.value == ""
    assert len(panel.result.takes) == 3


def test_a_rejected_start_leaves_what_is_shown(panels: Callable[..., SweepPanel], tmp_path: Path) -> None:
    panel = ran(panels())
    panel.form.limits["requests"].value = "0"  # all takes are cached
    assert panel.form.settled()
    Cache(tmp_path / "cache").clear()
    assert panel.run() is None
    assert "the estimate must be within 0, got 3" in panel.message.value
    assert [row.state for row in panel.takes.grid.work.rows] == ["done"] * 3
    panel.form.limits["requests"].value = ""
    ran(panel)
    first = panels()
    first.form.limits["requests"].value = "0"
    assert first.form.settled()
    Cache(tmp_path / "cache").clear()
    assert first.run() is None
    assert first.children == (first.design, first.children[1], first.message)


def test_the_table_of_a_run_at_work_has_the_takes_that_are_there(panels: Callable[..., SweepPanel]) -> None:
    panel = ran(panels())
    whole = panel.result
    # Each look finds one take more.
    looks = iter(whole.pick(range(count)) for count in range(1, 4))
    panel.takes.live = lambda: next(looks)
    assert len(panel.takes.frame()) == 1


def test_pause_cancel_and_resume(panels: Callable[..., SweepPanel]) -> None:
    go = threading.Event()
    backend = ToneBackend(lambda _: go.wait(0.05))
    panel = panels(backend, temperature="0..1 step 0.04")
    panel.run()
    until(lambda: sum(row.state == "running" for row in panel.takes.grid.work.rows) == 8)
    panel.pause()
    assert panel.pause_button.description == "Continue"
    panel.pause()
    assert panel.pause_button.description == "Pause"
    begun = time.monotonic()
    panel.cancel()
    assert panel.wait(10)
    assert time.monotonic() - begun < 1.0, "a running take stops within a second"
    assert backend.open == 0
    assert {row.state for row in panel.takes.grid.work.rows} <= {"missing", "done"}
    assert (panel.run_button.description, panel.run_button.disabled) == ("Resume", False)
    before = len(panel.result.takes)
    asked = len(backend.asked)
    go.set()
    ran(panel)
    assert (panel.result.state, len(panel.result.takes)) == ("done", 26)
    assert len(backend.asked) - asked == 26 - before


def test_closing_leaves_nothing_running(panels: Callable[..., SweepPanel]) -> None:
    before = set(registry._instances)
    backend = ToneBackend(lambda _: time.sleep(0.05))
    panel = panels(backend, temperature="0..1 step 0.04")
    panel.run()
    until(lambda: backend.open)
    panel.form.add_axis()
    panel.form.remove(panel.form.axes.children[-1])
    panel.takes.show_table()
    panel.takes.show_table()
    panel.close()
    # But for how the panel itself looked, a page has nothing left to talk to.
    left = {type(one).__name__ for name, one in registry._instances.items() if name not in before}
    assert left <= {"Layout", "Scripts"}
    assert panel.wait(5)
    until(lambda: backend.open == 0)
    names = ("voicelab-sweep", "voicelab-take", "voicelab-panel", "voicelab-debouncer")
    until(lambda: not [thread for thread in threading.enumerate() if thread.name.startswith(names)])


def test_a_page_that_has_gone_stops_the_run(panels: Callable[..., SweepPanel], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scripts, "_UNSEEN_S", 0.1)
    panel = panels(ToneBackend(lambda _: time.sleep(0.05)), temperature="0..1 step 0.04")
    panel.run()
    panel.message._on_page(None, {"kind": "views", "count": 0}, [])
    panel.message._on_page(None, {"kind": "views", "count": 1}, [])  # moved
    time.sleep(0.2)
    assert there(panel._run).state == "running"
    panel.message._on_page(None, {"kind": "views", "count": 0}, [])
    assert panel.wait(5)
    assert panel.result.state == "cancelled"


@pytest.fixture
def result(panels: Callable[..., SweepPanel]) -> ResultPanel:
    panel = ran(panels(voice=["ada", "ben"], repeats=2))
    assert panel.takes.grid.work.settled(20)
    return panel.takes


def test_a_selection_goes_into_a_comparison_and_a_blind_test(result: ResultPanel, tmp_path: Path) -> None:
    assert result.compare_button.disabled
    result.grid.selected = [0, 2]
    assert not result.compare_button.disabled
    result.compare()
    (compared,) = result.content("Compare")
    assert compared.comparison.names == ("voice=ada", "voice=ben")
    result.grid.selected = [0, 1, 2, 3]
    assert (result.over.label, result.sort.options[2][0]) == ("Voice", "voice")
    result.over.value = "reference_id"
    result.listening_test()
    asking, results = result.content("Blind test")
    assert asking.ballot.test.systems == ("ada", "ben")
    assert len(asking.ballot.test.items) == 2
    assert list(tmp_path.glob("votes-*.sqlite3"))
    result.show_votes()
    assert "there are no votes yet" in result.message.value
    # The results come with the final answer, and the lines shown reproduce them, when the test has left the page too.
    ballot = there(result.ballot)
    assert ballot is asking.ballot
    number = 0
    for name in ("Ada", "Ben"):
        number = ballot.join(name)
        while (trial := ballot.next_trial(number)) is not None:
            ballot.vote(number, trial.id, {"choice": "A"})
    asking._on_message(None, {"call": "trial", "listener": number, "number": 1}, [])
    assert "probability of superiority" in results.value
    cells = re.findall(r"<td[^>]*>(.*?)</td>", results.value)
    assert [cells[4 * row : 4 * row + 3] for row in range(2)] == [
        [who, "ada against ben", "2"] for who in ("Ada", "Ben")
    ]
    code = html.unescape(re.findall(r"voicelab-paste'>(.*?)</pre>", results.value, re.DOTALL)[0])
    result.compare()
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(code, {"panel": result})  # noqa: S102 (our own lines)
    assert said.getvalue().strip() in html.unescape(results.value)
    result.grid.selected = [0]
    result.kind.value = "AB"
    result.listening_test()
    assert "alert" in result.message.value
    result.close()
    assert not ballot._database.opened


def test_a_take_is_opened_below_the_grid_and_closed(result: ResultPanel) -> None:
    assert result.open_take(1).wait(30)
    title, player = result.player.children
    assert (title.children[0].value.count("take=2"), player.label) == (1, "temperature=0, voice=ada, take=2")
    title.children[1].click()
    assert result.player.children == ()


def test_a_test_whose_file_cannot_be_written_leaves_the_one_on_the_page(
    result: ResultPanel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result.grid.selected = [0, 2]
    result.over.value = "reference_id"
    result.listening_test()
    ballot = there(result.ballot)
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    result.listening_test()
    assert "alert" in result.message.value
    assert result.ballot is ballot
    assert ballot.votes() == ()
    result.close()


def test_at_once_all_takes_are_shown(result: ResultPanel) -> None:
    fresh = ResultPanel(result.result)
    fresh.select_shown()
    assert len(fresh.grid.selected) == 12
    fresh.where.value = "voice=ben, temperature=0"
    assert [row.id for row in fresh.grid.work.shown] == [2, 3]
    fresh.close()


def test_it_is_exported_as_files_a_table_and_a_page(result: ResultPanel, tmp_path: Path) -> None:
    result.where.value = "temperature>0.4"
    result.folder.value = "out"
    result.export_button.click()
    until(lambda: "/out: " in result.message.value, 30)
    assert re.findall("data-file=.*?>(.*?)<", result.message.value) == ["takes.csv", "takes.html"]
    assert len(list((tmp_path / "out" / "audio").iterdir())) == 8
    assert len(pd.read_csv(tmp_path / "out" / "takes.csv")) == 8
    page = (tmp_path / "out" / "takes.html").read_text()
    assert page.count("<audio") == 8
    assert "http" not in page, "nothing from anywhere else"
    frame = result.frame()
    assert len(frame) == 12
    assert frame["duration"].tolist() == pytest.approx(frame["duration_s"].tolist())
    assert {name for name, _ in _LAYOUTS.values()} == {"files", "run", *LAYOUTS, "webmushra"}
    result.layout_of.value = "LJSpeech"
    assert "id|text" in result.layout_note.value
    sent: list[bytes] = []
    result.grid.send = lambda _, buffers: sent.extend(buffers)
    result.zip_button.click()
    until(lambda: "8 takes are in out.zip" in result.message.value, 30)
    names = zipfile.ZipFile(io.BytesIO(b"".join(sent))).namelist()
    assert sum(name.startswith("out/wavs/") and name.endswith(".wav") for name in names) == 8
    assert "out/metadata.csv" in names
    (tmp_path / "file").write_text("")
    result.folder.value = "file"
    result.export().wait(30)
    assert "alert" in result.message.value


def test_each_tab_makes_what_it_shows_when_it_is_opened(result: ResultPanel) -> None:
    assert result.tabs.titles == ("Listen", "Effects", "Compare", "Blind test", "Table", "Export")
    for tab in result.tabs.titles[1:]:
        assert result.content(tab) == ()
    result.tabs.selected_index = 2
    assert "Select 2 to 8 takes" in result.content("Compare")[0].value
    result.tabs.selected_index = 1
    # It says what it does meanwhile; nothing is opened by what comes later.
    words = "Testing the effects of temperature and voice on duration, loudness, word_rate…"
    assert words in result.content("Effects")[0].value
    result.tabs.selected_index = 0
    until(lambda: "<img" in result.content("Effects")[0].value)
    assert result.tabs.selected_index == 0
    text = result.content("Effects")[0].value
    rows = [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in text.split("<tr>")]
    assert '<b data-pick="duration">Duration, s</b><div>temperature</div>' in [row[0] for row in rows if row]
    assert "e-1" not in text.partition("<table>")[2]
    # A click on a row sorts and colours the takes by its metric, and shows them.
    shown = result.content("Effects")[0]
    result.tabs.selected_index = 1
    shown._handle_custom_msg({"pick": "loudness"}, [])
    assert (result.sort.value, result.color.value, result.tabs.selected_index) == ("loudness", "loudness", 0)
    shown._handle_custom_msg({"pick": "no such"}, [])
    assert result.color.value == "loudness"
    result.grid.selected = [0, 1]
    result.tabs.selected_index = 2
    assert result.content("Compare")[0].comparison.names == ("take=1", "take=2")
    result.tabs.selected_index = 4
    (table,) = result.content("Table")
    heads = [column["title"] for column in table.columns]
    assert heads == ["temperature", "voice", "take", "Duration, s", "Loudness, LUFS", "Word rate, 1/s", *heads[6:]]
    assert (table.rows[0][:3], table.rows[1][2]) == ([0.0, "ada", "1"], "2")
    assert [column["number"] for column in table.columns[:4]] == [True, False, True, True]
    # As many decimals as the values need, the same for all, and four digits at most.
    assert [column["decimals"] for column in table.columns[:5]] == [1, 0, 0, 1, 2]


def test_the_odd_one_out_is_found_and_bad_words_are_said(result: ResultPanel) -> None:
    messages: list[dict[str, Any]] = []
    result.grid.send = lambda message, _: messages.append(message)
    result.metric.value = "loudness"
    result.find_outlier()
    assert messages[-1]["kind"] == "reveal"
    assert "robust standard deviations" in result.message.value
    result.where.value = "nothing=1"
    assert "<b>Filter</b>: column must be one of temperature, voice, take," in result.where_problem.value
    result.where.value = "temperature>"
    assert "a value must follow the operator" in result.where_problem.value
    assert "voicelab-wrong" in result.where._dom_classes
    result.where.value = result.where.placeholder  # the example works
    assert result.where_problem.value == ""
    result.measured.value = "loudnes"
    assert "unknown metric" in result.measured_problem.value
    result.measured.value = "peak"
    assert (result.measured_problem.value, result.metric.options) == ("", (("Peak", "peak"),))


def test_takes_are_filtered_by_their_number(tmp_path: Path) -> None:
    made = Lab(ToneBackend()).sweep(TEXT, temperature=[0], repeats=11, cache=Cache(tmp_path / "cache")).run()
    panel = made.panel(metrics=["duration"])
    for where, ids in (("take=10", [9]), ("take>9", [9, 10]), ("take<3", [0, 1])):
        panel.where.value = where
        assert (panel.where_problem.value, [row.id for row in panel.grid.work.shown]) == ("", ids)
    panel.close()


def test_the_frame_of_a_panel_has_all_measurements_although_its_thread_has_ended(tmp_path: Path) -> None:
    made = Lab(ToneBackend()).sweep(TEXT, temperature=[0, 1], repeats=20, cache=Cache(tmp_path / "cache")).run()
    panel = made.panel(metrics=["duration", "loudness"])
    panel.close()
    pd.testing.assert_frame_equal(
        panel.frame()[["duration", "loudness"]], made.frame("duration", "loudness")[["duration", "loudness"]]
    )


def test_a_result_has_a_panel_and_a_page_of_its_own(tmp_path: Path) -> None:
    lab = Lab(ToneBackend(voices=DECLARED))
    made = lab.sweep(TEXT, voice=["ada", "nobody"], cache=Cache(tmp_path / "cache")).run()
    panel = made.panel(metrics=["duration"])
    assert [row.state for row in panel.grid.work.rows] == ["done", "failed"]
    assert panel.saved_output()["text/html"].count("<audio controls") == 1
    panel.close()
    page = made.page(tmp_path / "deep" / "page.html").read_text()
    assert "There is no such voice" in page
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"page\.html cannot be written"):
        made.page(tmp_path / "file" / "page.html")

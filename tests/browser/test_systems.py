"""The panels that measure knobs and compare systems, in JupyterLab: chosen, run, read, heard."""

from __future__ import annotations

from tests.browser.conftest import LONG, Scratch, in_kernel
from tests.browser.test_sweep import SETUP, says, tab


def test_knobs_are_chosen_run_and_read(scratch: Scratch) -> None:
    page = scratch.run(
        SETUP
        + "import threading\n"
        + "from voicelab.capabilities import FieldSupport\n"
        + 'fields = (FieldSupport("top_p", ignored="tones are not sampled"),)\n'
        # Until the test says so, no take ends.
        + "go = threading.Event()\n"
        + "lab = Lab(ToneBackend(lambda _: go.wait(60), fields=fields))\n"
        + 'lab.knob_panel("speed", repeats=2)'
    )
    panel = ".voicelab-knob-panel"
    speed = page.get_by_label("Speed", exact=True)
    speed.wait_for(timeout=LONG)
    assert speed.is_checked()
    page.locator("button.voicelab-run-knobs").click()
    page.locator("button.voicelab-cancel-knobs:enabled").click(timeout=LONG)
    in_kernel(page, "go.set()")  # after what Cancel sent
    says(page, "cancelled", panel)
    page.get_by_label("Top-p (declared: does nothing)").check()
    page.locator("button.voicelab-run-knobs:enabled").click()
    says(page, "2 checked; contradicts what is declared: top_p", panel)
    table = page.locator(f"{panel} .voicelab-knob-table table")
    assert table.get_by_role("cell", name="contradicts", exact=True).count() == 1
    assert table.get_by_role("cell", name="acts", exact=True).count() >= 1


def test_systems_are_chosen_run_heard_and_compared(scratch: Scratch) -> None:
    page = scratch.run(
        SETUP
        + "import voicelab as vl\n"
        + 'quiet = Lab(ToneBackend(fingerprint="tones-2"), volume=-12)\n'
        + 'vl.systems_panel(["One two three.", "Four five."], metrics=("duration", "loudness"),'
        + ' cache=Cache("cache-systems"), plain=Lab(ToneBackend()), quiet=quiet)'
    )
    panel = ".voicelab-sweep-panel"
    says(page, "2 systems, 4 takes")
    run = page.locator("button.voicelab-run")
    second = page.get_by_label("quiet: tones on cpu, 2 voices")
    second.uncheck()
    says(page, "choose at least two systems")
    assert run.is_disabled()
    second.check()
    page.locator("button.voicelab-run:enabled").click(timeout=LONG)
    says(page, "4 of 4 takes, done")
    tab(page, "Systems")
    table = page.locator(f"{panel} table", has_text="quiet difference")
    table.wait_for(timeout=LONG)
    assert table.get_by_role("cell", name="duration").count() == 1
    cells = table.locator("td").all_inner_texts()
    assert "0" in cells, "what is nothing but rounding is 0"
    assert not [cell for cell in cells if "e-" in cell or "nan" in cell]
    says(page, "at one loudness; differences from plain")
    tab(page, "Blind test")
    page.locator("button.voicelab-blind-test:enabled").click()
    says(page, "The votes go into votes-")

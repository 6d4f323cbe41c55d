"""No function changes the state of the process: settings of matplotlib, warnings, logging, random numbers, threads."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

WATCH = """
import asyncio, decimal, faulthandler, gc, locale, logging, os, random, signal, socket, sys, tempfile, threading, warnings
# Libraries set up loggers and filters when they are imported, whoever imports them; only what is done after that counts.
import anywidget, av, IPython, ipywidgets, rich.style, scipy.stats, soxr
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch

plt.close(plt.figure())  # the backend starts


def settings():
    logger = logging.getLogger()
    loggers = (each for each in logging.root.manager.loggerDict.items() if isinstance(each[1], logging.Logger))
    mask = os.umask(0o22)
    os.umask(mask)
    return {
        "rcParams": {name: repr(value) for name, value in plt.rcParams.items()},
        "figures": plt.get_fignums(),
        "warnings": [*map(repr, warnings.filters), warnings.showwarning],
        "logging": (logger.level, [*logger.handlers], logger.disabled, logging.root.manager.disable,
                    {name: (each.level, [*each.handlers], each.propagate, each.disabled) for name, each in loggers
                     if each.level or each.handlers or each.disabled or not each.propagate}),
        "locale": locale.setlocale(locale.LC_ALL),
        "random": (random.getstate(), np.random.get_state()[1].tobytes(), np.random.get_state()[2:],
                   torch.get_rng_state().numpy().tobytes()),
        "numpy": (np.geterr(), repr(np.get_printoptions())),
        "pandas": repr([pd.get_option(name) for name in ("display.width", "display.max_columns", "display.precision")]),
        "torch": (torch.is_grad_enabled(), torch.get_default_dtype(), torch.are_deterministic_algorithms_enabled(),
                  torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32, torch.get_default_device()),
        "threads": (torch.get_num_threads(), torch.get_num_interop_threads()),
        "environment": dict(os.environ),
        "folder": os.getcwd(),
        "signals": {number: signal.getsignal(number) for number in signal.valid_signals()},
        "path": (list(sys.path), list(map(repr, sys.meta_path))),
        "hooks": (sys.excepthook, sys.displayhook, sys.unraisablehook, threading.excepthook, sys.stdout, sys.stderr),
        "interpreter": (sys.getrecursionlimit(), sys.getswitchinterval(), sys.gettrace(), sys.getprofile(),
                        gc.isenabled(), gc.get_threshold(), gc.get_freeze_count(), faulthandler.is_enabled(),
                        threading.stack_size()),
        "others": (repr(decimal.getcontext()), socket.getdefaulttimeout(), mask, tempfile.tempdir,
                   type(asyncio.get_event_loop_policy())),
    }


namespace = {}
for step in CALLS:
    before = settings()
    exec(step, namespace)
    after = settings()
    plt.close("all")
    for name, value in before.items():
        # A plot makes a figure: that is what it is for.
        if value != after[name] and not (name == "figures" and "plot" in step):
            print(f"CHANGED by {step!r}: {name}")
print("DONE", len(CALLS))
"""

CALLS = [
    "import voicelab as vl",
    "lab = vl.connect()",
    "clip = lab.speak('The birch canoe slid on the smooth planks.', seed=1)",
    "other = lab.speak('The birch canoe slid on the smooth planks.', seed=2, voice='clara')",
    "lab.speak('今天天气很好。', voice='mei')",
    "take = lab.stream('Hello there, how are you?').take()",
    "list(lab.stream('Hello there.').pcm())",
    "shown = [value._repr_mimebundle_() for value in (clip, take, clip.words)]",
    "repr(lab), repr(lab.capabilities), repr(clip), repr(take)",
    "clip.plot()",
    "clip.plot(kind=('spectrogram', 'f0', 'energy'), style='paper')",
    "clip.plot(style='ggplot')",
    "clip.plot(style={'font.size': 9.0}, kind='mel')",
    "vl.save_figure(clip.plot(), 'plot.pdf'), vl.save_figure(clip.plot(), 'plot.svg')",
    "for style in ('no such style', {'no.such': 1}):\n    try: clip.plot(style=style)\n    except vl.RequestInvalid: pass",
    "[clip.save(f'clip.{suffix}') for suffix in ('wav', 'mp3', 'ogg')]",
    "[vl.Clip.load(f'clip.{suffix}') for suffix in ('wav', 'mp3', 'ogg')]",
    "clip.resample(16_000), clip.slice(0.0, 0.5)",
    "vl.measure([clip, other])",
    "vl.measure(clip, ['f0_median', 'rtf', 'stoi', 'mfcc_distance', 'spectral_similarity'], reference=other)",
    "comparison = vl.compare(clip, other)",
    "comparison._repr_mimebundle_(), repr(comparison)",
    "sweep = lab.sweep('One.', temperature=[0.2, 0.9], repeats=2)",
    "result = sweep.run()",
    "frame = result.frame('f0_median')",
    "result._repr_mimebundle_(), repr(result)",
    "effects = vl.effects(frame, axes='temperature', metrics=['duration_s'])",
    "effects.plot(), effects._repr_mimebundle_()",
    "result.page('sweep.html'), result.export('takes')",
    "lab.check_knobs('temperature', repeats=2)",
    "os = __import__('os'); [os.makedirs(f'spk/{name}') for name in 'ab']",
    "[sound.save(f'spk/{name}/{item}.wav') for name, sound in {'a': clip, 'b': other}.items() for item in range(3)]",
    "table = vl.collect('spk/{system}/{item}.wav')",
    "table.frame(), table._repr_mimebundle_(), table.effects()",
    "test = table.listening_test('AB', name='ab')",
    "vl.listen(vl.Ballot(test, 'answers.jsonl'))._repr_mimebundle_()",
    "vl.compare_systems(['One.', 'Two.'], a=lab, b=lab.with_defaults(voice='clara'))._repr_mimebundle_()",
    "vl.plan_test('MOS', 0.5, sd=(0.3, 0.3, 0.6), simulations=100, listeners=(6, 9), items=(6,)).plot()",
    "vl.align_words(clip, 'The birch canoe slid on the smooth planks.')",
    "panels = [lab.panel(compact=True), lab.panel(), lab.voice_panel(), result.panel()]",
    "[panel._repr_mimebundle_() for panel in panels]",
    "voice = lab.create_voice('Ada', ['clip.wav'], texts=['The birch canoe slid on the smooth planks.'])",
    "lab.speak('Hello.', voice=voice)",
    "lab.delete_voice(voice)",
    "list(vl.progress(range(3), 'takes'))",
    "vl.available_backends()",
    "lab.close()",
]


@pytest.mark.skipif(sys.platform == "win32", reason="signals and masks of POSIX")
def test_public_calls_leave_the_process_as_it_was(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name not in ("OMP_NUM_THREADS", "MPLBACKEND")}
    done = subprocess.run(
        [sys.executable, "-c", f"CALLS = {CALLS!r}\n{WATCH}"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    lines = done.stdout.splitlines()
    assert [line for line in lines if line.startswith("CHANGED")] == []
    assert f"DONE {len(CALLS)}" in lines, done.stderr[-2000:]

"""The embedded voice on a CPU needs no torch and no thread of BLAS; its speech imports no library that it does not need."""

from __future__ import annotations

import os
import subprocess
import sys

CODE = """
import os, sys, time
from pathlib import Path
sys.modules["torch"] = None  # importing it raises
import numpy
def sleeps():  # the state of each thread of BLAS, and how often it was put to sleep
    values = [dict(line.split(":", 1) for line in file.read_text().splitlines()) for file in files]
    return [(value["State"].split()[0], value["voluntary_ctxt_switches"]) for value in values]
files = [task / "status" for task in Path("/proc/self/task").glob("*") if task.name != str(os.getpid())]
before = None
while (asleep := sleeps()) != before or any(state != "S" for state, _ in asleep):  # they spin when they start
    before = asleep
    time.sleep(0.2)
import voicelab as vl
with vl.connect() as lab:
    clip = lab.speak("Zorbing in Schaffhausen, where the river Rhine falls over rocks of many colors and ages.", seed=1)
    print({"av", "httpx", "librosa", "matplotlib", "packaging", "PIL", "scipy"} & set(sys.modules) or "none")
    clone = lab.speak("Yes.", references=[vl.ReferenceAudio(audio=clip.to_bytes("wav"), text="")], seed=1, model="s1")
print(clip.duration > 1, clone.similarity is not None, sleeps() == asleep)
"""


def test_the_embedded_voice_speaks_and_clones_without_torch_and_threads_of_blas() -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "2"}
    done = subprocess.run(
        [sys.executable, "-c", CODE], capture_output=True, text=True, check=False, timeout=120, env=environment
    )
    assert done.stdout.split() == ["none", "True", "True", "True"], done.stderr

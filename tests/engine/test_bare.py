"""The embedded voice on a CPU needs no torch and no thread of BLAS; its speech imports no library that it does not need."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import numpy as np

import voicelab

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
    print({"asyncio", "av", "httpx", "librosa", "matplotlib", "packaging", "PIL", "scipy"} & set(sys.modules) or "none")
    clone = lab.speak("Yes.", references=[vl.ReferenceAudio(audio=clip.to_bytes("wav"), text="")], seed=1, model="s1")
print(clip.duration > 1, clone.similarity is not None, sleeps() == asleep)
"""


def test_the_embedded_voice_speaks_and_clones_without_torch_and_threads_of_blas() -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "2"}
    done = subprocess.run(
        [sys.executable, "-c", CODE], capture_output=True, text=True, check=False, timeout=120, env=environment
    )
    assert done.stdout.split() == ["none", "True", "True", "True"], done.stderr


WEAK = """
import os, sys
if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
import numpy, voicelab
numpy.save(sys.argv[1], voicelab.connect(device="cpu").speak("Yes.", seed=1).samples)
"""


def test_the_same_codes_with_one_core_without_avx2_and_with_a_home_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    extensions = np.show_config(mode="dicts")["SIMD Extensions"]
    environment = {
        **os.environ,
        "NPY_DISABLE_CPU_FEATURES": " ".join(extensions.get("found", ())),
        "VOICELAB_HOME": str(tmp_path / "file" / "home"),
    }
    if platform.machine() in ("x86_64", "AMD64"):
        environment["OPENBLAS_CORETYPE"] = "Nehalem"
    out = tmp_path / "a.npy"
    subprocess.run([sys.executable, "-c", WEAK, str(out)], check=True, timeout=120, env=environment)
    with voicelab.connect(device="cpu") as lab:
        np.testing.assert_allclose(np.load(out), lab.speak("Yes.", seed=1).samples, atol=1e-3)

"""The embedded voice on a CPU imports no torch, and its speech no library that it does not need."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import sys
sys.modules["torch"] = None  # importing it raises
import voicelab as vl
with vl.connect() as lab:
    clip = lab.speak("Zorbing in Schaffhausen.", seed=1)
    print({"av", "httpx", "librosa", "matplotlib", "packaging", "PIL", "scipy"} & set(sys.modules) or "none")
    clone = lab.speak("Yes.", references=[vl.ReferenceAudio(audio=clip.to_bytes("wav"), text="")], seed=1, model="s1")
print(clip.duration > 1, clone.similarity is not None)
"""


def test_the_embedded_voice_speaks_and_clones_where_importing_torch_raises() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=False, timeout=120)
    assert done.stdout.split() == ["none", "True", "True"], done.stderr

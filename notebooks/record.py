"""Record anew what 03 and 09 play back: a service of the interface, started here for them.

    python notebooks/record.py                      then: voicelab check --update notebooks

The recordings are what those notebooks say to a real ``voicelab serve`` with the embedded voice, over HTTP on this
machine. Their times are this machine's: let it be quiet.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

HERE = Path(__file__).resolve().parent
RECORDED = {"03_latency": ("my-latency", "latency"), "09_use_a_remote_service": ("my-recording", "service")}
# Enough for what 09 says, and not for the sentence with which it shows what "used up" looks like.
CREDIT = {"03_latency": None, "09_use_a_remote_service": "400"}
LIMIT_S = 900
VOICELAB = str(Path(sys.executable).with_name("voicelab"))


def execute(notebook: Path, environment: dict[str, str]) -> None:
    """Run a notebook in its own folder and keep its outputs, without times and widget states."""
    command = [sys.executable, "-m", "nbconvert", "--to", "notebook", "--execute", "--inplace", "--log-level", "ERROR"]
    command += ["--ExecutePreprocessor.record_timing=False", "--ExecutePreprocessor.store_widget_state=False"]
    subprocess.run([*command, str(notebook)], check=True, env=environment, timeout=LIMIT_S)


@contextmanager
def serving(home: str) -> Iterator[str]:
    """Start ``voicelab serve`` on a free port; the address is what it says when it is ready."""
    command = [VOICELAB, "serve", "--port", "0"]
    service = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ, "VOICELAB_HOME": home})
    try:
        assert service.stderr is not None  # noqa: S101 - a pipe was asked for
        for line in service.stderr:
            if " is ready at " in line:
                yield line.split(" is ready at ")[1].strip()
                return
        raise SystemExit("the service did not start")
    finally:
        service.terminate()
        service.wait()


def record() -> None:
    """Let the notebooks that replay speak to a service, and keep what it answered."""
    for name, (made, kept) in RECORDED.items():
        with TemporaryDirectory() as folder, TemporaryDirectory() as home:
            credit = CREDIT[name]
            command = [VOICELAB, "keys", "create", "notebook"]
            command += ["--credit", credit] if credit else []
            own = {**os.environ, "VOICELAB_HOME": home}
            key = subprocess.run(command, check=True, env=own, capture_output=True, text=True).stdout.strip()
            copy = Path(shutil.copy(HERE / f"{name}.ipynb", folder))
            with serving(home) as address:
                warm = [VOICELAB, "say", "Warm up.", "-o", f"{folder}/warm.wav"]
                told = {**own, "VOICELAB_BASE_URL": address, "VOICELAB_API_KEY": key}
                subprocess.run(warm, check=True, env=told, capture_output=True)
                execute(copy, told)
            target = HERE / "recordings" / kept
            shutil.rmtree(target, ignore_errors=True)
            shutil.copytree(Path(folder) / made, target)
        print(f"recorded {target.name}")


if __name__ == "__main__":
    record()

"""Record anew what 03, 09 and 10 play back: a service, started here for each of them.

    python notebooks/record.py                      then: voicelab check --update notebooks
    python notebooks/record.py 10_which_voice       one of them

The recordings are what those notebooks say to a real ``voicelab serve`` over HTTP on this machine: of the embedded voice
for 03 and 09, and for 10 of Kokoro behind OpenAI's API (the extra kokoro is needed for that). Their times are this
machine's: let it be quiet.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Recorded:
    """The folder that a notebook records into, where it is kept; the key's credit, and what serves."""

    made: str
    kept: str
    credit: str = ""
    served: tuple[str, ...] = ()


RECORDED = {
    "03_latency": Recorded("my-latency", "latency"),
    # Enough for what 09 says, and not for the sentence with which it shows what "used up" looks like.
    "09_use_a_remote_service": Recorded("my-recording", "service", credit="400"),
    "10_which_voice": Recorded("my-voices", "voices", served=("--openai", "--backend", "kokoro:")),
}
LIMIT_S = 900
VOICELAB = str(Path(sys.executable).with_name("voicelab"))


def execute(notebook: Path, environment: dict[str, str]) -> None:
    """Run a notebook in its own folder and keep its outputs, without times and widget states."""
    command = [sys.executable, "-m", "nbconvert", "--to", "notebook", "--execute", "--inplace", "--log-level", "ERROR"]
    command += ["--ExecutePreprocessor.record_timing=False", "--ExecutePreprocessor.store_widget_state=False"]
    subprocess.run([*command, str(notebook)], check=True, env=environment, timeout=LIMIT_S)


@contextmanager
def serving(home: str, options: tuple[str, ...]) -> Iterator[str]:
    """Start ``voicelab serve`` on a free port; the address is what it says when it is ready."""
    command = [VOICELAB, "serve", "--port", "0", *options]
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


def record(names: Iterable[str]) -> None:
    """Let notebooks that replay speak to a service, and keep what it answered."""
    for name in names:
        one = RECORDED[name]
        with TemporaryDirectory() as folder, TemporaryDirectory() as home:
            command = [VOICELAB, "keys", "create", "notebook"]
            command += ["--credit", one.credit] if one.credit else []
            own = {**os.environ, "VOICELAB_HOME": home}
            key = subprocess.run(command, check=True, env=own, capture_output=True, text=True).stdout.strip()
            copy = Path(shutil.copy(HERE / f"{name}.ipynb", folder))
            with serving(home, one.served) as address:
                warm = [VOICELAB, "say", "Warm up.", "-o", f"{folder}/warm.wav"]
                told = {**own, "VOICELAB_BASE_URL": address, "VOICELAB_API_KEY": key}
                told |= {"OPENAI_BASE_URL": address, "OPENAI_API_KEY": key} if "--openai" in one.served else {}
                subprocess.run(warm, check=True, env=told, capture_output=True)
                execute(copy, told)
            target = HERE / "recordings" / one.kept
            shutil.rmtree(target, ignore_errors=True)
            shutil.copytree(Path(folder) / one.made, target)
        print(f"recorded {target.name}")


if __name__ == "__main__":
    record(sys.argv[1:] or RECORDED)

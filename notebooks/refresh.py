"""Run the notebooks and write their outputs anew; with ``--record``, record the service anew first.

    python notebooks/refresh.py            all notebooks
    python notebooks/refresh.py 02 07      some of them
    python notebooks/refresh.py --record   the recordings, by a service that is started here, then all notebooks

The recordings of 03 and 09 are what those notebooks say to a real ``voicelab serve`` with the embedded voice, over HTTP
on this machine. Their times are this machine's: let it be quiet.
"""

from __future__ import annotations

import argparse
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


def main() -> None:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("numbers", nargs="*", help="the first characters of the notebooks' names; all when not given")
    parser.add_argument("--record", action="store_true", help="record the service anew first")
    arguments = parser.parse_args()
    if arguments.record:
        record()
    for notebook in sorted(HERE.glob("[0-9]*.ipynb")):
        if arguments.numbers and not notebook.name.startswith(tuple(arguments.numbers)):
            continue
        # A home of its own, so that nothing kept before shows in the outputs.
        with TemporaryDirectory() as home:
            environment = {name: value for name, value in os.environ.items() if not name.startswith("VOICELAB_")}
            execute(notebook, {**environment, "VOICELAB_HOME": home})
        print(f"{notebook.name}: {notebook.stat().st_size / 1024:.0f} KiB")


if __name__ == "__main__":
    main()

"""Peak memory of `voicelab listen` while listeners take a study over HTTP.

python bench/study.py                       100 sounds of 5 s, 500 listeners, 60 at once: some three minutes
python bench/study.py --listeners 20        a trial
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import numpy as np

import voicelab as vl
from voicelab.listening.server import _HEADER

RATE = 24_000
SECONDS = 5
AT_ONCE = 60


def study(listeners: int) -> vl.Study:
    """Make a study of two MOS trials per listener, of 50 items by two systems."""
    times = np.arange(SECONDS * RATE) / RATE
    items = {
        f"item {item}": {
            system: vl.Clip((0.1 * np.sin(2 * np.pi * (200 + 3 * item + pitch) * times)).astype(np.float32), RATE)
            for pitch, system in enumerate("ab")
        }
        for item in range(50)
    }
    return vl.Study(vl.ListeningTest("memory", "MOS", items, per_listener=2), listeners)


def take_part(url: str, number: int) -> None:
    """Take the study as a listener: fetch every sound, wait for its length, and rate it."""
    session = f"simulated-{number:020}"
    with httpx.Client(base_url=url, timeout=120, trust_env=False, headers={_HEADER: session}) as client:

        def post(path: str, **body: object) -> dict[str, object]:
            return dict(client.post(path, json=body).raise_for_status().json() or {})

        joined = post("/api/listeners", session=session, id=f"listener {number}")
        listener = f"/api/listeners/{joined['listener']}"
        client.get(f"/api/sounds/{joined['volume']}").raise_for_status()
        steps = list(joined["steps"])  # type: ignore[call-overload]
        for step in steps[: steps.index("trials")]:
            post(f"{listener}/steps", step=step, answers={})
        while trial := client.get(f"{listener}/trial").raise_for_status().json()["trial"]:
            letters = trial["letters"]
            for letter in letters:
                client.get(f"/api/sounds/{letter['sound']}").raise_for_status()
            seconds = (SECONDS + 0.05) * len(letters)
            time.sleep(seconds)
            answers = {letter["letter"]: 3 for letter in letters}
            post(f"{listener}/votes", trial=trial["id"], answers=answers, seconds=seconds, plays=len(letters))
        post(f"{listener}/steps", step="trials", answers={})


def peak_mib(process: int) -> int:
    """Read the peak resident memory of a process, in MiB (Linux)."""
    status = Path(f"/proc/{process}/status").read_text(encoding="utf-8")
    return int(status.split("VmHWM:")[1].split()[0]) // 1024


def main() -> None:
    """Print the peak memory of the server after the last listener."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--listeners", type=int, default=500)
    count = parser.parse_args().listeners
    with tempfile.TemporaryDirectory() as folder:
        study(count).save(folder)
        command = [str(Path(sys.executable).with_name("voicelab")), "listen", folder, "--port", "0"]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
            try:
                url = next(iter(server.stderr or ())).split()[-1]
                with ThreadPoolExecutor(AT_ONCE) as pool:
                    list(pool.map(lambda number: take_part(url, number), range(count)))
                print(f"{count} listeners, {AT_ONCE} at once: peak memory {peak_mib(server.pid)} MiB")
            finally:
                server.terminate()


if __name__ == "__main__":
    main()

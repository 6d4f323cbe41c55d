"""Run a command and say how much memory it took, with all processes that it starts; fail when that is over a limit.

    python .ci/peak.py --limit 2048 --name quickstart -- jupyter nbconvert --execute notebooks/01_quickstart.ipynb

Memory is the proportional set size: pages that several processes share count once. It needs Linux; it is looked at
five times a second, since looking costs a few milliseconds.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

_EVERY_S = 0.2


def held_mib(root: int) -> float:
    """Return the MiB that a process and its descendants hold now; what ends meanwhile counts nothing."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            # The name may hold anything, brackets too; the parent stands after it.
            fields = stat.read_text(errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        children.setdefault(int(fields[1]), []).append(int(stat.parent.name))
    total, family = 0.0, [root]
    while family:
        process = family.pop()
        family += children.get(process, [])
        try:
            lines = Path(f"/proc/{process}/smaps_rollup").read_text(encoding="utf-8").splitlines()
        except OSError:
            continue
        total += sum(float(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total / 1024


def main(arguments: list[str]) -> int:
    """Run, watch, tell; return the command's exit status, or 1 when it took too much."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit", type=float, required=True, help="MiB")
    parser.add_argument("--name", default="it")
    parser.add_argument("command", nargs="+")
    options = parser.parse_args(arguments)
    begun = time.monotonic()
    peak = 0.0
    with subprocess.Popen(options.command) as process:
        while process.poll() is None:
            peak = max(peak, held_mib(process.pid))
            time.sleep(_EVERY_S)
    took = time.monotonic() - begun
    print(f"{options.name}: at most {peak:.0f} MiB of {options.limit:.0f}, {took:.0f} s", flush=True)
    if process.returncode:
        return process.returncode
    return 1 if peak > options.limit else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

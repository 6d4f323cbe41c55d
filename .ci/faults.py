"""Plant faults in the package, one at a time, and count how many of them the tests notice.

    python .ci/faults.py [--faults 60] [--seed 1] [--only-near]

Each fault is drawn at random: an operator, a bound, two arguments that change places, an await or a close that is missing. It
is written into the working tree, which must be clean, the tests run until one fails, those that mirror the module first,
and the tree is put back. The last line printed is JSON. Faults that change nothing are among them, so not all can be noticed.
"""

from __future__ import annotations

import argparse
import ast
import json
import random
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

COMPARED = {ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==", ast.In: "not in"}
COMPUTED = {ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.Div: "*", ast.FloorDiv: "*", ast.Mod: "*"}


@dataclass(frozen=True)
class Fault:
    """A stretch of a file, by its place in the bytes, and what stands there instead."""

    path: Path
    line: int
    begin: int
    end: int
    text: str

    def plant(self) -> bytes:
        """Write it, and return the file as it was."""
        before = self.path.read_bytes()
        self.path.write_bytes(before[: self.begin] + self.text.encode() + before[self.end :])
        return before


def faults(path: Path) -> Iterator[Fault]:
    """Yield every fault that can be planted in a module."""
    source = path.read_bytes()
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    def place(node: ast.expr | ast.stmt) -> tuple[int, int]:
        return starts[node.lineno - 1] + node.col_offset, starts[(node.end_lineno or 1) - 1] + (
            node.end_col_offset or 0
        )

    def text(node: ast.expr) -> str:
        begin, end = place(node)
        return source[begin:end].decode()

    def instead(node: ast.expr | ast.stmt, new: str) -> Fault:
        return Fault(path, node.lineno, *place(node), new)

    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in COMPARED:
            yield instead(node, f"({text(node.left)} {COMPARED[type(node.ops[0])]} {text(node.comparators[0])})")
        elif isinstance(node, ast.BinOp) and type(node.op) in COMPUTED:
            yield instead(node, f"({text(node.left)} {COMPUTED[type(node.op)]} {text(node.right)})")
        elif isinstance(node, ast.BoolOp):
            word = " or " if isinstance(node.op, ast.And) else " and "
            yield instead(node, f"({word.join(f'({text(value)})' for value in node.values)})")
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            yield instead(node, f"bool({text(node.operand)})")
        elif isinstance(node, ast.Constant) and type(node.value) is int and node.value > 1:
            yield instead(node, str(node.value + 1))
        elif isinstance(node, ast.Await):
            yield instead(node, text(node.value))
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            if isinstance(node.value.func, ast.Attribute) and node.value.func.attr in {"close", "release", "cancel"}:
                yield instead(node, "pass")
        elif isinstance(node, ast.Call) and len(node.args) == 2 and not node.keywords:
            one, two = node.args
            yield Fault(path, node.lineno, place(one)[0], place(two)[1], f"{text(two)}, {text(one)}")


def near(path: Path) -> list[str]:
    """Return the tests that mirror a module, or its folder where it has none of its own."""
    inside = path.relative_to("voicelab")
    mirrored = Path("tests") / inside.parent / f"test_{inside.name}"
    return [str(mirrored)] if mirrored.exists() else [str(Path("tests") / inside.parent)]


def notices(arguments: list[str]) -> bool:
    """Return whether a test fails, stopping at the first."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-n", "2", "--dist", "loadfile", "-p", "no:cacheprovider"]
    done = subprocess.run([*command, *arguments], capture_output=True, check=False, timeout=3600)
    return done.returncode not in {0, 5}


def main() -> None:
    """Plant the faults that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only-near", action="store_true", help="run the tests that mirror the module and no others")
    options = parser.parse_args()
    command = ["git", "diff", "--quiet"]
    if subprocess.run(command, check=False).returncode:
        raise SystemExit("the working tree has changes: commit them first, since faults are written into it")
    every = [fault for path in sorted(Path("voicelab").rglob("*.py")) for fault in faults(path)]
    chosen = random.Random(options.seed).sample(every, options.faults)
    noticed = 0
    for fault in chosen:
        before = fault.plant()
        try:
            seen = notices(near(fault.path)) or (not options.only_near and notices(["--ignore=tests/browser"]))
        finally:
            fault.path.write_bytes(before)
        noticed += seen
        print(f"{fault.path}:{fault.line}: {fault.text[:60]!r} {'noticed' if seen else 'NOT NOTICED'}", flush=True)
    print(json.dumps({"faults": len(chosen), "of": len(every), "noticed": noticed, "seed": options.seed}))


if __name__ == "__main__":
    main()

"""Check the rules of the house that no linter knows.

    python .ci/house.py [FILE…]

Without arguments it looks at every file that git tracks or would track. It prints one line for each
breach, ``path:line: what``, and exits 1 when there is any.
"""

from __future__ import annotations

import ast
import graphlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

MODULE_LINES = 700
FUNCTION_LINES = 60

# A key of this project's service: its prefix, 256 bits in base62, a checksum of six characters. Anything
# that begins like one is reported, a little shorter too, so that a key cut at its end is found as well.
KEY = re.compile(r"vl_[0-9A-Za-z]{32,}")
# Other secrets that notebooks have been seen to leak.
BEARER = re.compile(r"(?i)\bbearer\s+(?!<)[0-9A-Za-z._~+/=-]{16,}")
CODE = ("voicelab", "training", "bench", "tests", ".ci", "docs")
# Names that say nothing of what they name.
NAMELESS = {"found", "known", "made", "told"}
# The one module that opens what torch.save wrote.
TENSORS_ONLY = Path("voicelab/engine/dual/files.py")
# Loading any of these runs code from the file that is loaded.
UNSAFE = {"cPickle", "dill", "joblib", "marshal", "pickle", "shelve"}


def tracked() -> list[Path]:
    """Return the files that git tracks, or would track when they are added, in order."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, capture_output=True, check=True, text=True).stdout
    return sorted({path for path in map(Path, filter(None, listed.split("\0"))) if path.is_file()})


def sizes(text: str, tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield modules and functions that are too long; a function's decorators and docstring count."""
    lines = len(text.splitlines())
    if lines > MODULE_LINES:
        yield 1, f"{lines} lines; a module has at most {MODULE_LINES}: one file, one idea"
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > FUNCTION_LINES:
                yield node.lineno, f"{node.name}() has {length} lines; a function has at most {FUNCTION_LINES}"


def bans(path: Path, tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield what the package must not do: raise bare builtins, unpickle, set threads when it is imported."""
    if path.parts[0] != "voicelab":
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) and node.exc is not None:
            raised = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
            if isinstance(raised, ast.Name) and raised.id in {"ValueError", "RuntimeError", "Exception"}:
                yield node.lineno, f"raise a class of voicelab.errors, not a bare {raised.id}"
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
            for name in names:
                if name.split(".")[0] in UNSAFE:
                    yield node.lineno, f"{name} runs code from the files it reads"
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "torch.load":
            plain = any(ast.unparse(keyword) == "weights_only=True" for keyword in node.keywords)
            if path != TENSORS_ONLY or not plain:
                yield node.lineno, f"torch.load unpickles; only {TENSORS_ONLY} may, with weights_only=True"
    for statement in tree.body:
        for node in ast.walk(statement) if isinstance(statement, ast.Expr) else ():
            if isinstance(node, ast.Attribute) and node.attr in {"set_num_threads", "set_num_interop_threads"}:
                yield node.lineno, "importing a module must not set threads"


def names(path: Path, tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield variables, arguments and functions of the package whose name does not say what they are."""
    if path.parts[0] != "voicelab":
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            name = node.id
        elif isinstance(node, ast.arg):
            name = node.arg
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            name = node.name.lstrip("_")
        else:
            continue
        if name in NAMELESS:
            yield node.lineno, f"{name!r} says nothing of what it names"


def repeated_classes(paths: list[Path]) -> Iterator[str]:
    """Yield public classes of the package that have the name of another one: two ideas need two names."""
    places: dict[str, Path] = {}
    for path in paths:
        if path.suffix == ".py" and path.parts[0] == "voicelab":
            for node in ast.parse(path.read_text(encoding="utf-8")).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    if node.name in places:
                        yield f"{path}:{node.lineno}: the class {node.name} is in {places[node.name]} too"
                    places.setdefault(node.name, path)


def imports(paths: list[Path], root: str) -> dict[str, set[str]]:
    """Return which modules of a folder import which: at the top, inside functions and for types; scripts by bare names."""
    modules = {
        ".".join(path.with_suffix("").parts).removesuffix(".__init__"): path
        for path in paths
        if path.suffix == ".py" and path.parts[0] == root
    }
    graph: dict[str, set[str]] = {}
    for name, path in modules.items():
        named: set[str] = set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                named.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                inside = [f"{node.module}.{alias.name}" for alias in node.names]
                named.update(one if one in modules else node.module for one in inside)
        graph[name] = {one for one in named | {f"{root}.{one}" for one in named} if one in modules and one != name}
    return graph


def circles(paths: list[Path]) -> Iterator[str]:
    """Yield the first circle of imports in the package and in bench/, and modules that import the facade."""
    for root in ("voicelab", "bench"):
        graph = imports(paths, root)
        for name in sorted(graph):
            if root in graph[name]:
                yield f"{name} imports the facade {root}: name the module"
                graph[name].discard(root)
        try:
            graphlib.TopologicalSorter(graph).prepare()
        except graphlib.CycleError as error:
            yield f"imports run in a circle: {' <- '.join(error.args[1])}"


def secrets(path: Path, text: str) -> Iterator[tuple[int, str]]:
    """Yield what looks like a key, in any text and in every cell and output of a notebook."""
    for number, line in enumerate(text.splitlines(), start=1):
        if KEY.search(line):
            yield number, "this looks like a key of the service"
        if path.suffix == ".ipynb" and BEARER.search(line):
            yield number, "this looks like a bearer credential"
    if path.suffix != ".ipynb":
        return
    # A key can be broken over the items of a list in the file; joined, as a reader sees it, it is whole.
    for index, cell in enumerate(json.loads(text).get("cells", []), start=1):
        for part in _texts(cell):
            if KEY.search(part) or BEARER.search(part):
                yield 1, f"cell {index} holds what looks like a secret"
                break


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, list):
        if all(isinstance(item, str) for item in value):
            yield "".join(value)
        else:
            for item in value:
                yield from _texts(item)


def breaches(path: Path) -> Iterator[tuple[int, str]]:
    """Yield (line, what) for every breach in one file, given by its path below the repository's root."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return  # weights, pictures, audio
    yield from secrets(path, text)
    if path.suffix == ".py" and path.parts[0] in CODE:
        try:
            tree = ast.parse(text, str(path))
        except SyntaxError as error:
            yield error.lineno or 1, f"this is not Python: {error.msg}"
            return
        yield from sizes(text, tree)
        yield from bans(path, tree)
        yield from names(path, tree)


def main(arguments: list[str]) -> int:
    """Check the files named, or all; return the exit status."""
    paths = [Path(argument) for argument in arguments] or tracked()
    lines = [f"{path}:{line}: {what}" for path in paths for line, what in breaches(path)]
    lines += [] if arguments else [*repeated_classes(paths), *circles(paths)]
    for line in lines:
        print(line)
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

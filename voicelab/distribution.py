"""What this package is called, which version it is, and how it is installed: at the bottom, for everybody."""

from __future__ import annotations

from pathlib import Path
from typing import Final

DISTRIBUTION: Final = "jupyter-voicelab"
"""The name that pip knows; ``voicelab`` on PyPI is another project (acoustic analysis)."""

__version__ = "0.1.0.dev0"


def install_command(extra: str = "") -> str:
    """Return the command that installs this package, or one of its extras, again from where it came.

    pip writes down the folder, archive or repository that a package was installed from (PEP 610, ``direct_url.json``);
    only what came by its name can be had by its name.
    """
    # Here, since only a line that is shown needs them.
    import json
    import shlex
    from importlib.metadata import PackageNotFoundError, distribution
    from urllib.parse import urlsplit
    from urllib.request import url2pathname

    extras = f"[{extra}]" if extra else ""
    try:
        record = json.loads(distribution(DISTRIBUTION).read_text("direct_url.json") or "{}")
    except PackageNotFoundError:
        # It runs from a folder that was never installed: a clone can be.
        clone = Path(__file__).parents[1]
        record = {"url": clone.as_uri(), "dir_info": {"editable": True}} if (clone / "pyproject.toml").exists() else {}
    if "dir_info" in record:
        option = "-e " if record["dir_info"].get("editable") else ""
        return f"pip install {option}{shlex.quote(url2pathname(urlsplit(record['url']).path) + extras)}"
    source = DISTRIBUTION + extras
    if "url" in record:
        repository = record.get("vcs_info")
        prefix, commit = (f"{repository['vcs']}+", f"@{repository['commit_id']}") if repository else ("", "")
        source += f" @ {prefix}{record['url']}{commit}"
    return f"pip install {shlex.quote(source)}"

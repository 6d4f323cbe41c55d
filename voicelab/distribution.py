"""Name and version of the distribution, and the command that installs it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

DISTRIBUTION: Final = "jupyter-voicelab"
"""Distribution name for pip; ``voicelab`` on PyPI is another project (acoustic analysis)."""

__version__ = "0.1.0.dev0"


def install_command(extra: str = "") -> str:
    """Return the pip command that installs this package, with an extra, from its original source.

    The source is the folder, archive or repository recorded by pip (PEP 610, ``direct_url.json``), else the package
    index.
    """
    import json
    import shlex
    from importlib.metadata import PackageNotFoundError, distribution
    from urllib.parse import urlsplit
    from urllib.request import url2pathname

    extras = f"[{extra}]" if extra else ""
    try:
        record = json.loads(distribution(DISTRIBUTION).read_text("direct_url.json") or "{}")
    except PackageNotFoundError:
        # Not installed: suggest the clone that it runs from.
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

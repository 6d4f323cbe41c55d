"""Write docs/reference/licenses.md: the license of every dependency in constraints.txt, from its metadata.

python docs/make/licenses.py
"""

from __future__ import annotations

import re
from importlib.metadata import PackageMetadata, PackageNotFoundError, metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "reference" / "licenses.md"
_NOT_STATED = "not stated"


def license_of(package: PackageMetadata) -> str:
    """Return the SPDX expression of a package, else the first line of its license field, else its classifiers."""
    stated = next((package[name].strip() for name in ("License-Expression", "License") if name in package), "")
    stated = stated.partition("\n")[0]
    classified = [
        line.rpartition(" :: ")[2] for line in package.get_all("Classifier") or () if line.startswith("License ::")
    ]
    short = stated if 0 < len(stated) <= 60 and stated != "UNKNOWN" else ""
    return short or ", ".join(name for name in classified if name != "OSI Approved") or _NOT_STATED


def page() -> str:
    """Format the page, one row per package, in the order of constraints.txt."""
    rows = []
    for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines():
        match = re.fullmatch(r"([A-Za-z0-9._-]+)==(\S+)", line)
        if match is None:
            continue
        try:
            stated = license_of(metadata(match[1]))
        except PackageNotFoundError:
            stated = "not installed when this page was generated"
        rows.append(f"| {match[1]} | {match[2]} | {stated.replace('|', '/')} |")
    lines = [
        "# Licenses of dependencies",
        "",
        "The license stated by each package in `constraints.txt`; `make constraints` writes this page in a development",
        "environment. The page on installation lists the extras that need them. Extras outside that environment",
        "(`pesq`, `speaker`, `praat`, `world`, `distillmos`) are under the terms of their packages; Praat is GPL.",
        "`make sbom` writes a bill of materials in CycloneDX format. The package contains one data table of a dependency:",
        "the simplified characters of OpenCC (Apache-2.0), in `voicelab/text/tables/mandarin/simplified.tsv`.",
        "",
        "| package | version | license |",
        "|---|---|---|",
        *rows,
    ]
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")

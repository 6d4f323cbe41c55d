"""Reports of checked notebooks for other programs: JSON and JUnit XML."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from xml.etree import ElementTree as ET

from voicelab.checks.check import NotebookReport
from voicelab.checks.lint import Finding

# XML 1.0 has no other control characters, escaped or not.
_NOT_XML = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")


def json_report(reports: Iterable[NotebookReport]) -> bytes:
    """Encode reports as a JSON array with an object per notebook: findings and notes with cell and line."""

    def encoded(findings: Sequence[Finding]) -> list[dict[str, object]]:
        return [{**asdict(finding), "notebook": str(finding.notebook)} for finding in findings]

    notebooks = [
        {
            "notebook": str(report.notebook),
            "cells": report.cells,
            "seconds": report.seconds,
            "memory_bytes": report.memory,
            "findings": encoded(report.findings),
            "notes": encoded(report.notes),
        }
        for report in reports
    ]
    return json.dumps(notebooks, ensure_ascii=False, indent=1).encode() + b"\n"


def junit_report(reports: Iterable[NotebookReport]) -> bytes:
    """Encode reports as JUnit XML: a test suite per notebook, with a test case per cell with findings.

    A test case "notebook" has the findings of the whole notebook, and the duration of the run.
    """
    root = ET.Element("testsuites")
    for report in reports:
        cells = sorted({finding.cell or 0 for finding in report.findings} | {0})
        suite = ET.SubElement(root, "testsuite", name=str(report.notebook), tests=str(len(cells)))
        suite.set("failures", str(len({finding.cell for finding in report.findings})))
        for cell in cells:
            case = ET.SubElement(suite, "testcase", classname=str(report.notebook))
            case.set("name", f"cell {cell}" if cell else "notebook")
            case.set("time", f"{0.0 if cell else report.seconds or 0.0:.3f}")
            findings = [finding for finding in report.findings if (finding.cell or 0) == cell]
            if findings:
                case.set("file", str(report.notebook))
                case.set("line", str(findings[0].line or 1))
                failure = ET.SubElement(case, "failure", type=findings[0].kind)
                failure.set("message", _NOT_XML.sub("\ufffd", findings[0].message))
                lines = "\n".join(f"{finding}\n{finding.detail}".rstrip() for finding in findings)
                failure.text = _NOT_XML.sub("\ufffd", lines)
    ET.indent(root)
    return bytes(ET.tostring(root, encoding="utf-8", xml_declaration=True)) + b"\n"

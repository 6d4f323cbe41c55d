"""Notebook checks of ``voicelab check``: offline execution, comparison of outputs, and a linter for the files."""

from voicelab.checks.check import NotebookReport, check, update
from voicelab.checks.compare import FIGURES, MASKS, processor
from voicelab.checks.execution import interrupt
from voicelab.checks.lint import Finding, NotebookLimits

__all__ = [
    "FIGURES",
    "MASKS",
    "Finding",
    "NotebookLimits",
    "NotebookReport",
    "check",
    "interrupt",
    "processor",
    "update",
]

"""What ``voicelab check`` looks for in notebooks: whether they run offline, still say what they say, and hold no secret."""

from voicelab.checks.check import NotebookReport, check, update
from voicelab.checks.compare import FIGURES, MASKS, processor
from voicelab.checks.lint import Finding, NotebookLimits

__all__ = ["FIGURES", "MASKS", "Finding", "NotebookLimits", "NotebookReport", "check", "processor", "update"]

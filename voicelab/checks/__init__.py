"""What ``voicelab check`` looks for in notebooks: whether they run offline, still say what they say, and hold no secret."""

from voicelab.checks.check import Limits, Report, check, update
from voicelab.checks.compare import MASKS
from voicelab.checks.finding import Finding

__all__ = ["MASKS", "Finding", "Limits", "Report", "check", "update"]

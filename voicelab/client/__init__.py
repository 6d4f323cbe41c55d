"""Calling a service of the interface, ours or any other: ServiceBackend.

``wire`` knows the calls and answers, without a connection; ``retry`` when to try again; ``backend``
carries them over HTTP.
"""

from __future__ import annotations

from voicelab.client.backend import ServiceBackend, Timeouts
from voicelab.client.retry import RetryPolicy

__all__ = ["RetryPolicy", "ServiceBackend", "Timeouts"]

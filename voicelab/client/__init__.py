"""Calling a service of the interface, ours or any other: ServiceBackend, and AsyncServiceBackend beside it.

``wire`` knows the calls and answers, without a connection; ``retry`` when to try again; ``caller`` what
becomes of a call; ``transport`` carries it, in a thread that blocks or on an event loop; ``backend`` is
what people use.
"""

from __future__ import annotations

from voicelab.client.backend import AsyncServiceBackend, ServiceBackend
from voicelab.client.caller import Timeouts
from voicelab.client.retry import RetryPolicy
from voicelab.client.streams import AsyncSpeechStream

__all__ = ["AsyncServiceBackend", "AsyncSpeechStream", "RetryPolicy", "ServiceBackend", "Timeouts"]

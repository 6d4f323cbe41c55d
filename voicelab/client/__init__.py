"""Calling a service of the interface, ours or any other: ServiceBackend, and AsyncServiceBackend beside it.

``wire`` makes calls and reads answers, without a connection; ``caller`` says what becomes of a call, and when it is
tried again; ``transport`` carries it, in a thread that blocks or on an event loop; ``backend`` is what people use.
"""

from __future__ import annotations

from voicelab.client.backend import AsyncServiceBackend, AsyncSpeechStream, ServiceBackend, open_service
from voicelab.client.caller import RetryPolicy, Timeouts

__all__ = ["AsyncServiceBackend", "AsyncSpeechStream", "RetryPolicy", "ServiceBackend", "Timeouts", "open_service"]

"""Capabilities as a JSON-able object, for recordings and manifests."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from voicelab.backend import Capabilities, VoicePreset
from voicelab.errors import StoreError

__all__ = ["capabilities_of", "capabilities_record"]


def capabilities_record(capabilities: Capabilities) -> dict[str, Any]:
    """Return what a backend declares as a JSON-able object; ``capabilities_of`` reads it back."""
    return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(capabilities).items()}


def capabilities_of(record: Any) -> Capabilities:
    """Return the Capabilities that were recorded. Raises StoreError when the record is none."""
    try:
        fields: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in record.items()
        }
        fields["voices"] = tuple(VoicePreset(**voice) for voice in record["voices"])
        return Capabilities(**fields)
    except (AttributeError, KeyError, TypeError) as error:
        raise StoreError(f"this is no record of a backend's capabilities: {error}") from error

"""The terms of the open weights: shown and accepted once, and named wherever their speech is recorded or served."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from voicelab.errors import LicenseRequired
from voicelab.schema import Model
from voicelab.storage import data_home, make_folder, write_atomic

ACCEPT_VARIABLE = "VOICELAB_ACCEPT_LICENSE"
"""Ids of licenses, separated by commas, that whoever runs a script has read and accepts; ``1`` is all of them."""


@dataclass(frozen=True)
class License:
    """What binds who uses a model's weights."""

    id: str
    weights: str
    """As their makers call them."""
    name: str
    terms: str
    """What it asks, in short; the full text comes with the weights."""
    notice: str
    """What has to be shown where the weights serve others."""

    @property
    def accepted(self) -> str | None:
        """When or how it was accepted here; None where it was not."""
        listed = {one.strip() for one in os.environ.get(ACCEPT_VARIABLE, "").split(",")}
        if listed & {self.id, "1"}:
            return f"by {ACCEPT_VARIABLE}"
        return _accepted().get(self.id)

    def accept(self) -> None:
        """Writes down, in VOICELAB_HOME, that it was accepted today. Raises StoreError: it cannot be kept."""
        today = datetime.now(UTC).date().isoformat()
        make_folder(_path().parent)
        write_atomic(_path(), json.dumps(_accepted() | {self.id: today}).encode())

    def __str__(self) -> str:
        return f"{self.weights} is under the {self.name}. {self.terms}"


LICENSES: dict[Model, License] = {
    "s2-pro": License(
        id="fish-audio-research",
        weights="S2-Pro",
        name="Fish Audio Research License of 2026-03-07",
        terms="It permits research and non-commercial use. Who offers a product or service that uses the weights passes "
        "the license on, keeps its notice and shows “Built with Fish Audio”. The speech belongs to you; it may not be "
        "used to make or improve another foundational generative model.",
        notice="Built with Fish Audio. This model is licensed under the Fish Audio Research License, "
        "Copyright © 39 AI, INC. All Rights Reserved.",
    ),
    "s1": License(
        id="cc-by-nc-sa-4.0",
        weights="S1-mini",
        name="license CC BY-NC-SA 4.0",
        terms="It permits non-commercial use that names the makers; what is adapted from the weights is shared under "
        "the same license.",
        notice="OpenAudio S1-mini by Fish Audio, CC BY-NC-SA 4.0.",
    ),
}
"""By the interface's name of the model."""


def require_accepted(models: Iterable[Model], folder: Path) -> tuple[str, str]:
    """Sees that the licenses of a folder's models were accepted.

    Returns:
        What was accepted and when, for manifests; and the notices, for those whom the speech is offered to.

    Raises:
        LicenseRequired: one was not; the error states its terms and how to accept them.
    """
    licenses = [LICENSES[model] for model in models]
    if waiting := [one for one in licenses if one.accepted is None]:
        ids = ",".join(one.id for one in waiting)
        raise LicenseRequired(
            f"{' '.join(map(str, waiting))} The full text comes with the weights. To accept it: "
            f"voicelab weights accept {folder}, or in a script the environment variable {ACCEPT_VARIABLE}={ids}"
        )
    return "; ".join(f"{one.name} (accepted {one.accepted})" for one in licenses), " ".join(
        one.notice for one in licenses
    )


def _path() -> Path:
    return data_home() / "licenses.json"


def _accepted() -> dict[str, str]:
    try:
        accepted: dict[str, str] = json.loads(_path().read_bytes())
    except (OSError, ValueError):  # none yet, or damaged: it is asked for again
        return {}
    return accepted

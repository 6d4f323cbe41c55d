"""Whether two pictures show the same: coarsely, since the last pixels differ between processors."""

from __future__ import annotations

import base64
import binascii
import io
from typing import Any, Final

__all__ = ["moved_picture"]

# A picture is looked at in this many fields a side; what is drawn alike differs by a few grey levels in none of them.
_FIELDS: Final = 64
_GREY: Final = 0.12
_MOST: Final = 2


def moved_picture(was: str, now: str) -> str | None:
    """Say in what two pictures (base64 of PNG or JPEG) differ; None when they show the same.

    They differ when their sizes do, or when more than 2 of 64 × 64 fields differ by more than 12% of the range from
    black to white in their mean.
    """
    if was == now:
        return None
    import numpy as np

    try:
        old, new = _opened(was), _opened(now)
    except (OSError, binascii.Error) as error:
        return f"a picture that cannot be read: {error}"
    if old.size != new.size:
        return "{} × {} pixels where it was {} × {}".format(*new.size, *old.size)
    fields = [np.asarray(image.resize((_FIELDS, _FIELDS), _box()), dtype=np.float64) / 255.0 for image in (old, new)]
    apart = np.abs(fields[0] - fields[1]).max(axis=2) > _GREY
    if apart.sum() <= _MOST:
        return None
    rows, columns = np.nonzero(apart)
    place = f"{_third(rows.mean(), 'top', 'middle', 'bottom')} {_third(columns.mean(), 'left', 'centre', 'right')}"
    return f"the picture shows something else: {apart.mean():.1%} of it differs, around the {place}"


def _opened(data: str) -> Any:
    """Return a picture on white, as RGB."""
    from PIL import Image

    image = Image.open(io.BytesIO(base64.b64decode(data))).convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", image.size, "white"), image).convert("RGB")


def _box() -> Any:
    from PIL import Image

    return Image.Resampling.BOX


def _third(place: float, first: str, second: str, third: str) -> str:
    return (first, second, third)[min(2, int(3 * place / _FIELDS))]

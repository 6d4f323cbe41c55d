"""How a value of ours is shown in a notebook, without this package knowing anything of notebooks.

Values ask for a view by its name when a cell ends with them. Where its libraries are not installed, the plain text
remains.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, Final

__all__ = ["bundle", "registered"]

_VIEWS: Final = {
    "capabilities": "voicelab.views.bundles:capabilities_bundle",
    "clip": "voicelab.views.bundles:clip_bundle",
    "clip_audio": "voicelab.views.bundles:clip_audio",
    "clip_plot": "voicelab.views.plots:plot_clips",
    "comparison": "voicelab.views.comparison_panel:comparison_bundle",
    "comparison_panel": "voicelab.views.comparison_panel:ComparePanel",
    "error": "voicelab.views.bundles:error_bundle",
    "sweep": "voicelab.views.sweep_tables:sweep_bundle",
    "sweep_page": "voicelab.views.sweep_tables:write_page",
    "sweep_panel": "voicelab.views.sweep_panel:SweepPanel",
    "sweep_result": "voicelab.views.sweep_tables:result_bundle",
    "sweep_result_panel": "voicelab.views.sweep_panel:ResultPanel",
    "voice": "voicelab.views.bundles:voice_bundle",
}


def registered(name: str) -> Callable[..., Any] | None:
    """Return the view called ``name``; None when what it needs is not installed."""
    module, _, attribute = _VIEWS[name].partition(":")
    try:
        show: Callable[..., Any] = getattr(import_module(module), attribute)
    except ImportError:
        return None
    return show


def bundle(name: str, value: object) -> dict[str, Any]:
    """Return the outputs of ``value`` by media type, from the view called ``name``."""
    show = registered(name)
    if show is not None:
        try:
            shown: dict[str, Any] = show(value)
        except ModuleNotFoundError:
            # What draws is imported when there is something to draw.
            pass
        else:
            return shown
    return {"text/plain": repr(value)}

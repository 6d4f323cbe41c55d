"""The one way up: what shows a value in a notebook, imported when it is asked for.

Everything else in this package imports downward only. A value that shows itself asks here for its view. Each function
below imports one; where its libraries are not installed, a bundle is the plain text and a panel raises MissingExtra.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = [
    "bundle",
    "capabilities_view",
    "clip_audio_view",
    "clip_plot_view",
    "clip_view",
    "comparison_panel_view",
    "comparison_view",
    "completion_view",
    "effects_view",
    "error_view",
    "explore_panel_view",
    "knob_check_view",
    "knob_panel_view",
    "magics_view",
    "open_view",
    "sweep_page_view",
    "sweep_panel_view",
    "sweep_result_panel_view",
    "sweep_result_view",
    "sweep_view",
    "systems_panel_view",
    "systems_view",
    "take_view",
    "voice_panel_view",
    "voice_view",
    "voices_view",
    "words_view",
]

View = Callable[..., Any]


def bundle(load: Callable[[], View], value: object) -> dict[str, Any]:
    """Return the outputs of ``value`` by media type, as the view that ``load`` imports makes them."""
    try:
        outputs: dict[str, Any] = load()(value)
    except ImportError:
        return {"text/plain": repr(value)}
    return outputs


def open_view(load: Callable[[], View], purpose: str, extra: str = "notebook") -> View:
    """Return the view that ``load`` imports. Raises MissingExtra, which names ``purpose``, when it cannot be imported."""
    try:
        return load()
    except ImportError as error:
        from voicelab.errors import MissingExtra

        raise MissingExtra.of(extra, purpose) from error


def capabilities_view() -> View:
    """Show what a backend declares."""
    from voicelab.views.bundles import capabilities_bundle

    return capabilities_bundle


def clip_view() -> View:
    """Show a clip: player, waveform and spectrogram."""
    from voicelab.views.bundles import clip_bundle

    return clip_bundle


def clip_audio_view() -> View:
    """Make a plain ``IPython.display.Audio`` of a clip."""
    from voicelab.views.bundles import clip_audio

    return clip_audio


def clip_plot_view() -> View:
    """Plot clips with matplotlib."""
    from voicelab.views.plots import plot_clips

    return plot_clips


def completion_view() -> View:
    """Let an IPython shell complete voices, metrics and fields' values."""
    from voicelab.views.completion import install

    return install


def comparison_view() -> View:
    """Show a comparison without a kernel."""
    from voicelab.views.comparison_panel import comparison_bundle

    return comparison_bundle


def comparison_panel_view() -> View:
    """Compare clips in a panel."""
    from voicelab.views.comparison_panel import ComparePanel

    return ComparePanel


def effects_view() -> View:
    """Show the effects of axes on metrics."""
    from voicelab.views.bundles import effects_bundle

    return effects_bundle


def error_view() -> View:
    """Show an error."""
    from voicelab.views.bundles import error_bundle

    return error_bundle


def explore_panel_view() -> View:
    """Speak in a panel."""
    from voicelab.views.explore_panel import ExplorePanel

    return ExplorePanel


def knob_check_view() -> View:
    """Show what a backend's knobs do."""
    from voicelab.views.bundles import knob_check_bundle

    return knob_check_bundle


def knob_panel_view() -> View:
    """Turn a backend's knobs in a panel."""
    from voicelab.views.knob_panel import KnobPanel

    return KnobPanel


def magics_view() -> View:
    """Give ``%speak`` and ``%%speak`` to an IPython shell."""
    from voicelab.views.notebook import register

    return register


def sweep_view() -> View:
    """Show a sweep that was not run."""
    from voicelab.views.sweep_tables import sweep_bundle

    return sweep_bundle


def sweep_page_view() -> View:
    """Write the takes of a sweep as one HTML file."""
    from voicelab.views.sweep_tables import write_page

    return write_page


def sweep_panel_view() -> View:
    """Type, run and hear a sweep in a panel."""
    from voicelab.views.sweep_panel import SweepPanel

    return SweepPanel


def sweep_result_view() -> View:
    """Show the takes of a sweep without a kernel."""
    from voicelab.views.sweep_tables import result_bundle

    return result_bundle


def sweep_result_panel_view() -> View:
    """Hear, sort and compare the takes of a sweep in a panel."""
    from voicelab.views.sweep_panel import ResultPanel

    return ResultPanel


def systems_view() -> View:
    """Show what several systems made of the same texts."""
    from voicelab.views.bundles import systems_bundle

    return systems_bundle


def systems_panel_view() -> View:
    """Have several systems say the same texts in a panel."""
    from voicelab.views.systems_panel import SystemsPanel

    return SystemsPanel


def take_view() -> View:
    """Show where a take comes from."""
    from voicelab.views.bundles import take_bundle

    return take_bundle


def voice_view() -> View:
    """Show the record of a voice."""
    from voicelab.views.bundles import voice_bundle

    return voice_bundle


def voice_panel_view() -> View:
    """Make and try voices in a panel."""
    from voicelab.views.voice_panel import VoicePanel

    return VoicePanel


def voices_view() -> View:
    """Show the voices that a backend brings with it."""
    from voicelab.views.bundles import presets_bundle

    return presets_bundle


def words_view() -> View:
    """Show words with their times."""
    from voicelab.views.bundles import words_bundle

    return words_bundle

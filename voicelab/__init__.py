"""voicelab: a toolkit for speech synthesis in Jupyter, with a small neural voice included.

    import voicelab as vl

    lab = vl.connect()                 # the embedded voice; vl.connect("https://…") for a service
    clip = lab.speak("The birch canoe slid on the smooth planks.", temperature=0.6)
    clip.save("canoe.wav")

Importing this package is fast, because each name of ``__init__.pyi`` is imported from its module on first use.
"""

from __future__ import annotations

import lazy_loader

from voicelab.display import register

_fetch, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

# The view of each type (see voicelab.display).
register(
    {
        "Capabilities": "voicelab.views.bundles:capabilities_bundle",
        "Clip": "voicelab.views.bundles:clip_bundle",
        "Clip.audio": "voicelab.views.bundles:clip_audio",
        "Clip.plot": "voicelab.views.plots:plot_clips",
        "Comparison": "voicelab.views.comparison_panel:comparison_bundle",
        "Comparison.panel": "voicelab.views.comparison_panel:ComparePanel",
        "Effects": "voicelab.views.bundles:effects_bundle",
        "KnobCheck": "voicelab.views.bundles:knob_check_bundle",
        "ListeningResult.report": "voicelab.listening.report:report_of",
        "Study.export": "voicelab.views.listening:export_study",
        "Sweep": "voicelab.views.sweep_tables:sweep_bundle",
        "Sweep.panel": "voicelab.views.sweep_panel:SweepPanel",
        "Take": "voicelab.views.bundles:take_bundle",
        "TakeTable": "voicelab.views.sweep_tables:table_bundle",
        "TakeTable.page": "voicelab.views.sweep_tables:write_page",
        "TakeTable.panel": "voicelab.views.result_panel:ResultPanel",
        "VoiceModel": "voicelab.views.bundles:voice_bundle",
        "VoicelabError": "voicelab.views.bundles:error_bundle",
        "Voices": "voicelab.views.bundles:presets_bundle",
        "Words": "voicelab.views.bundles:words_bundle",
    }
)

# The import above made this module an attribute, and ``vl.display(clip)`` is a guess that is answered.
del globals()["display"]

# Third-party modules of extras, for errors that state the extra to install.
_EXTRAS = {"torch": "gpu"}


def __getattr__(name: str) -> object:
    """Import a public name from its module on first use and cache it.

    Raises AttributeError, with a suggestion, for a name that is not public, and MissingExtra if the module needs an
    optional dependency that is not installed.
    """
    try:
        value: object = _fetch(name)
    except AttributeError:
        if name.startswith("_") or name in __all__:
            raise
        from voicelab.guesses import hint

        raise AttributeError(f"module 'voicelab' has no attribute {name!r}{hint('voicelab', name, __all__)}") from None
    except ModuleNotFoundError as error:
        extra = _EXTRAS.get(error.name or "")
        if extra is None:
            raise
        from voicelab.errors import MissingExtra

        raise MissingExtra.of(extra, f"voicelab.{name}") from error
    return value


def load_ipython_extension(ipython: object) -> None:
    """Register the magics ``%speak`` and ``%%speak``; IPython calls this function for ``%load_ext voicelab``."""
    from voicelab.views.notebook import register as add_magics

    add_magics(ipython)

"""voicelab: a laboratory for synthetic voices, with a small neural voice of its own inside.

    import voicelab as vl

    lab = vl.connect()                 # the embedded voice; vl.connect("https://…") for a service
    clip = lab.speak("The birch canoe slid on the smooth planks.", temperature=0.6)
    clip.save("canoe.wav")

Importing this package loads nothing heavy: every name below is fetched from its module on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from voicelab.display import register
from voicelab.distribution import __version__

if TYPE_CHECKING:
    from voicelab.audio.words import Words, WordTime
    from voicelab.backend import Backend, SpeechStream
    from voicelab.call import Call, Knob, VoicePreset
    from voicelab.capabilities import Capabilities, FieldSupport, Price
    from voicelab.client import AsyncServiceBackend, AsyncSpeechStream, ServiceBackend
    from voicelab.clip import Clip, Take, Timing
    from voicelab.engine.local import LocalBackend
    from voicelab.errors import (
        ArgumentError,
        AudioError,
        AuthenticationError,
        Cancelled,
        EngineError,
        FieldError,
        LicenseRequired,
        MissingExtra,
        NotFound,
        PaymentRequired,
        RequestInvalid,
        ServiceError,
        ServiceTimeout,
        ServiceUnavailable,
        StoreError,
        StreamTruncated,
        VoicelabError,
        WeightsError,
    )
    from voicelab.experiments.collection import collect
    from voicelab.experiments.comparison import Comparison, compare
    from voicelab.experiments.knobs import KnobCheck
    from voicelab.experiments.listening.design import ListeningTest
    from voicelab.experiments.listening.results import analyse
    from voicelab.experiments.listening.study import Question, Study
    from voicelab.experiments.listening.votes import Ballot
    from voicelab.experiments.metrics.measure import measure, measure_rows
    from voicelab.experiments.runs.backends import RecordingBackend, ReplayBackend
    from voicelab.experiments.runs.cache import Cache
    from voicelab.experiments.runs.run import Run, load
    from voicelab.experiments.statistics.effects import effects
    from voicelab.experiments.statistics.equivalence import equivalence
    from voicelab.experiments.statistics.simulation import plan_sweep, plan_test
    from voicelab.experiments.sweeps.axes import Axis
    from voicelab.experiments.sweeps.result import SweepResult
    from voicelab.experiments.sweeps.run import Budget
    from voicelab.experiments.sweeps.sweep import Sweep
    from voicelab.experiments.systems import SystemComparison, compare_systems
    from voicelab.lab import Lab, connect, systems_panel
    from voicelab.registry import backends
    from voicelab.schema import (
        Author,
        ProsodyControl,
        ReferenceAudio,
        SampleEntity,
        TTSRequest,
        VoiceCreate,
        VoiceModel,
    )
    from voicelab.views.listening import listen
    from voicelab.views.notebook import progress
    from voicelab.views.plots import save_figure
    from voicelab.voices.transcripts import align_words

__all__ = [
    "ArgumentError",
    "AsyncServiceBackend",
    "AsyncSpeechStream",
    "AudioError",
    "AuthenticationError",
    "Author",
    "Axis",
    "Backend",
    "Ballot",
    "Budget",
    "Cache",
    "Call",
    "Cancelled",
    "Capabilities",
    "Clip",
    "Comparison",
    "EngineError",
    "FieldError",
    "FieldSupport",
    "Knob",
    "KnobCheck",
    "Lab",
    "LicenseRequired",
    "ListeningTest",
    "LocalBackend",
    "MissingExtra",
    "NotFound",
    "PaymentRequired",
    "Price",
    "ProsodyControl",
    "Question",
    "RecordingBackend",
    "ReferenceAudio",
    "ReplayBackend",
    "RequestInvalid",
    "Run",
    "SampleEntity",
    "ServiceBackend",
    "ServiceError",
    "ServiceTimeout",
    "ServiceUnavailable",
    "SpeechStream",
    "StoreError",
    "StreamTruncated",
    "Study",
    "Sweep",
    "SweepResult",
    "SystemComparison",
    "TTSRequest",
    "Take",
    "Timing",
    "VoiceCreate",
    "VoiceModel",
    "VoicePreset",
    "VoicelabError",
    "WeightsError",
    "WordTime",
    "Words",
    "__version__",
    "align_words",
    "analyse",
    "backends",
    "collect",
    "compare",
    "compare_systems",
    "connect",
    "effects",
    "equivalence",
    "listen",
    "load",
    "measure",
    "measure_rows",
    "plan_sweep",
    "plan_test",
    "progress",
    "save_figure",
    "systems_panel",
]

# The module each name lives in. mypy reads the imports above, the interpreter this table.
_HOME = {
    name: f"voicelab.{module}"
    for module, names in {
        "clip": "Clip Take Timing WordTime Words",
        "backend": "Backend SpeechStream",
        "call": "Call Knob VoicePreset",
        "capabilities": "Capabilities FieldSupport Price",
        "registry": "backends",
        "client": "AsyncServiceBackend AsyncSpeechStream ServiceBackend",
        "engine.local": "LocalBackend",
        "experiments.sweeps.axes": "Axis",
        "experiments.listening.votes": "Ballot",
        "experiments.sweeps.run": "Budget",
        "experiments.runs.cache": "Cache",
        "experiments.collection": "collect",
        "experiments.comparison": "Comparison compare",
        "experiments.listening.design": "ListeningTest",
        "experiments.listening.study": "Question Study",
        "experiments.knobs": "KnobCheck",
        "experiments.sweeps.sweep": "Sweep",
        "experiments.systems": "SystemComparison compare_systems",
        "experiments.sweeps.result": "SweepResult",
        "experiments.listening.results": "analyse",
        "experiments.statistics": "effects equivalence plan_sweep plan_test",
        "experiments.metrics": "measure measure_rows",
        "experiments.runs.run": "Run load",
        "experiments.runs.backends": "RecordingBackend ReplayBackend",
        "lab": "Lab connect systems_panel",
        "schema": "Author ProsodyControl ReferenceAudio SampleEntity TTSRequest VoiceCreate VoiceModel",
        "voices.transcripts": "align_words",
        "views.listening": "listen",
        "views.notebook": "progress",
        "views.plots": "save_figure",
    }.items()
    for name in names.split()
}

# Which view shows what: the registry that values ask (see voicelab.display).
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
        "ListeningResult.report": "voicelab.experiments.listening.report:report_of",
        "Study.export": "voicelab.views.listening:export_study",
        "Sweep": "voicelab.views.sweep_tables:sweep_bundle",
        "Sweep.panel": "voicelab.views.sweep_panel:SweepPanel",
        "SweepResult": "voicelab.views.sweep_tables:result_bundle",
        "SweepResult.page": "voicelab.views.sweep_tables:write_page",
        "SweepResult.panel": "voicelab.views.sweep_panel:ResultPanel",
        "SystemComparison": "voicelab.views.bundles:systems_bundle",
        "SystemComparison.page": "voicelab.views.sweep_tables:write_systems_page",
        "Take": "voicelab.views.bundles:take_bundle",
        "VoiceModel": "voicelab.views.bundles:voice_bundle",
        "VoicelabError": "voicelab.views.bundles:error_bundle",
        "Voices": "voicelab.views.bundles:presets_bundle",
        "Words": "voicelab.views.bundles:words_bundle",
    }
)

# Third-party modules that come only with an extra, so that a bare install says what to add.
_EXTRAS = {"torch": "local", "safetensors": "local"}


if not TYPE_CHECKING:
    # Hidden from type checkers, which would take any name for one of ours.

    def __getattr__(name: str) -> object:
        """Fetch a public name from its module on first use and keep it.

        Raises AttributeError for a name that is not public, MissingExtra when its module needs a
        dependency that only an extra installs.
        """
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        try:
            value: object = getattr(import_module(_HOME.get(name, "voicelab.errors")), name)
        except ModuleNotFoundError as error:
            extra = _EXTRAS.get(error.name or "")
            if extra is None:
                raise
            from voicelab.errors import MissingExtra

            raise MissingExtra.of(extra, f"voicelab.{name}") from error
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    """List the public names."""
    return __all__


def load_ipython_extension(ipython: object) -> None:
    """Give IPython the magics ``%speak`` and ``%%speak``: what ``%load_ext voicelab`` calls."""
    from voicelab.views.notebook import register as add_magics

    add_magics(ipython)

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
from voicelab.distribution import __version__ as __version__

if TYPE_CHECKING:
    from voicelab.audio.words import Words as Words, WordTime as WordTime
    from voicelab.backend import Backend as Backend, SpeechStream as SpeechStream
    from voicelab.call import Call as Call, Knob as Knob, VoicePreset as VoicePreset
    from voicelab.capabilities import Capabilities as Capabilities, FieldSupport as FieldSupport, Price as Price
    from voicelab.client import (
        AsyncServiceBackend as AsyncServiceBackend,
        AsyncSpeechStream as AsyncSpeechStream,
        ServiceBackend as ServiceBackend,
    )
    from voicelab.clip import Clip as Clip, Take as Take, Timing as Timing
    from voicelab.engine.local import LocalBackend as LocalBackend
    from voicelab.errors import (
        ArgumentError as ArgumentError,
        AudioError as AudioError,
        AuthenticationError as AuthenticationError,
        Cancelled as Cancelled,
        EngineError as EngineError,
        FieldError as FieldError,
        LicenseRequired as LicenseRequired,
        MissingExtra as MissingExtra,
        NotFound as NotFound,
        PaymentRequired as PaymentRequired,
        RequestInvalid as RequestInvalid,
        ServiceError as ServiceError,
        ServiceTimeout as ServiceTimeout,
        ServiceUnavailable as ServiceUnavailable,
        StoreError as StoreError,
        StreamTruncated as StreamTruncated,
        VoicelabError as VoicelabError,
        WeightsError as WeightsError,
    )
    from voicelab.experiments.collection import collect as collect
    from voicelab.experiments.comparison import Comparison as Comparison, compare as compare
    from voicelab.experiments.knobs import KnobCheck as KnobCheck
    from voicelab.experiments.listening.design import ListeningTest as ListeningTest
    from voicelab.experiments.listening.results import analyse as analyse
    from voicelab.experiments.listening.study import Question as Question, Study as Study
    from voicelab.experiments.listening.votes import Ballot as Ballot
    from voicelab.experiments.metrics.measure import measure as measure, measure_rows as measure_rows
    from voicelab.experiments.runs.backends import RecordingBackend as RecordingBackend, ReplayBackend as ReplayBackend
    from voicelab.experiments.runs.cache import Cache as Cache
    from voicelab.experiments.runs.run import Run as Run, load as load
    from voicelab.experiments.statistics.effects import effects as effects
    from voicelab.experiments.statistics.equivalence import equivalence as equivalence
    from voicelab.experiments.statistics.simulation import plan_sweep as plan_sweep, plan_test as plan_test
    from voicelab.experiments.sweeps.axes import Axis as Axis
    from voicelab.experiments.sweeps.result import SweepResult as SweepResult
    from voicelab.experiments.sweeps.run import Budget as Budget
    from voicelab.experiments.sweeps.sweep import Sweep as Sweep
    from voicelab.experiments.systems import SystemComparison as SystemComparison, compare_systems as compare_systems
    from voicelab.lab import Lab as Lab, connect as connect, systems_panel as systems_panel
    from voicelab.registry import backends as backends
    from voicelab.schema import (
        Author as Author,
        ProsodyControl as ProsodyControl,
        ReferenceAudio as ReferenceAudio,
        SampleEntity as SampleEntity,
        TTSRequest as TTSRequest,
        VoiceCreate as VoiceCreate,
        VoiceModel as VoiceModel,
    )
    from voicelab.views.listening import listen as listen
    from voicelab.views.notebook import progress as progress
    from voicelab.views.plots import save_figure as save_figure
    from voicelab.voices.transcripts import align_words as align_words

# The module each name lives in. mypy reads the imports above, the interpreter this table.
_HOME = {
    name: f"voicelab.{module}"
    for module, names in {
        "clip": "Clip Take Timing WordTime Words",
        "backend": "Backend SpeechStream",
        "call": "Call Knob VoicePreset",
        "capabilities": "Capabilities FieldSupport Price",
        "distribution": "__version__",
        "registry": "backends",
        "client": "AsyncServiceBackend AsyncSpeechStream ServiceBackend",
        "engine.local": "LocalBackend",
        "errors": (
            "ArgumentError AudioError AuthenticationError Cancelled EngineError FieldError LicenseRequired MissingExtra "
            "NotFound PaymentRequired RequestInvalid ServiceError ServiceTimeout ServiceUnavailable StoreError "
            "StreamTruncated VoicelabError WeightsError"
        ),
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
__all__ = list(_HOME)
__all__.sort()

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
        if name not in _HOME:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        try:
            value: object = getattr(import_module(_HOME[name]), name)
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

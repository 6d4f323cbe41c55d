# The public names, each with the module that it lives in: type checkers read this file, and the package at run time.
from .audio.words import Words as Words, WordTime as WordTime
from .backend import Backend as Backend, SpeechStream as SpeechStream
from .call import Call as Call, Knob as Knob, VoicePreset as VoicePreset
from .capabilities import Capabilities as Capabilities, FieldSupport as FieldSupport, Price as Price
from .client import (
    AsyncServiceBackend as AsyncServiceBackend,
    AsyncSpeechStream as AsyncSpeechStream,
    ServiceBackend as ServiceBackend,
)
from .clip import Clip as Clip, Take as Take, Timing as Timing
from .distribution import __version__ as __version__
from .engine.local import LocalBackend as LocalBackend
from .errors import (
    ArgumentError as ArgumentError,
    AudioError as AudioError,
    AuthenticationError as AuthenticationError,
    Cancelled as Cancelled,
    EngineError as EngineError,
    ExecutorError as ExecutorError,
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
from .experiments.collection import collect as collect
from .experiments.comparison import Comparison as Comparison, compare as compare
from .experiments.knobs import KnobCheck as KnobCheck
from .experiments.listening.design import ListeningTest as ListeningTest
from .experiments.listening.results import analyse as analyse
from .experiments.listening.study import Question as Question, Study as Study
from .experiments.listening.votes import Ballot as Ballot
from .experiments.metrics.measure import measure as measure, measure_rows as measure_rows
from .experiments.runs.backends import RecordingBackend as RecordingBackend, ReplayBackend as ReplayBackend
from .experiments.runs.cache import Cache as Cache
from .experiments.runs.run import Run as Run, load as load
from .experiments.statistics.effects import effects as effects
from .experiments.statistics.equivalence import equivalence as equivalence
from .experiments.statistics.simulation import plan_sweep as plan_sweep, plan_test as plan_test
from .experiments.sweeps.axes import Axis as Axis
from .experiments.sweeps.result import SweepResult as SweepResult
from .experiments.sweeps.run import Budget as Budget
from .experiments.sweeps.sweep import Sweep as Sweep
from .experiments.systems import SystemComparison as SystemComparison, compare_systems as compare_systems
from .lab import Lab as Lab, connect as connect, systems_panel as systems_panel
from .registry import backends as backends
from .schema import (
    Author as Author,
    ProsodyControl as ProsodyControl,
    ReferenceAudio as ReferenceAudio,
    SampleEntity as SampleEntity,
    TTSRequest as TTSRequest,
    VoiceCreate as VoiceCreate,
    VoiceModel as VoiceModel,
)
from .views.listening import listen as listen
from .views.notebook import progress as progress
from .views.plots import save_figure as save_figure
from .voices.transcripts import align_words as align_words

__all__: list[str]

def load_ipython_extension(ipython: object) -> None: ...

# The public names, each with the module that it lives in: type checkers read this file, and the package at run time.
from .audio.words import Words as Words, WordTime as WordTime
from .backend import Backend as Backend, SpeechStream as SpeechStream
from .call import Call as Call, Knob as Knob, VoicePreset as VoicePreset
from .capabilities import Capabilities as Capabilities, FieldSupport as FieldSupport, Price as Price
from .backends.service import AsyncServiceBackend as AsyncServiceBackend, ServiceBackend as ServiceBackend
from .clip import Clip as Clip, Take as Take
from .distribution import __version__ as __version__
from .engine.local import LocalBackend as LocalBackend
from .errors import (
    ArgumentError as ArgumentError,
    AudioError as AudioError,
    AuthenticationError as AuthenticationError,
    Cancelled as Cancelled,
    EngineError as EngineError,
    EngineUnavailable as EngineUnavailable,
    ExecutorError as ExecutorError,
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
from .takes.collection import collect as collect, load as load
from .takes.comparison import Comparison as Comparison, compare as compare
from .sweeps.knobs import KnobCheck as KnobCheck
from .listening.design import ListeningTest as ListeningTest
from .listening.plan import Plan as Plan
from .listening.results import ListeningResult as ListeningResult, analyze as analyze
from .listening.study import Question as Question, Study as Study
from .listening.votes import Ballot as Ballot
from .takes.table import effects as effects
from .metrics.measure import METRICS as METRICS, measure as measure
from .metrics.metric import Metric as Metric
from .runs.cache import Cache as Cache
from .stats.effects import Effects as Effects
from .stats.equivalence import Equivalence as Equivalence, equivalence as equivalence
from .stats.simulation import PowerPlan as PowerPlan, plan_sweep as plan_sweep, plan_test as plan_test
from .sweeps.evaluation import Evaluation as Evaluation, evaluate as evaluate
from .sweeps.run import Budget as Budget
from .sweeps.sweep import Sweep as Sweep
from .sweeps.systems import compare_systems as compare_systems
from .lab import Lab as Lab, connect as connect, from_function as from_function, systems_panel as systems_panel
from .backends.registry import available_backends as available_backends
from .schema import (
    ProsodyControl as ProsodyControl,
    ReferenceAudio as ReferenceAudio,
    TTSRequest as TTSRequest,
    VoiceCreate as VoiceCreate,
    VoiceModel as VoiceModel,
)
from .session import SpeechFields as SpeechFields
from .takes.table import TakeTable as TakeTable
from .views.listening import listen as listen
from .views.notebook import progress as progress
from .views.plots import save_figure as save_figure
from .asr.alignment import align_words as align_words

__all__: list[str]

def load_ipython_extension(ipython: object) -> None: ...

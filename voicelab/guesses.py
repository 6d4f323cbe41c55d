"""Names that users of other libraries guess, mapped to the right ones, for messages about unknown names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

from voicelab.errors import suggestion

_SPEAK: Final = "vl.connect().speak(text)"
_LOAD: Final = "vl.Clip.load(path)"
_SAVE: Final = 'clip.save("speech.wav")'
_SAMPLES: Final = "clip.samples, or np.asarray(clip)"
_TEST: Final = 'vl.ListeningTest(name, "MOS", items)'
_JOIN: Final = "vl.Clip(np.concatenate([a, b]), a.rate)"
_SCALE: Final = "vl.Clip(clip.samples * 0.5, clip.rate)"
_EFFECTS: Final = 'table.effects(), or vl.effects(frame, "system", "duration")'
_PLAN: Final = "vl.plan_test(…) or vl.plan_sweep(…)"

GUESSES: Final[Mapping[str, Mapping[str, str]]] = {
    "voicelab": {
        **dict.fromkeys(("speak", "say", "tts", "TTS", "synthesize", "synthesise", "generate", "pipeline"), _SPEAK),
        **dict.fromkeys(("voices", "list_voices"), "vl.connect().voices"),
        **dict.fromkeys(("models", "list_models"), "vl.connect().capabilities.models"),
        **dict.fromkeys(("backends", "list_backends"), "vl.available_backends()"),
        **dict.fromkeys(("read", "open", "load_audio", "load_wav", "read_wav", "load_clip", "from_file"), _LOAD),
        **dict.fromkeys(("Audio", "AudioSegment", "AudioClip"), _LOAD),
        **dict.fromkeys(("save", "write", "to_wav", "write_wav"), _SAVE),
        "play": "clip.audio()",
        "stream": "vl.connect().stream(text)",
        **dict.fromkeys(
            ("Session", "Client", "session", "client", "open_backend", "get", "post"), "vl.connect(address)"
        ),
        **dict.fromkeys(("plot", "spectrogram"), "clip.plot()"),
        **dict.fromkeys(("display", "show"), "IPython.display.display(clip), or the clip as the last value of a cell"),
        **dict.fromkeys(("concat", "concatenate", "join"), _JOIN),
        **dict.fromkeys(("resample", "slice", "trim"), "clip.resample(16000) and clip.slice(start, end)"),
        **dict.fromkeys(("exceptions", "RequestException", "HTTPError"), "ServiceError"),
        **dict.fromkeys(("Timeout", "TimeoutError", "ReadTimeout"), "ServiceTimeout"),
        "ConnectionError": "ServiceUnavailable",
        "ValidationError": "RequestInvalid",
        **dict.fromkeys(("mos_test", "mushra", "ab", "abx", "ab_test", "listening_test"), _TEST),
        **dict.fromkeys(("anova", "ttest", "t_test", "ttest_ind", "test", "significance"), _EFFECTS),
        **dict.fromkeys(("power", "sample_size", "power_analysis", "plan"), _PLAN),
        **dict.fromkeys(("read_csv", "from_csv", "read_table", "load_dataset", "Dataset"), "vl.collect(path)"),
        **dict.fromkeys(("export", "to_csv", "DataFrame"), "table.export(folder), or table.df()"),
        **dict.fromkeys(("seed", "set_seed", "manual_seed"), "speak(text, seed=1)"),
        "Voice": "VoicePreset",
        "clone": "vl.connect().create_voice(title, recordings)",
        "sweep": "vl.connect().sweep(text, temperature=[0.2, 0.8])",
        "panel": "vl.connect().panel()",
        **dict.fromkeys(("transcribe", "wer", "cer"), 'vl.measure(clip, ["wer"])'),
        **dict.fromkeys(("mos", "utmos", "dnsmos"), 'vl.measure(clip, ["predicted_mos"])'),
        **dict.fromkeys(("f0", "pitch", "pyin", "loudness", "rms"), 'vl.measure(clip, ["f0_median", "loudness"])'),
        "align": "vl.align_words(clip)",
        **dict.fromkeys(("analyse", "analysis"), "vl.analyze(test, ballot)"),
        **dict.fromkeys(("metrics", "list_metrics"), "vl.METRICS"),
    },
    "Clip": {
        **dict.fromkeys(("sr", "fs", "sample_rate", "samplerate", "frame_rate", "sampling_rate"), "rate"),
        **dict.fromkeys(("y", "data", "array", "waveform", "signal", "wav", "numpy", "to_numpy", "values"), _SAMPLES),
        **dict.fromkeys(("normalize", "apply_gain", "gain"), _SCALE),
        **dict.fromkeys(("append", "concat", "concatenate", "join"), _JOIN),
        **dict.fromkeys(("from_numpy", "from_array", "from_samples"), "vl.Clip(samples, rate)"),
        **dict.fromkeys(("from_bytes", "from_buffer"), "vl.Clip.load(data)"),
        **dict.fromkeys(("metadata", "info", "meta"), "clip.take"),
        **dict.fromkeys(("play", "show"), "clip.audio(), or the clip as the last value of a cell"),
        **dict.fromkeys(("to_wav", "write", "export", "to_file", "save_wav", "write_wav"), _SAVE),
        **dict.fromkeys(("to_mp3", "encode", "content", "bytes", "tobytes"), 'clip.to_bytes("mp3")'),
        **dict.fromkeys(("from_file", "read", "open", "from_path", "from_wav"), _LOAD),
        **dict.fromkeys(("length", "seconds", "duration_s", "duration_seconds"), "duration"),
        **dict.fromkeys(("rms", "dBFS", "db", "volume"), "level"),
        **dict.fromkeys(("loudness", "f0", "pitch", "mos", "wer", "mfcc", "measure", "metrics"), "vl.measure(clip)"),
        **dict.fromkeys(("trim", "crop", "cut", "segment"), "slice"),
        "resampled": "resample",
        **dict.fromkeys(("text", "transcript"), "clip.spoken_text, or clip.words"),
        **dict.fromkeys(("alignment", "word_times", "timestamps"), "words"),
        **dict.fromkeys(
            ("spectrogram", "waveplot", "waveshow", "specshow", "plot_spectrogram", "melspectrogram"), "plot"
        ),
    },
    "Take": {"play": "take.clip().audio()", **dict.fromkeys(("bytes", "data", "content"), "audio")},
    "Words": dict.fromkeys(("df", "to_frame", "to_dataframe", "to_pandas", "frame"), "pd.DataFrame(clip.words)"),
    "WordTime": {
        **dict.fromkeys(("word", "label", "mark", "name"), "text"),
        **dict.fromkeys(("begin", "onset", "xmin", "start_time"), "start"),
        **dict.fromkeys(("stop", "offset", "xmax", "end_time"), "end"),
    },
    "TakeTable": {
        **dict.fromkeys(("to_dataframe", "to_pandas", "to_frame", "data", "dataframe", "results"), "df"),
        **dict.fromkeys(("filter", "where", "query", "get", "loc", "iloc", "sel", "isel"), "select"),
        **dict.fromkeys(("anova", "ttest", "t_test", "test", "significance"), "effects"),
        **dict.fromkeys(("measure", "score", "evaluate"), 'table.frame("duration", "wer")'),
        **dict.fromkeys(("play", "show", "display", "explore", "plot"), "panel"),
        **dict.fromkeys(("to_html", "report"), "page"),
        **dict.fromkeys(("errors", "failed"), "failures"),
        **dict.fromkeys(("mos", "ab_test", "abx", "mushra"), "listening_test"),
    },
    "Lab": {
        **dict.fromkeys(("tts", "say", "synthesize", "synthesise", "generate", "run", "predict", "infer"), "speak"),
        **dict.fromkeys(("list_voices", "get_voices", "speakers", "presets", "voice"), "voices"),
        **dict.fromkeys(("clone", "clone_voice", "add_voice"), "create_voice"),
        "models": "lab.capabilities.models",
        **dict.fromkeys(("device", "sample_rate", "languages", "knobs", "limits", "info"), "lab.capabilities"),
        **dict.fromkeys(("explore", "ui", "widget", "show"), "panel"),
        **dict.fromkeys(("grid", "grid_search"), "sweep"),
        **dict.fromkeys(("compare", "measure"), "vl.compare(a, b) and vl.measure(clips)"),
        **dict.fromkeys(("set_defaults", "configure", "options"), "with_defaults"),
    },
    "speak": {
        **dict.fromkeys(("rate", "speaking_rate", "speech_rate", "tempo", "length_scale"), "speed"),
        **dict.fromkeys(("gain", "loudness", "amplitude"), "volume"),
        **dict.fromkeys(("speaker", "speaker_id", "speaker_name", "spk", "voice_id", "voice_name", "sid"), "voice"),
        **dict.fromkeys(("speaker_wav", "ref_audio", "reference_audio", "audio_prompt", "clone"), "references"),
        **dict.fromkeys(("language", "lang", "locale"), "voice= with a voice of that language (lab.voices)"),
        **dict.fromkeys(("pitch", "f0"), "another voice= (lab.voices); no field sets the pitch"),
        **dict.fromkeys(("text_input", "input", "prompt", "sentence", "ssml"), "text"),
        **dict.fromkeys(("style", "emotion", "instructions"), 'a tag in the text, such as "[excited] Yes."'),
        **dict.fromkeys(("sr", "samplerate", "sampling_rate"), "sample_rate"),
        **dict.fromkeys(("codec", "response_format", "output_format", "audio_format", "encoding"), "format"),
        **dict.fromkeys(("max_tokens", "max_length"), "max_new_tokens"),
        "bitrate": "mp3_bitrate or opus_bitrate",
        "penalty": "repetition_penalty",
        "stream": "lab.stream(text)",
        **dict.fromkeys(("n", "repeats", "n_repeats", "num_repeats", "num_samples"), "lab.sweep(text, repeats=3)"),
        **dict.fromkeys(("param_grid", "params", "grid"), "lab.sweep(text, temperature=[0.2, 0.8])"),
        **dict.fromkeys(("url", "base_url", "endpoint", "host", "server", "address"), "vl.connect(address)"),
        **dict.fromkeys(("token", "key", "api_token", "auth"), "vl.connect(address, api_key=…)"),
        **dict.fromkeys(("timeout", "retries"), "vl.connect(vl.ServiceBackend(address, timeout=10))"),
        **dict.fromkeys(("random_state", "random_seed"), "seed"),
    },
    "metric": {
        **dict.fromkeys(("mos", "dnsmos", "naturalness"), "predicted_mos"),
        **{name: f'"predicted_mos" with tools=Tools(predictor="{name}")' for name in ("utmos", "nisqa")},
        **dict.fromkeys(("pitch", "f0"), "f0_median"),
        **dict.fromkeys(("lufs", "volume"), "loudness"),
        **dict.fromkeys(("rms", "energy"), "level"),
        **dict.fromkeys(("latency", "ttfa", "ttfb"), "first_audio_s"),
        **dict.fromkeys(("secs", "similarity"), "speaker_similarity"),
        "real_time_factor": "rtf",
        "f0_mean": "f0_geometric_mean",
        "shimmer": "shimmer_rms",
    },
}
"""Guesses by kind of name (a class, the package, a keyword of ``speak``, a metric), with the right name or code."""

# By class: module and class of another object that users expect, and the expression that returns such an object.
_DATA: Final = {
    "Clip": ("numpy", "ndarray", "clip.samples"),
    "TakeTable": ("pandas", "DataFrame", "table.df()"),
    "Words": ("pandas", "DataFrame", "pd.DataFrame(clip.words)"),
    "Take": ("voicelab.clip", "Clip", "take.clip()"),
}
# By class: the calls that create an object, and those for arithmetic.
_CREATE: Final = {"Clip": "vl.Clip(samples, rate), or vl.Clip.load(path)"}
_ARITHMETIC: Final = {"Clip": f"{_JOIN} or {_SCALE}"}
_OPERATORS: Final = ("add", "radd", "sub", "rsub", "mul", "rmul", "truediv", "neg")
_P = ParamSpec("_P")
_T = TypeVar("_T")


def hint(kind: str, name: str, choices: Iterable[str] = ()) -> str:
    """Return a suggestion for a message about an unknown name: "; did you mean rate?", "; use clip.audio()", or ""."""
    right = GUESSES.get(kind, {}).get(name)
    if right is None:
        return suggestion(name, choices)
    return f"; did you mean {right}?" if right.replace(" or ", "").isidentifier() else f"; use {right}"


class Guided(type):
    """Metaclass of classes whose AttributeErrors suggest the right attribute, on the class and on its instances."""

    if not TYPE_CHECKING:  # or type checkers would accept every name

        def __init__(cls, *args: Any) -> None:
            super().__init__(*args)
            cls.__getattr__ = _missing
            if cls.__name__ in _DATA and not issubclass(cls, tuple):
                cls.__getitem__ = _no_item
            for operator in _OPERATORS if cls.__name__ in _ARITHMETIC else ():
                setattr(cls, f"__{operator}__", _no_arithmetic)

        def __call__(cls, *args: Any, **options: Any) -> Any:
            """Create an object; if the arguments are wrong, add the right call to the TypeError."""
            try:
                return super().__call__(*args, **options)
            except TypeError as error:
                if cls.__name__ not in _CREATE or "__init__()" not in str(error):
                    raise
                raise TypeError(f"{error}; use {_CREATE[cls.__name__]}") from None

        def __getattr__(cls, name: str) -> Any:
            raise AttributeError(f"type object {cls.__name__!r} has no attribute {name!r}{_hint(cls, name)}")


def _missing(value: object, name: str) -> Any:
    kind = type(value)
    raise AttributeError(
        f"{kind.__name__!r} object has no attribute {name!r}{_library_hint(kind, name) or _hint(kind, name)}"
    )


def _no_item(value: object, index: object) -> Any:
    expression = _DATA[_kind(type(value))][2]
    raise TypeError(f"{type(value).__name__!r} object has no items, got [{index!r}]; use {expression}[…]")


def _no_arithmetic(value: object, *_: object) -> Any:
    kind = type(value).__name__
    raise TypeError(f"{kind!r} object supports no arithmetic; use {_ARITHMETIC[kind]}")


def answers(**right: str) -> Callable[[Callable[_P, _T]], Callable[_P, _T]]:
    """Decorate a function so that a wrong keyword that users guess raises TypeError with the right code.

    ``right`` maps each wrong keyword to the right code.
    """

    def decorate(function: Callable[_P, _T]) -> Callable[_P, _T]:
        @wraps(function)
        def run(*args: _P.args, **options: _P.kwargs) -> _T:
            for name in right.keys() & options.keys():
                raise TypeError(f"{function.__name__}() has no argument {name!r}; use {right[name]}")
            return function(*args, **options)

        return run

    return decorate


def _kind(owner: type) -> str:
    return next((base.__name__ for base in owner.__mro__ if base.__name__ in GUESSES), "")


def _library_hint(owner: type, name: str) -> str:
    """Return the hint for an attribute of another library's class.

    This imports the library, so it is called only for attributes of instances, not of classes.
    """
    kind = _kind(owner)
    if name.startswith("_") or kind not in _DATA or name in GUESSES[kind]:
        return ""
    module, library_class, expression = _DATA[kind]
    expected = getattr(import_module(module), library_class)
    return f"; use {expression}.{name}" if name in {*dir(expected), *getattr(expected, "__annotations__", ())} else ""


def _hint(owner: type, name: str) -> str:
    # Names with underscores get no hints, since other libraries probe for them.
    if name.startswith("_"):
        return ""
    return hint(_kind(owner), name, (choice for choice in dir(owner) if not choice.startswith("_")))

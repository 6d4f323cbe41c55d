"""Where each sentence is implemented, as paths in voicelab/: the longest beginning of its name decides."""

from __future__ import annotations

_BEGINNINGS: dict[tuple[str, ...], str] = {
    ("backend.py", "engine/local.py"): "1-1",
    ("service/speech.py", "service/concurrency.py", "audio/encoders.py"): "1-2",
    ("audio/formats.py",): "1-3 2.2/audio= 4.1-7",
    ("engine/local.py", "voices/store.py"): "1-4 2.1/reference_id:own",
    ("service/requests.py", "engine/pointer/speakers.py"): "1-5",
    ("service/app.py", "voices/intake.py"): "1-6 D-15",
    ("engine/local.py",): "1-7 2.1/reference_id:shared 3-2",
    ("service/app.py", "voices/store.py"): "1-8",
    ("service/app.py", "backends/caller.py"): "1-9",
    ("schema.py",): "2.1 2.1/normalize:type 2.1/normalize:required 2.1/normalize:default 2.2 2.3 8 D-14 D-3 D-5 D-6",
    ("engine/speech.py",): "2.1/text:meaning 2.1/latency:meaning 2.1/condition_on_previous_chunks:meaning",
    ("engine/pointer/step.py",): "2.1/temperature:meaning 2.1/top_p:meaning 2.1/repetition_penalty:meaning",
    ("engine/pointer/speakers.py",): "2.1/references:meaning 2.2/audio:meaning",
    ("schema.py", "service/requests.py", "backends/wire.py"): "2.1/references:msgpack",
    ("schema.py", "engine/local.py"): "2.1/references:ignored",
    ("audio/prosody.py",): "2.1/prosody:meaning 2.3/speed:meaning 2.3/volume:louder 2.3/volume:quieter",
    ("text/segments.py",): "2.1/chunk_length:meaning 2.1/min_chunk_length:meaning",
    ("text/__init__.py",): "2.1/normalize:",
    ("audio/encoders.py",): "2.1/mp3_bitrate:applies 2.1/opus_bitrate:a",
    ("engine/core/sequence.py",): "2.1/max_new_tokens:meaning",
    ("engine/core/scheduler.py",): "2.1/early_stop_threshold:meaning",
    ("service/requests.py", "backend.py"): "2.2/text:meaning",
    ("schema.py", "voices/store.py"): "2.4 3-1 D-17",
    ("voices/store.py", "service/app.py"): "2.4-",
    ("service/speech.py",): "4.1-1 4.1-6 7.1/402:meaning",
    ("service/requests.py", "backends/wire.py"): "4.1-2 4.1-3 4.1-4",
    ("schema.py", "backends/wire.py"): "4.1-5",
    ("audio/encoders.py", "schema.py"): "4.1/",
    ("schema.py", "service/app.py", "backends/wire.py"): "4.1/model",
    ("schema.py", "service/requests.py"): "4.2",
    ("service/app.py",): "4.2- D-10 D-11 D-4",
    ("service/requests.py",): "4.2-2 4.3-3 7.1/401:meaning D-12 D-13 D-9",
    ("service/requests.py", "voices/intake.py"): "4.2/voices: D-18",
    ("asr/recognizers.py",): "4.2/texts:recognised",
    ("audio/denoise.py",): "4.2/enhance_audio_quality:meaning",
    ("service/app.py", "backends/wire.py"): "4.3-",
    ("service/requests.py", "service/keys.py", "backends/caller.py"): "5-",
    ("service/responses.py", "backends/wire.py"): "7.1",
    ("schema.py", "errors.py"): "7.1/422:meaning",
    ("service/openapi.py", "backends/wire.py"): "9",
    ("schema.py", "service/app.py"): "9-4",
    ("schema.py", "service/speech.py"): "D-1",
    ("voices/store.py",): "D-16",
    ("service/concurrency.py",): "D-19",
    ("audio/encoders.py", "audio/formats.py"): "D-2",
    ("service/app.py", "backend.py"): "D-20",
    ("voices/store.py", "engine/local.py"): "D-7",
    ("schema.py", "backend.py"): "D-8",
}
WHERE: dict[str, tuple[str, ...]] = {start: names for names, starts in _BEGINNINGS.items() for start in starts.split()}


def home(rule: str) -> tuple[str, ...]:
    """Return the modules of a sentence."""
    return WHERE[max((start for start in WHERE if rule.startswith(start)), key=len)]

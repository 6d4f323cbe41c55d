"""Speech as 16 bits at 16 kHz: measured, and made into files, without voicelab."""

from __future__ import annotations

import io
from typing import Any

import av
import numpy as np

RATE = 16000


def samples(pcm: bytes) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.frombuffer(pcm, "<i2") / 32768


def seconds(pcm: bytes) -> float:
    return len(pcm) / 2 / RATE


def level(pcm: bytes) -> float:
    """RMS in dB."""
    return float(10 * np.log10(np.mean(samples(pcm) ** 2)))


def pitch(pcm: bytes) -> float:
    """Median fundamental frequency in Hz, by autocorrelation of the frames that repeat."""
    sound, found = samples(pcm), []
    for at in range(0, len(sound) - 640, 320):
        frame = sound[at : at + 640] - sound[at : at + 640].mean()
        spectrum = np.abs(np.fft.rfft(frame, 2048)) ** 2
        correlation = np.fft.irfft(spectrum)[:400]
        if correlation[0] > 640 * 1e-4:
            lag = 40 + int(correlation[40:280].argmax())
            if correlation[lag] > 0.5 * correlation[0]:
                found.append(RATE / lag)
    assert len(found) > 10
    return float(np.median(found))


# Container and codec of FFmpeg, and the rate that it takes.
_FFMPEG = {
    "WAV": ("wav", "pcm_s16le", None),
    "MP3": ("mp3", "libmp3lame", None),
    "FLAC": ("flac", "flac", None),
    "OPUS": ("ogg", "libopus", 48000),
}


def file(pcm: bytes, kind: str, rate: int = RATE) -> bytes:
    """The same sound as a file, by FFmpeg."""
    container, codec, to_rate = _FFMPEG[kind]
    to_rate = to_rate or rate
    out = io.BytesIO()
    writer: Any
    with av.open(out, "w", format=container) as writer:
        stream = writer.add_stream(codec, rate=to_rate, layout="mono")
        frame = av.AudioFrame.from_ndarray(np.frombuffer(pcm, "<i2")[None, :], format="s16", layout="mono")
        frame.sample_rate = rate
        size = 960 if kind == "OPUS" else 1152
        resampler = av.AudioResampler(stream.codec_context.format, "mono", to_rate, frame_size=size)
        for piece in (*resampler.resample(frame), *resampler.resample(None)):
            writer.mux(stream.encode(piece))
        writer.mux(stream.encode(None))
    return out.getvalue()

"""The audio formats of the interface: wav, pcm, mp3 and opus, as streams and as whole files.

``StreamEncoder`` and ``StreamDecoder`` work while the audio is still being made or received;
``encode`` and ``decode`` do the same with what is there as a whole, and give the same result.
"""

from __future__ import annotations

from voicelab.audio.decoders import StreamDecoder
from voicelab.audio.encoders import StreamEncoder, wav_header
from voicelab.audio.files import MAX_BYTES, MAX_SECONDS, decode, read, sniff
from voicelab.audio.mp3 import with_exact_info
from voicelab.audio.samples import Samples, as_samples, resample, to_int16
from voicelab.schema import AudioFormat

__all__ = ["MAX_BYTES", "MAX_SECONDS", "StreamDecoder", "StreamEncoder", "decode", "encode", "read", "sniff"]


def encode(
    samples: Samples,
    format: AudioFormat,
    source_rate: int,
    sample_rate: int | None = None,
    mp3_bitrate: int = 128,
    opus_bitrate: int = -1000,
) -> bytes:
    """Encode samples of shape (n,) as a whole file; the arguments are those of StreamEncoder.

    The audio is that of a StreamEncoder; the headers of wav and mp3 tell the exact length besides, so that
    every format but for mp3 in players that ignore its header comes back as long as it was. Raises AudioError.
    """
    encoder = StreamEncoder(format, source_rate, sample_rate, mp3_bitrate, opus_bitrate)
    if format == "wav":
        data = to_int16(resample(as_samples(samples), source_rate, encoder.rate)).tobytes()
        return wav_header(encoder.rate, len(data)) + data
    data = encoder.feed(samples) + encoder.finish()
    return with_exact_info(data, encoder.samples) if format == "mp3" and data else data

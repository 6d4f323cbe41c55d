"""Words correct of transcriptions."""

from __future__ import annotations

from functools import lru_cache

from voicelab.asr.normalization import language_of, normalized_words
from voicelab.errors import MissingExtra


@lru_cache(maxsize=4096)
def words_correct(text: str, answer: str) -> float:
    """Return the percentage of the words of a text that a transcription has; NaN for a text without words.

    Both are normalized as for WER (``voicelab.asr.normalization.normalized_words``) and aligned by jiwer. Inserted words do
    not count. Raises MissingExtra without the extra ``metrics``.
    """
    reference, transcript = (
        " ".join(normalized_words(string, language=language_of(text))) for string in (text, answer)
    )
    with MissingExtra.where("metrics", "counting words"):
        import jiwer
    if not reference:
        return float("nan")
    return 100.0 * float(jiwer.process_words(reference, transcript).hits) / len(reference.split())

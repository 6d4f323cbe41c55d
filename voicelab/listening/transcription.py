"""Percentage of correct words in transcriptions."""

from __future__ import annotations

from functools import lru_cache

from voicelab.asr.normalization import language_of, normalized_words
from voicelab.errors import MissingExtra


@lru_cache(maxsize=4096)
def words_correct(text: str, answer: str) -> float:
    """Return the percentage of a text's words that are correct in a transcription; NaN for a text without words.

    The text and the transcription are normalized as for WER (``voicelab.asr.normalization.normalized_words``) and
    aligned by jiwer. Inserted words are ignored. Raises MissingExtra if the extra ``metrics`` is not installed.
    """
    reference, transcript = (
        " ".join(normalized_words(string, language=language_of(text))) for string in (text, answer)
    )
    with MissingExtra.where("metrics", "counting words"):
        import jiwer
    if not reference:
        return float("nan")
    return 100.0 * float(jiwer.process_words(reference, transcript).hits) / len(reference.split())

"""Batching of sequences and threads for any model family, independent of text, phones and architectures."""

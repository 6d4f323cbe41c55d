"""Rows, sequences and threads of any model family, independent of text, phones and architectures."""

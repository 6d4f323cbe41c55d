"""Rows, sequences and threads of any family of models: nothing here knows text, phones or architectures."""

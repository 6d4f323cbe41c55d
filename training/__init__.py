"""Training of the embedded voice: ``python -m training`` (see README.md)."""

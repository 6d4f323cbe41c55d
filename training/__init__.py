"""How the embedded voice is made, from nothing: ``python -m training`` (see README.md here)."""

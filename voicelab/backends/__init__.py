"""Backends other than the local engine: HTTP services, onnxruntime voices, recordings, caches; opened by name."""

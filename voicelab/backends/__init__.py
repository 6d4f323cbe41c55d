"""Backends other than the local engine (services, ONNX voices, functions, commands, recordings), and their registry."""

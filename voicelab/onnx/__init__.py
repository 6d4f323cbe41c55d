"""Voices of others that onnxruntime runs on this machine: Kokoro, and Piper's and other VITS; onnxruntime only here."""

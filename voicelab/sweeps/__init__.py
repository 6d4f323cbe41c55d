"""Sweeps: a grid of requests over any field, estimated, run anywhere, and gone on with."""

"""Experiments: everything from a grid of requests to a published figure, without widgets."""

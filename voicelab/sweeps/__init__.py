"""Sweeps: grids of requests over any field, with cost estimates, executors and resumable runs."""

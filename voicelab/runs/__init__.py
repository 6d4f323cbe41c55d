"""Runs: what is kept of speech, in folders of one form: a cache by key, a recording in order, a sweep by its plan."""

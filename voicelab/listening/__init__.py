"""Listening tests: design, sessions, responses, analysis and report."""

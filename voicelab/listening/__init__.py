"""Listening tests: designs, sounds, votes and what they say."""

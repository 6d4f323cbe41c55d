"""Mandarin: from written text to words, and from characters to syllables and phones."""

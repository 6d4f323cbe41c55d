"""Comparisons: clips of one text side by side, at one loudness, and at the same word."""

"""Speech recognition, text normalization for word error rates, and forced alignment."""

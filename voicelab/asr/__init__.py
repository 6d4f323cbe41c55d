"""Speech recognition, transcripts and forced alignment."""

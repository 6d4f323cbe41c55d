"""Sound as values: clips, streaming formats, prosody and analysis. No torch, no network."""

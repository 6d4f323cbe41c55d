"""Audio processing: streaming formats, prosody and analysis. Uses neither torch nor the network."""

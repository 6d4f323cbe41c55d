"""Open weights: the dual-autoregressive family of S2-Pro and S1-mini, loaded from a folder that the user provides."""

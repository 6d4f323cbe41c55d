"""The embedded family: a small dual-autoregressive language model with a monotonic text pointer, and its codec."""

"""Run folders, the storage format of caches, recordings and sweeps."""

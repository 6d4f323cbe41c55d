"""Takes side by side and replayed."""

"""Tables of takes: collected, loaded, measured, compared, exported and replayed."""

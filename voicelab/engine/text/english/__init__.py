"""English: from written text to words, and from words to phones."""

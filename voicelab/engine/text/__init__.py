"""The text front end: from what the user wrote to what the voice says."""

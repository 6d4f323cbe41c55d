"""The text front end of every family: from what the user wrote to the words that are said."""

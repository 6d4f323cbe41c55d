"""The local speech engine: text front end, language model, codec, scheduler. Only this package imports torch."""

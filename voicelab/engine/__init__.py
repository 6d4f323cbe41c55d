"""The local speech engine: text front end, language models, codecs, scheduler. Only this package imports torch."""

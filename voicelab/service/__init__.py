"""The interface served over HTTP: any backend behind ``POST /v1/tts``, with keys and credit.

``app.create_app`` makes the ASGI application, ``run.serve`` runs it in the foreground and
``run.running`` inside another program; ``keys.KeyStore`` holds who may call.
"""

from __future__ import annotations

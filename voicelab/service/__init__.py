"""HTTP service of the interface: serves a backend at ``POST /v1/tts``, with API keys and credit.

``app.create_app`` creates the ASGI application, ``run.serve`` runs it in the foreground, ``run.running`` in a thread;
``keys.KeyStore`` stores the API keys.
"""

from __future__ import annotations

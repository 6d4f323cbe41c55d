"""What this package is called and which version it is: at the bottom, so that nobody needs the facade for it."""

from __future__ import annotations

from typing import Final

NAME: Final = "jupyter-voicelab"
"""The name that pip knows; ``voicelab`` on PyPI is another project (acoustic analysis)."""

__version__ = "0.1.0.dev0"

"""What a notebook shows: a clip's player and picture, plots for papers, and the speech panel."""

from __future__ import annotations

"""Notebook views: rich outputs, plots, players and panels."""

from __future__ import annotations

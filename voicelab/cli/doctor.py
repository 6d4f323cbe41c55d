"""``voicelab doctor``: what is installed here, what stands in the way, and how to mend it."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from voicelab.cli.console import say_line
from voicelab.cli.symptoms import CHECKS, Symptom

__all__ = ["doctor"]


def doctor(
    *, as_json: Annotated[bool, typer.Option("--json", help="Print the report as one JSON object.")] = False
) -> None:
    """Report versions, device, weights, Jupyter, service and settings. Exit status 1 when something is wrong.

    Under what is wrong stands what to do about it.
    """
    report = [symptom for check in CHECKS for symptom in check()]
    if as_json:
        say_line(json.dumps({item.name: _as_json(item) for item in report}))
    else:
        for item in report:
            _tell(item)
        wrong = [item.name for item in report if item.trouble]
        say_line(f"in trouble: {', '.join(wrong)}" if wrong else "all is well")
    if any(item.trouble for item in report):
        raise typer.Exit(1)


def _tell(item: Symptom) -> None:
    remark = f"TROUBLE: {item.trouble}" if item.trouble else item.note
    say_line(f"{item.name:<22}{item.value}" + (f"  ({remark})" if remark else ""))
    if item.mend:
        say_line(f"{'':<22}to mend it: {item.mend}")


def _as_json(item: Symptom) -> dict[str, str]:
    parts = {"value": item.value, "note": item.note, "trouble": item.trouble, "mend": item.mend}
    return {name: text for name, text in parts.items() if text or name == "value"}

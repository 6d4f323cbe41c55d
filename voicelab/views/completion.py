"""Values that IPython's completer offers inside a string: ``lab.speak("x", voice="ma⇥``, ``vl.measure(clip, "f0⇥``.

Keywords complete by the signatures of ``Lab``; what a string can hold no signature says.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, get_args

from voicelab.schema import Model, TTSRequest
from voicelab.session import Session

# A string that was begun and not ended: the value of a keyword, alone or in a list; a voice; or anywhere in a call.
_KEYWORD: Final = re.compile(r"""(\w+)\s*=\s*[\[(]?\s*(?:(?:"[^"]*"|'[^']*')\s*,\s*)*["']([^"']*)$""")
_KEY: Final = re.compile(r"""\.voices(?:\[["']|\.)([^"']*)$""")
_MEASURING: Final = re.compile(r"""\b(?:measure|measure_rows|effects|frame)\(.*["']([^"']*)$""", re.DOTALL)


def complete_value(text: str, namespace: Mapping[str, Any]) -> list[str]:
    """Return what the string that ``text`` ends in can be; [] where that is not known."""
    choices: Iterable[str] = ()
    if (match := _KEYWORD.search(text)) is not None:
        choices = _values(match[1], text, namespace)
    elif (match := _KEY.search(text)) is not None:
        choices = _voices(text, namespace)
    elif (match := _MEASURING.search(text)) is not None:
        choices = _metrics()
    return [choice for choice in choices if match and choice.startswith(match.groups()[-1])]


def _values(keyword: str, text: str, namespace: Mapping[str, Any]) -> Iterable[str]:
    if keyword in {"voice", "reference_id"}:
        return _voices(text, namespace)
    if keyword in {"metrics", "metric"}:
        return _metrics()
    if keyword == "model":
        return get_args(Model)
    schema = TTSRequest.model_json_schema()["properties"].get(keyword, {})
    return map(str, schema.get("enum", ()))


def _metrics() -> Iterable[str]:
    from voicelab.experiments.metrics.measure import METRICS  # by then somebody measures

    return METRICS


def _voices(text: str, namespace: Mapping[str, Any]) -> list[str]:
    """Return the voices of the lab that is named last in ``text``, or else of all labs that there are."""
    labs = {name: value for name, value in namespace.items() if isinstance(value, Session)}
    named = [labs[name] for name in re.findall(r"\w+", text) if name in labs]
    return list(dict.fromkeys(voice.id for lab in named[-1:] or labs.values() for voice in lab.voices))


def install(shell: Any) -> None:
    """Let the completer of an IPython ``shell`` offer voices, metrics and what a field can be; once."""
    from IPython.core.completer import SimpleCompletion, context_matcher

    matchers = shell.Completer.custom_matchers
    if any(getattr(matcher, "matcher_identifier", "") == "voicelab" for matcher in matchers):
        return

    @context_matcher(identifier="voicelab")  # type: ignore[untyped-decorator]  # IPython's
    def matcher(context: Any) -> Any:
        values = complete_value(context.text_until_cursor, shell.user_ns)
        # A completion stands in the place of IPython's token, which may begin before the string.
        typed = re.split(r"[\"']|\.voices\.", context.text_until_cursor)[-1]
        before = context.token.removesuffix(typed)
        offers = [SimpleCompletion(before + value, type="string") for value in values]
        return {"completions": offers, "suppress": bool(values), "ordered": True}

    matchers.append(matcher)

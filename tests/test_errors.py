from __future__ import annotations

import inspect
import pickle
import re

import pytest

from voicelab import errors


def _classes() -> dict[str, type[Exception]]:
    return {
        name: value
        for name, value in vars(errors).items()
        if inspect.isclass(value) and issubclass(value, Exception) and value.__module__ == errors.__name__
    }


def test_docstring_has_the_class_tree() -> None:
    tree = re.findall(r"^    [│ ]*(?:[├└]── )?(\w+)(?: \((\w+)\))?", errors.__doc__ or "", flags=re.MULTILINE)
    assert {name for name, _ in tree} == set(_classes())
    for name, builtin in tree:
        builtins = [base.__name__ for base in _classes()[name].__bases__ if base.__module__ == "builtins"]
        assert builtins == ([builtin] if builtin else ["Exception"] if name == "VoicelabError" else [])


@pytest.mark.parametrize(
    ("typed", "near"),
    [
        ("temp", "temperature"),
        ("temprature", "temperature"),
        ("speed", ""),
        ("zzz", ""),
        ("sped", "speed"),
        ("Speed", "speed"),
    ],
)
def test_suggestion(typed: str, near: str) -> None:
    hint = errors.suggestion(typed, ["temperature", "top_p", "speed"])
    assert hint == (f"; did you mean {near}?" if near else "")


@pytest.mark.parametrize(
    ("error", "builtin"),
    [
        (errors.RequestInvalid.of("text", "is empty"), ValueError),
        (errors.ArgumentError.of("p_values", "there are none"), ValueError),
        (errors.NotFound("no such voice", status=404), LookupError),
        (errors.ServiceTimeout("no answer in 3 s"), TimeoutError),
        (errors.AudioError("truncated"), ValueError),
        (errors.WeightsError("digest differs"), RuntimeError),
        (errors.MissingExtra.of("local", "the embedded voice"), ImportError),
    ],
)
def test_builtin_base_classes(error: Exception, builtin: type[Exception]) -> None:
    assert isinstance(error, builtin)
    assert isinstance(error, errors.VoicelabError)


def test_request_invalid_names_every_field() -> None:
    error = errors.RequestInvalid(
        (
            errors.FieldError(("body", "prosody", "speed"), "less_than_equal", "must be 2.0 or less"),
            errors.FieldError(("header", "model"), "enum", "must be s1 or s2-pro", in_="header"),
        )
    )
    assert str(error) == "prosody.speed: must be 2.0 or less; model: must be s1 or s2-pro"
    assert (error.status, error.body, error.request_id) == (None, None, None), "it never left, so there is no answer"


def test_argument_error() -> None:
    error = errors.ArgumentError.of("p_values", "there are none")
    assert (str(error), error.argument) == ("p_values: there are none", "p_values")
    assert not isinstance(error, errors.RequestInvalid)


def test_a_field_error_on_the_wire() -> None:
    (error,) = errors.RequestInvalid.of("prosody.speed", "too fast", type="less_than_equal").errors
    assert error.to_wire() == {
        "loc": ["body", "prosody", "speed"],
        "type": "less_than_equal",
        "msg": "too fast",
        "in": "body",
    }
    assert errors.FieldError(("path", "id"), "t", "m", ctx="more", in_=None).to_wire() == {
        "loc": ["path", "id"],
        "type": "t",
        "msg": "m",
        "ctx": "more",
    }


@pytest.mark.parametrize(
    "error",
    [
        errors.RequestInvalid.of("text", "is empty"),
        errors.RequestInvalid((errors.FieldError(("body",), "t", "m"),), status=422, body=b"[]", request_id="r1"),
        errors.ArgumentError.of("p_values", "there are none"),
        errors.StreamTruncated("cut", partial=b"RIFF", status=200, request_id="r1"),
        errors.ServiceTimeout("late", status=None),
        errors.MissingExtra.of("local", "the voice"),
    ],
)
def test_errors_can_be_pickled(error: Exception) -> None:
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301 -- our own bytes
    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert vars(copy) == vars(error)

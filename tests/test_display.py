from __future__ import annotations

import importlib

import pytest

from voicelab.display import Shown, _views, register, view


@pytest.mark.parametrize("name", sorted(_views))
def test_registered_views_are_importable(name: str) -> None:
    shown, _, method = name.partition(".")
    assert callable(view(name))
    homes = ("voicelab", "voicelab.call", "voicelab.stats", "voicelab.listening.results")
    value = next(getattr(home, shown) for home in map(importlib.import_module, homes) if hasattr(home, shown))
    assert hasattr(value, method) if method else issubclass(value, Shown)


def test_view_is_that_of_the_class_or_nearest_base(monkeypatch: pytest.MonkeyPatch) -> None:
    class Base(Shown):
        def __repr__(self) -> str:
            return f"a {type(self).__name__}"

    class Derived(Base):
        pass

    monkeypatch.setattr(importlib.import_module("voicelab.display"), "_views", {})
    register({"Base": "builtins:repr"})
    outputs: object = Derived()._repr_mimebundle_()
    assert outputs == "a Derived"
    register({"Derived": "builtins:str"})
    register({"Base": "nowhere:none"})
    repeated: object = Derived()._repr_mimebundle_()
    assert repeated == "a Derived"

"""What every test gets: no network beyond loopback, a data folder of its own, no key from outside.

`make test` shares the files of tests out over processes (pytest-xdist); fixtures of a session exist once in each.

In CI (the variable CI is set) a test that is skipped fails, unless what it lacks is a GPU, R, or numbers that are not ours
to publish.
"""

from __future__ import annotations

import importlib.util
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

_HERMETIC = Path(__file__).parent / "hermetic"


def _install_guard() -> None:
    spec = importlib.util.spec_from_file_location("voicelab_hermetic", _HERMETIC / "sitecustomize.py")
    assert spec is not None
    assert spec.loader is not None
    spec.loader.exec_module(importlib.util.module_from_spec(spec))


_install_guard()

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts background jobs so; programs that tests start and interrupt would inherit it.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turn a skipped test into a failed one where nobody would notice that it was skipped."""
    report = yield
    # The value that an expected failure leaves behind; those are no skips.
    if report.skipped and os.environ.get("CI") and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        if not any(
            lacking in reason
            for lacking in ("CUDA", "golden numbers", "R is not installed", "weights of faster-whisper")
        ):
            report.outcome = "failed"
            report.longrepr = f"{item.nodeid} was skipped, and in CI nothing is: {reason}"
    return report


@pytest.fixture(scope="session", autouse=True)
def _clean_environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name in ("VOICELAB_API_KEY", "VOICELAB_BASE_URL"):
            patch.delenv(name, raising=False)
        # No test fetches weights: Whisper is used where a test names it.
        patch.setenv("VOICELAB_RECOGNIZER", "pocketsphinx")
        patch.setenv("VOICELAB_HOME", str(tmp_path_factory.mktemp("voicelab-home")))
        # Programs that tests start are guarded too.
        inherited = os.environ.get("PYTHONPATH")
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (str(_HERMETIC), inherited))))
        yield

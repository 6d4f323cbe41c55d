from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
TESTS = """
import os
import pytest

def test_lacks_a_browser():
    pytest.skip("no Chromium")

@pytest.mark.skipif(True, reason="CUDA is not there")
def test_lacks_a_gpu():
    pass

def test_environment():
    assert "VOICELAB_API_KEY" not in os.environ
    assert "voicelab-home" in os.environ["VOICELAB_HOME"]
"""


@pytest.mark.parametrize(("ci", "outcome"), [("1", "1 failed, 1 passed, 1 skipped"), ("", "1 passed, 2 skipped")])
def test_in_ci_nothing_is_skipped_but_what_lacks_a_gpu(tmp_path: Path, ci: str, outcome: str) -> None:
    shutil.copytree(HERE / "hermetic", tmp_path / "hermetic")
    shutil.copy(HERE / "conftest.py", tmp_path)
    (tmp_path / "test_it.py").write_text(TESTS)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)],
        cwd=tmp_path,
        # Without the plugins of the environment, which take longer to load than all of this.
        env={**os.environ, "CI": ci, "VOICELAB_API_KEY": "from outside", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert outcome in done.stdout
    assert ("no Chromium" in done.stdout) or not ci

"""The test that docs/how-to.md shows, as it stands there, by pytest."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from loadtrim.testing import Cluster
from pages import blocks as pages

pytestmark = pytest.mark.kafka

SECTION = "Test your service"


def test_the_test_of_the_page_passes(tmp_path: Path, kafka: Cluster) -> None:
    """The page named the fixture, and not what a test does with it."""
    [plugin] = [each.text for each in pages.blocks() if each.section == SECTION and "pytest_plugins" in each.text]
    (tmp_path / "conftest.py").write_text(plugin)
    (tmp_path / "test_page.py").write_text(pages.program("docs/how-to.md", SECTION))
    env = {**os.environ, "KAFKA_BOOTSTRAP": kafka.bootstrap, "PYTHONPATH": os.pathsep.join(sys.path)}
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(tmp_path)]
    ended = subprocess.run(words, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stdout
    assert "1 passed" in ended.stdout

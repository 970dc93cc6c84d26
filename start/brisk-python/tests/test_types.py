"""The hints say what the module has."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize("checker", [["mypy", "--strict", "--package", "brisk"], ["mypy.stubtest", "brisk._brisk"]], ids=["mypy", "stubtest"])
def test_types_are_right(checker, tmp_path):
    ended = subprocess.run([sys.executable, "-m", *checker], capture_output=True, cwd=tmp_path, text=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr

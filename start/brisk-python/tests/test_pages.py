"""The examples of the pages run."""

import pathlib
import re

import pytest
from conftest import pack

HERE = pathlib.Path(__file__).resolve()


@pytest.mark.parametrize("page", [HERE.parents[1] / "README.md", HERE.parents[3] / "docs/python.md"], ids=lambda page: page.name)
def test_the_examples_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tree/train").mkdir(parents=True)
    (tmp_path / "tree/tables").mkdir()
    for number in range(3):
        (tmp_path / f"tree/train/{number}.txt").write_text(f"number {number}, and more\n")
    (tmp_path / "tree/tables/a.csv").write_text("a,b\n1,2\n")
    pack(tmp_path / "tree", tmp_path / "data.img", "-no-fragments")
    names = {}
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    assert blocks
    for block in blocks:
        exec(block, names)
    if "Files" in names:
        files = names["Files"]("data.img")
        assert (len(files), files[0], files[3]) == (4, b"a,b\n1,2\n", b"number 2, and more\n")
        assert files.__getitems__([3, 0]) == [files[3], files[0]]
        assert names["buffer"] == b"er 0, and more\n\0"

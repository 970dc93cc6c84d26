"""Images as file systems of fsspec, and what reads data sets through them."""

import os
import pickle

import brisk
import fsspec
import numpy
import pandas
import pyarrow.dataset
import pyarrow.fs
import pyarrow.parquet
import pytest
import zarr
from brisk.fs import SquashFileSystem
from conftest import pack
from fsspec.implementations.local import LocalFileSystem
from fsspec.tests.abstract import AbstractFixtures, AbstractGetTests


@pytest.fixture
def fs(packed):
    return fsspec.filesystem("squashfs", fo=str(packed))


class TestGetting(AbstractFixtures, AbstractGetTests):
    """fsspec's own tests of a file system that files are copied from. Those that write are left out."""

    test_get_directory_recursive = None
    scenarios = (
        "bulk_operations_scenario_0",
        "glob_edge_cases_files",
        "dir_and_file_with_same_name_prefix",
        "10_files_with_hashed_names",
    )

    @pytest.fixture
    def fs(self, request, tmp_path):
        [scenario] = [name for name in self.scenarios if f"fs_{name}" in request.fixturenames]
        getattr(self, f"_{scenario}")(LocalFileSystem(auto_mkdir=True), os.path.join, str(tmp_path / "tree"))
        return SquashFileSystem(pack(tmp_path / "tree", tmp_path / "tree.img"))

    @pytest.fixture
    def fs_path(self):
        return ""

    @pytest.fixture
    def fs_bulk_operations_scenario_0(self):
        return "source"

    fs_glob_edge_cases_files = fs_dir_and_file_with_same_name_prefix = fs_bulk_operations_scenario_0
    fs_10_files_with_hashed_names = fs_bulk_operations_scenario_0


def test_it_is_found_by_its_name(packed, tree):
    true = (tree / "small/0/000.bin").read_bytes()
    for chain in (f"squashfs::{packed}", f"squashfs::file://{packed}", f"squashfs::local://{packed}"):
        with fsspec.open(chain.replace("squashfs", "squashfs://small/0/000.bin", 1)) as file:
            assert file.read() == true
    fs, path = fsspec.url_to_fs(f"squashfs://small::file://{packed}")
    assert isinstance(fs, SquashFileSystem) and len(fs.ls(path)) == 4
    memory = fsspec.filesystem("memory")
    memory.pipe("/data.img", packed.read_bytes())
    with fsspec.open("squashfs://small/0/000.bin::memory://data.img") as file:
        assert file.read() == true


def test_names_and_facts_are_those_of_the_tree(fs, tree):
    local = LocalFileSystem()
    names = [path.relative_to(tree).as_posix() for path in tree.glob("small/**/*") if path.is_file()]
    assert fs.find("small") == sorted(names)
    assert fs.glob("small/*/00[01].bin") == [f"small/{i}/00{j}.bin" for i in range(4) for j in range(2)]
    for path in ("small", "lines.txt", "link", "pipe"):
        told, seen = fs.info(path), local.info(str(tree / path))
        same = ("type", "islink", "mode", "uid", "gid")
        assert {key: told[key] for key in same} == {key: seen[key] for key in same}, path
        assert told in fs.ls("") and told["name"] == path
    assert [fs.info(path)["type"] for path in ("above", "nowhere", "circle")] == ["directory", "link", "link"]
    assert fs.info("link")["size"] == fs.size("small/0/000.bin")
    assert fs.ls("/", detail=False) == [info["name"] for info in fs.ls("squashfs://")]
    assert fs.ls("lines.txt", detail=False) == ["lines.txt"]
    assert (fs.exists("absent"), fs.isdir("small"), fs.isfile("link")) == (False, True, True)
    assert fs.modified("lines.txt").timestamp() == int((tree / "lines.txt").stat().st_mtime)
    with pytest.raises(FileNotFoundError):
        fs.info("absent")
    with pytest.raises(FileNotFoundError):
        fs.ls("absent")


def test_parts_of_files_are_read(fs, tree):
    true = (tree / "long.bin").read_bytes()
    for start, end in [(None, None), (5, 10), (-7, None), (None, -7), (10, 5), (len(true) - 3, len(true) + 9)]:
        assert fs.cat_file("long.bin", start, end) == true[start:end]
    assert fs.cat_ranges(["long.bin"] * 2, [0, 9], [4, 12]) == [true[:4], true[9:12]]
    several = {path: (tree / path).read_bytes() for path in ("lines.txt", *(f"small/0/00{number}.bin" for number in range(10)))}
    assert fs.cat(["/small/0/00?.bin", "lines.txt"]) == several and fs.cat("lines*") == {"lines.txt": several["lines.txt"]}
    assert fs.cat("lines.txt") == several["lines.txt"] and fs.cat(["lines.txt"]) == {"lines.txt": several["lines.txt"]}
    with pytest.raises(IsADirectoryError):
        fs.cat(["lines.txt", "small"])
    assert list(fs.cat(["lines.txt", "small"], on_error="omit")) == ["lines.txt"]
    assert fs.open("lines.txt", "rt").readlines()[7] == "line 7\n"
    assert fs.head("lines.txt", 4) == b"line" and fs.read_block("lines.txt", 2, 9, delimiter=b"\n") == b"line 1\n"
    again = pickle.loads(pickle.dumps(fs))
    assert again.cat_file("lines.txt") == fs.cat_file("lines.txt")
    with pytest.raises(ValueError, match="read-only"):
        fs.open("lines.txt", "wb")
    with pytest.raises(ValueError, match="read-only"):
        SquashFileSystem("any.img", mode="w")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Tables and arrays, in an image."""
    tree = tmp_path_factory.mktemp("data")
    frame = pandas.DataFrame({"a": range(1000), "b": [f"text {i}" for i in range(1000)]})
    frame.to_csv(tree / "table.csv", index=False)
    for part in range(3):
        below = tree / "parts" / f"part={part}"
        below.mkdir(parents=True)
        frame.to_parquet(below / "0.parquet")
    array = zarr.create_array(tree / "array.zarr", shape=(100, 100), chunks=(10, 10), dtype="i4")
    array[:] = numpy.arange(10_000).reshape(100, 100)
    return frame, pack(tree, tree.parent / "data.img", "-comp", "zstd")


def test_pandas_reads_tables(data):
    frame, image = data
    pandas.testing.assert_frame_equal(pandas.read_csv(f"squashfs://table.csv::file://{image}"), frame)
    pandas.testing.assert_frame_equal(pandas.read_parquet(f"squashfs://parts/part=1/0.parquet::file://{image}"), frame)
    with brisk.Image(image).open("table.csv") as file:
        pandas.testing.assert_frame_equal(pandas.read_csv(file), frame)


def test_pyarrow_reads_data_sets(data):
    frame, image = data
    fs = pyarrow.fs.PyFileSystem(pyarrow.fs.FSSpecHandler(fsspec.filesystem("squashfs", fo=str(image))))
    table = pyarrow.dataset.dataset("parts", filesystem=fs, format="parquet", partitioning="hive").to_table()
    assert table.num_rows == 3000 and sorted(set(table["part"].to_pylist())) == [0, 1, 2]
    assert table["b"].to_pylist()[:1000] == frame["b"].tolist()


def test_zarr_reads_arrays(data):
    _, image = data
    array = zarr.open_array(f"squashfs://array.zarr::file://{image}", mode="r")
    assert (array[:] == numpy.arange(10_000).reshape(100, 100)).all()
    assert array[37, 41] == 3741

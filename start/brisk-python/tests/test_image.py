import errno
import io
import os
import pathlib
import random
import stat

import brisk
import numpy
import pytest
from conftest import BAD_NAME, TESTDATA, pack


def relative(root: bytes, path: bytes) -> bytes:
    return b"/" + os.path.relpath(path, root) if path != root else b"/"


@pytest.mark.parametrize("codec", ["gzip", "zstd", "xz", "lz4", "lzo"])
@pytest.mark.parametrize("more", [[], ["-no-fragments"], ["-b", "4096"]], ids=["default", "own-blocks", "small-blocks"])
def test_every_file_is_that_of_the_tree(tree, tmp_path, codec, more):
    image = brisk.Image(pack(tree, tmp_path / "tree.img", "-comp", codec, *more))
    root = os.fsencode(tree)
    expected = {relative(root, at): (sorted(dirs), sorted(names)) for at, dirs, names in walked(root)}
    found = {at: (dirs, names) for at, dirs, names in image.walk(b"/")}
    assert found == expected
    count = 0
    for at, _, names in image.walk(b"/"):
        for name in names:
            path = os.path.join(at, name)
            true = root + path
            told, seen = image.stat(path, follow_symlinks=False), os.lstat(true)
            assert (told.st_mode, told.st_size, told.st_uid) == (seen.st_mode, seen.st_size, seen.st_uid), path
            assert told.st_mtime == int(seen.st_mtime)
            if stat.S_ISREG(seen.st_mode):
                with open(true, "rb") as file:
                    contents = file.read()
                assert image.read(path) == contents, path
                with image.open(path) as file:
                    assert file.read() == contents, path
                count += 1
    assert count == 1005


def walked(root: bytes):
    """`os.walk`, where links to directories are no directories."""
    for at, dirs, names in os.walk(root):
        real = [name for name in dirs if not os.path.islink(os.path.join(at, name))]
        yield at, real, names + [name for name in dirs if name not in real]


def test_files_are_what_python_calls_files(image, tree):
    true = (tree / "long.bin").read_bytes()
    with image.open("long.bin") as file:
        assert isinstance(file, io.RawIOBase)
        assert (file.readable(), file.writable(), file.seekable(), file.closed) == (True, False, True, False)
        assert (file.name, file.mode, file.size) == ("long.bin", "rb", len(true))
        assert file.read(5) == true[:5] and file.tell() == 5
        assert file.seek(-3, os.SEEK_END) == len(true) - 3
        assert file.read() == true[-3:] and file.read() == b"" and file.read(1) == b""
        assert file.seek(10) == 10 and file.seek(5, os.SEEK_CUR) == 15
        buffer = bytearray(300_000)
        assert file.readinto(buffer) == 300_000 and buffer == true[15:300_015]
        assert file.seek(1 << 40) == 1 << 40 and file.read(1) == b"" and file.readinto(buffer) == 0
        with pytest.raises(ValueError):
            file.seek(-1)
    assert file.closed
    for use in (file.read, file.tell, lambda: file.seek(0), lambda: file.readinto(bytearray(1))):
        with pytest.raises(ValueError, match="closed"):
            use()
    lines = (tree / "lines.txt").read_bytes().splitlines(keepends=True)
    assert list(image.open("lines.txt")) == lines
    assert list(io.BufferedReader(image.open("lines.txt"))) == lines
    assert io.TextIOWrapper(image.open("lines.txt")).read() == (tree / "lines.txt").read_text()
    with pytest.raises(ValueError, match="read-only"):
        image.open("lines.txt", "w")


def test_several_files_are_read_at_once(image, packed, tree):
    files = [path for path in image if image.isfile(path)]
    chance = random.Random(1)
    for count in (0, 1, 31, 32, 500):
        paths = chance.choices(files, k=count)
        true = [(tree / path).read_bytes() for path in paths]
        assert image.read_many(paths) == image.read_many(iter(map(pathlib.Path, paths))) == true
        assert brisk.Image(io.BytesIO(packed.read_bytes())).read_many([os.fsencode(path) for path in paths]) == true
    # The first that cannot be read is told, whoever comes to another one before.
    for _ in range(50):
        paths = [*chance.choices(files, k=20), "absent", *chance.choices(files, k=20), "small", "circle"]
        with pytest.raises(FileNotFoundError) as found:
            image.read_many(paths)
        assert found.value.filename == "absent"
    for one in ("link", b"link", pathlib.Path("link")):
        with pytest.raises(TypeError, match="several"):
            image.read_many(one)


def test_buffers_of_any_kind_are_filled(image, tree):
    true = (tree / "long.bin").read_bytes()
    array = numpy.zeros(250_000, dtype=numpy.float32)
    assert image.readinto("long.bin", array) == 1_000_000
    assert array.tobytes() == true[:1_000_000]
    short = bytearray(100)
    assert image.readinto("long.bin", short, len(true) - 10) == 10
    assert bytes(short) == true[-10:] + bytes(90)
    assert image.readinto("long.bin", memoryview(short)[50:], offset=3) == 50
    assert short[50:] == true[3:53]
    assert image.readinto("empty", short) == 0
    with pytest.raises(TypeError):
        image.readinto("long.bin", b"read-only")
    with pytest.raises(OverflowError):
        image.readinto("long.bin", short, -1)


def test_names_are_text_bytes_or_paths(image, tree):
    assert image.ls() == image.ls("/") == image.ls("") == sorted(os.listdir(tree), key=os.fsencode)
    assert image.ls(b"/") == sorted(os.listdir(os.fsencode(tree)))
    assert BAD_NAME in image.ls(b"/") and os.fsdecode(BAD_NAME) in image.ls()
    assert image.read(BAD_NAME) == image.read(os.fsdecode(BAD_NAME)) == b"latin"
    path = pathlib.PurePosixPath("small", "0", "000.bin")
    true = (tree / path).read_bytes()
    assert image.read(path) == image.read("/small//0/./000.bin") == image.read("small/../link") == true
    assert image.read("above/0/000.bin") == true
    assert image.readlink("link") == "small/0/000.bin" and image.readlink(b"nowhere") == b"absent"
    assert dict(image.scandir("small/0"))["000.bin"].st_size == len(true)
    assert stat.S_ISLNK(dict(image.scandir())["link"].st_mode)
    with pytest.raises(TypeError):
        image.read(5)


def test_iterating_gives_the_paths_of_files(image, tree):
    files = list(image)
    assert len(files) == len(image) == len(set(files)) == 1010
    assert "small/3/249.bin" in files and "small" not in files
    assert all(path in image for path in files if path not in ("nowhere", "circle"))
    assert "small" in image and "absent" not in image and image
    assert list(image.walk("small/0")) == [("small/0", [], sorted(os.listdir(tree / "small/0")))]


def test_faults_have_the_classes_of_the_system(image):
    with pytest.raises(FileNotFoundError) as found:
        image.read("small/absent")
    assert (found.value.errno, found.value.filename) == (errno.ENOENT, "small/absent")
    for use in (image.open, image.ls, image.stat, image.walk, image.read, image.readlink):
        with pytest.raises(FileNotFoundError):
            use("small/absent/more")
        with pytest.raises(NotADirectoryError):
            use("lines.txt/more")
    with pytest.raises(IsADirectoryError):
        image.read("small")
    with pytest.raises(IsADirectoryError):
        image.open("/")
    for use in (image.ls, image.scandir, image.walk):
        with pytest.raises(NotADirectoryError):
            use("lines.txt")
    with pytest.raises(OSError) as found:
        image.read("circle")
    assert found.value.errno == errno.ELOOP
    with pytest.raises(OSError, match="pipe"):
        image.read("pipe")
    with pytest.raises(FileNotFoundError):
        image.read("nowhere")
    asked = ["small", "link", "pipe", "nowhere", "circle", "lines.txt/more"]
    assert [image.exists(path) for path in asked] == [True, True, True, False, False, False]
    assert [image.isfile(path) for path in asked] == [False, True, False, False, False, False]
    assert [image.isdir(path) for path in asked] == [True, False, False, False, False, False]
    assert image.stat("link").st_size == image.stat("small/0/000.bin").st_size


def test_a_closed_image_says_so(packed):
    with brisk.Image(packed) as image:
        file = image.open("lines.txt")
        assert not image.closed
    assert image.closed and "closed" in repr(image)
    with pytest.raises(ValueError, match="closed image"):
        image.read("lines.txt")
    assert file.read(6) == b"line 0"


def test_what_is_no_image_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="absent.img"):
        brisk.Image(tmp_path / "absent.img")
    other = tmp_path / "other"
    other.write_bytes(b"no image" * 100)
    with pytest.raises(OSError, match=r"corrupt image at byte 0: magic number is 0x\w+, allowed is 0x73717368") as found:
        brisk.Image(other)
    assert found.value.errno == errno.EIO
    with pytest.raises(TypeError):
        brisk.Image(5)
    with pytest.raises(ValueError, match="https://"):
        brisk.Image("ftp://host/app.img")


def test_a_file_object_is_an_image(packed, tree):
    with packed.open("rb") as file:
        image = brisk.Image(file)
        assert image.read("long.bin") == (tree / "long.bin").read_bytes()
    # The file object was closed.
    with pytest.raises(OSError) as found:
        brisk.Image(file)
    assert isinstance(found.value.__cause__, ValueError)
    assert brisk.Image(io.BytesIO(packed.read_bytes())).read("link") == image_of(packed).read("link")


def image_of(path):
    return brisk.Image(os.fspath(path))


def test_long_files_of_short_images_are_read_in_parts():
    image = brisk.Image(TESTDATA / "bomb-sparse-file-of-1-tib.img")
    [name] = image
    with pytest.raises(OSError, match="in parts") as found:
        image.read(name)
    assert (found.value.errno, found.value.filename) == (errno.EFBIG, name)
    with pytest.raises(OSError, match="name fewer") as found:
        image.read_many([name])
    assert (found.value.errno, found.value.filename) == (errno.EFBIG, name)
    with image.open(name) as file:
        with pytest.raises(OSError, match="in parts"):
            file.read()
        file.seek(-10, os.SEEK_END)
        assert file.read() == bytes(10)

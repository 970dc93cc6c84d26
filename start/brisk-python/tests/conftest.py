import os
import pathlib
import random
import subprocess

import brisk
import pytest

# Damaged images, each of which brisk-image must refuse or bear.
TESTDATA = pathlib.Path(__file__).resolve().parents[2] / "brisk-image/testdata/bad"

BAD_NAME = b"caf\xe9"


def fill(root: pathlib.Path) -> None:
    """A tree with everything that a data set may have: many small files, a long one, holes, links, a name that is not UTF-8."""
    chance = random.Random(5)
    for directory in range(4):
        below = root / "small" / str(directory)
        below.mkdir(parents=True)
        for number in range(250):
            (below / f"{number:03}.bin").write_bytes(chance.randbytes(chance.randrange(3000)))
    (root / "long.bin").write_bytes(chance.randbytes(700_000) + b"compressible " * 100_000)
    with (root / "holes.bin").open("wb") as file:
        file.seek(3 << 20)
        file.write(b"behind the hole")
    (root / "lines.txt").write_text("".join(f"line {number}\n" for number in range(5000)))
    (root / "empty").write_bytes(b"")
    (root / "link").symlink_to("small/0/000.bin")
    (root / "above").symlink_to("/../small")
    (root / "nowhere").symlink_to("absent")
    (root / "circle").symlink_to("circle")
    os.mkfifo(root / "pipe")
    with open(os.path.join(os.fsencode(root), BAD_NAME), "wb") as file:
        file.write(b"latin")


@pytest.fixture(scope="session")
def tree(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    root = tmp_path_factory.mktemp("tree")
    fill(root)
    return root


def pack(tree: pathlib.Path, image: pathlib.Path, *options: str) -> pathlib.Path:
    command = ["mksquashfs", tree, image, "-noappend", "-quiet", "-no-progress", *options]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return image


@pytest.fixture(scope="session")
def packed(tree: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return pack(tree, tmp_path_factory.mktemp("packed") / "tree.img", "-comp", "zstd")


@pytest.fixture
def image(packed: pathlib.Path) -> brisk.Image:
    return brisk.Image(packed)

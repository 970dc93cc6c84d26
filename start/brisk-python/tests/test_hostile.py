"""Damaged images raise `OSError`, whatever is asked of them."""

import errno
import random

import brisk
import pytest
from conftest import TESTDATA

BAD = sorted(TESTDATA.glob("*.img"))


def use(path) -> int:
    """Asks everything of an image, and counts what was refused."""
    refused = 0
    try:
        image = brisk.Image(path)
    except OSError:
        return 1
    for ask in (lambda: list(image), lambda: list(image.walk()), lambda: image.scandir(), lambda: len(image)):
        try:
            ask()
        except OSError:
            refused += 1
    try:
        names = image.ls()
    except OSError:
        return refused + 1
    for name in names:
        for ask in (image.stat, image.read, lambda name: image.open(name).read(100_000), image.ls):
            try:
                ask(name)
            except OSError:
                refused += 1
    return refused


def test_there_are_damaged_images():
    assert len(BAD) > 500


@pytest.mark.parametrize("path", BAD, ids=lambda path: path.stem)
def test_a_damaged_image_raises(path):
    use(path)


def test_flipped_bytes_raise_and_say_where(packed, tmp_path):
    whole, chance = packed.read_bytes(), random.Random(3)
    damaged, refused = tmp_path / "damaged.img", 0
    for _ in range(60):
        data = bytearray(whole)
        for _ in range(20):
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        damaged.write_bytes(data)
        refused += use(damaged) > 0
    assert refused > 10
    # Byte 64 of the superblock says where the inode table is.
    data, table = bytearray(whole), int.from_bytes(whole[64:72], "little")
    data[table : table + 100] = bytes(100)
    damaged.write_bytes(data)
    with pytest.raises(OSError, match=r"damaged\.img: corrupt image at byte \d+: .* allowed is") as found:
        list(brisk.Image(damaged))
    assert found.value.errno == errno.EIO

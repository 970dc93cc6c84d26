"""Reads files out of SquashFS images, without mounting them: from a disk, from the network, or from a file object.

>>> import brisk
>>> image = brisk.Image("data.img")
>>> image.ls("train")
>>> image.read("train/0.png")
>>> with image.open("train/0.png") as file: ...

`brisk.fs` has the same as a file system of fsspec.
"""

from __future__ import annotations

import io
import os
from typing import TYPE_CHECKING

from ._brisk import Image as _Image

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from ._brisk import Reader

__all__ = ["File", "Image"]


class File(io.RawIOBase):
    """A file of an image, read-only. `Image.open` makes it. No read is short, but for the end of the file."""

    mode = "rb"

    def __init__(self, reader: Reader, name: str | bytes) -> None:
        self._reader = reader
        self._position = 0
        self.name = name

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return self._reader.size

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        self._check()
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._check()
        bases = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self.size}
        if whence not in bases:
            raise ValueError(f"whence is {whence}, allowed are 0, 1 and 2")
        position = bases[whence] + offset
        if position < 0:
            raise ValueError(f"seeking to {position} leads before the start of the file")
        self._position = position
        return position

    def read(self, size: int | None = -1) -> bytes:
        if size is None or size < 0:
            size = max(self.size - self._position, 0)
        found = self._reader.read_at(self._position, size)
        self._position += len(found)
        return found

    def readall(self) -> bytes:
        return self.read()

    def readinto(self, buffer: Buffer) -> int:
        count = self._reader.read_into(buffer, self._position)
        self._position += count
        return count

    def peek(self, size: int = 0) -> bytes:
        """The next bytes, which stay to be read. So `readline` does not read them one by one."""
        return self._reader.read_at(self._position, max(size, io.DEFAULT_BUFFER_SIZE))

    def close(self) -> None:
        if not self.closed:
            self._reader.close()
        super().close()

    def _check(self) -> None:
        if self.closed:
            raise ValueError("I/O operation on closed file")


class Image(_Image):
    __doc__ = _Image.__doc__

    def open(self, path: str | bytes | os.PathLike[str] | os.PathLike[bytes], mode: str = "rb") -> File:
        """Opens a file as a `File`. `io.BufferedReader` and `io.TextIOWrapper` take it."""
        if mode not in ("r", "rb"):
            raise ValueError(f"mode is {mode!r}, allowed is 'rb': images are read-only, and files of bytes")
        return File(self._reader(path), os.fspath(path))

"""A SquashFS image as a file system of fsspec: `squashfs://path/in/image::data.img`."""

from __future__ import annotations

import datetime
import os
import stat
from collections.abc import Iterable
from typing import Any

import fsspec  # type: ignore[import-untyped]
from fsspec.spec import AbstractFileSystem  # type: ignore[import-untyped]
from fsspec.utils import get_protocol  # type: ignore[import-untyped]

from . import File, Image
from ._programs import program


class SquashFileSystem(AbstractFileSystem):  # type: ignore[misc]
    """Reads the files of an image.

    `fo` is a path, a URL, or a binary file object that can seek. brisk reads paths, and by `brisk-fetch` also https://, http://
    and oci://. Everything else, and http where `brisk-fetch` is missing or `target_options` are given, is read by the file system of
    `target_protocol`. The options that `Image` has for images on the network are those of `Image`.
    """

    protocol = "squashfs"
    root_marker = ""

    def __init__(
        self,
        fo: Any,
        mode: str = "r",
        target_protocol: str | None = None,
        target_options: dict[str, Any] | None = None,
        trust: bool | str | os.PathLike[str] | Iterable[str | os.PathLike[str]] | None = None,
        insecure: bool = False,
        refresh: bool = False,
        variant: str | None = None,
        **options: Any,
    ) -> None:
        if mode not in ("r", "rb"):
            raise ValueError(f"mode is {mode!r}, allowed is 'r': images are read-only")
        super().__init__(**options)
        source = _source(fo, target_protocol, target_options or {})
        self.image = Image(source, trust=trust, insecure=insecure, refresh=refresh, variant=variant)

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        stripped = super()._strip_protocol(path)
        return stripped if isinstance(path, list) else stripped.strip("/")

    def info(self, path: str, **options: Any) -> dict[str, Any]:
        path = self._strip_protocol(path)
        return self._info(path, self.image.stat(path, follow_symlinks=False))

    def ls(self, path: str, detail: bool = True, **options: Any) -> list[Any]:
        path = self._strip_protocol(path)
        if not self.image.isdir(path):
            return [self.info(path)] if detail else [path]
        prefix = f"{path}/" if path else ""
        if not detail:
            return [prefix + name for name in self.image.ls(path)]
        return [self._info(prefix + name, found) for name, found in self.image.scandir(path)]

    def _info(self, path: str, found: os.stat_result) -> dict[str, Any]:
        info: dict[str, Any] = {"islink": stat.S_ISLNK(found.st_mode)}
        if info["islink"]:
            info["destination"] = self.image.readlink(path)
            try:
                found = self.image.stat(path)
            except OSError:
                pass  # It leads to nothing, and is what it is.
        kinds = {stat.S_IFDIR: "directory", stat.S_IFREG: "file", stat.S_IFLNK: "link"}
        return info | {
            "name": path,
            "type": kinds.get(stat.S_IFMT(found.st_mode), "other"),
            "size": found.st_size,
            "mode": found.st_mode,
            "uid": found.st_uid,
            "gid": found.st_gid,
            "ino": found.st_ino,
            "nlink": found.st_nlink,
            "mtime": found.st_mtime,
        }

    def exists(self, path: str, **options: Any) -> bool:
        return self.image.exists(self._strip_protocol(path))

    def isdir(self, path: str) -> bool:
        return self.image.isdir(self._strip_protocol(path))

    def isfile(self, path: str) -> bool:
        return self.image.isfile(self._strip_protocol(path))

    def modified(self, path: str) -> datetime.datetime:
        return datetime.datetime.fromtimestamp(self.info(path)["mtime"], tz=datetime.UTC)

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **options: Any) -> bytes:
        path = self._strip_protocol(path)
        if start is None and end is None:
            return self.image.read(path)
        with self.image.open(path) as file:
            start, end, _ = slice(start, end).indices(file.size)
            file.seek(start)
            return file.read(max(end - start, 0))

    def cat(self, path: Any, recursive: bool = False, on_error: str = "raise", **options: Any) -> Any:
        if on_error != "raise" or options:
            return super().cat(path, recursive, on_error, **options)
        paths = self.expand_path(path, recursive=recursive)
        if paths == [self._strip_protocol(path)]:
            return self.image.read(paths[0])
        return dict(zip(paths, self.image.read_many(paths), strict=True))

    def _open(self, path: str, mode: str = "rb", **options: Any) -> File:
        return self.image.open(self._strip_protocol(path), mode)


def _source(fo: Any, protocol: str | None, options: dict[str, Any]) -> Any:
    """What `Image` opens."""
    if not isinstance(fo, (str, os.PathLike)):
        return fo
    fo = os.fspath(fo)
    protocol = protocol or get_protocol(fo)
    if protocol in ("file", "local"):
        return fsspec.get_filesystem_class("file")._strip_protocol(fo)
    if protocol in ("oci", "oci+http", "oras"):
        return fo
    if protocol in ("http", "https") and not options and program("brisk-fetch") is not None:
        return fo
    return fsspec.open(fo, "rb", protocol=protocol, **options).open()

"""Where brisk's programs are."""

import importlib.metadata
import pathlib
import shutil


def program(name: str) -> str | None:
    """The path of the program `name`: that of the wheel which has this module, else the one in PATH, else None."""
    try:
        files = importlib.metadata.files("brisk") or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    for file in files:
        if file.name == name and (found := pathlib.Path(file.locate()).resolve()).is_file():
            return str(found)
    return shutil.which(name)

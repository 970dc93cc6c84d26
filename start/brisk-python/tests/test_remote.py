"""Images on the network, by `brisk-fetch` from a server of this process."""

import concurrent.futures
import errno
import functools
import http.server
import json
import multiprocessing
import os
import pathlib
import pickle
import random
import re
import shutil
import sys
import threading
import time

import brisk
import fsspec
import pytest
from brisk._programs import program


class Ranges(http.server.SimpleHTTPRequestHandler):
    """Answers single ranges, and counts what it sends."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:  # noqa: N802
        path = pathlib.Path(self.translate_path(self.path))
        if not path.is_file():
            self.send_error(404)
            return
        data = path.read_bytes()
        asked = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
        first, last = 0, len(data) - 1
        if asked and asked[1]:
            first, last = int(asked[1]), min(int(asked[2] or last), last)
        elif asked:
            first = max(len(data) - int(asked[2]), 0)
        self.send_response(206 if asked else 200)
        self.send_header("ETag", f'"{path.stat().st_mtime_ns}"')
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("Content-Length", str(last + 1 - first))
        if asked:
            self.send_header("Content-Range", f"bytes {first}-{last}/{len(data)}")
        self.end_headers()
        self.server.sent.append((path.name, last + 1 - first))
        self.wfile.write(data[first : last + 1])

    def log_message(self, *_) -> None:
        pass


@pytest.fixture
def served(packed, tmp_path, monkeypatch):
    """A directory with an image, its server, and a user's cache that is empty."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "cache").mkdir(mode=0o700)
    (tmp_path / "served").mkdir()
    shutil.copy(packed, tmp_path / "served/tree.img")
    handler = functools.partial(Ranges, directory=tmp_path / "served")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    server.sent = []
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    server.url = f"http://127.0.0.1:{server.server_port}/tree.img"
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def in_child(image, path, queue):
    try:
        queue.put(image.read(path))
    except BaseException as e:  # noqa: BLE001
        queue.put(repr(e))


def test_no_message_has_the_signature_of_a_url(served):
    """Who has the signature may read the object. A pickle has to have it."""
    signed = f"{served.url}?X-Amz-Signature=sesame"
    image = brisk.Image(signed)
    assert repr(image) == f'<brisk.Image "{served.url}">'
    with pytest.raises(FileNotFoundError) as absent:
        image.read("absent")
    assert "sesame" not in str(absent.value)
    assert len(pickle.loads(pickle.dumps(image))) == len(image)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_an_image_arrives_while_it_is_read(served, tree):
    image = brisk.Image(served.url)
    assert repr(image) == f'<brisk.Image "{served.url}">'
    files = [path for path in image if path.startswith("small")]

    def read(seed: int) -> bool:
        chosen = random.Random(seed).sample(files, 100)
        return all(image.read(path) == (tree / path).read_bytes() for path in chosen)

    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        assert all(threads.map(read, range(8)))
    queue = multiprocessing.get_context("fork").SimpleQueue()
    child = multiprocessing.get_context("fork").Process(target=in_child, args=(image, "long.bin", queue))
    child.start()
    assert queue.get() == (tree / "long.bin").read_bytes()
    child.join()
    again = pickle.loads(pickle.dumps(image))
    assert again.read("lines.txt") == (tree / "lines.txt").read_bytes()


def test_fsspec_reads_urls_by_the_fetcher(served, tree):
    with fsspec.open(f"squashfs://lines.txt::{served.url}") as file:
        assert file.read() == (tree / "lines.txt").read_bytes()
        assert isinstance(file, brisk.File)
    assert os.listdir(os.environ["XDG_CACHE_HOME"] + "/brisk/remote/images")


def test_the_fetcher_is_that_of_the_wheel():
    assert program("brisk-fetch") == os.path.join(os.path.realpath(sys.prefix), "bin", "brisk-fetch")


def test_an_absent_image_and_an_absent_fetcher_are_told_apart(served, monkeypatch):
    with pytest.raises(OSError, match=r"^\[Errno 5\] http://127\.[^ ]* the server answers 404") as found:
        brisk.Image(served.url + ".absent")
    assert found.value.errno == errno.EIO
    monkeypatch.setattr("brisk._programs.program", lambda name: None)
    with pytest.raises(FileNotFoundError, match="brisk-fetch, which reads images from the network, is neither in"):
        brisk.Image(served.url)


def test_without_the_fetcher_fsspec_reads_urls_itself(served, tree, monkeypatch):
    monkeypatch.setattr("brisk.fs.program", lambda name: None)
    with fsspec.open(f"squashfs://lines.txt::{served.url}") as file:
        assert file.read() == (tree / "lines.txt").read_bytes()
    assert not os.path.exists(os.environ["XDG_CACHE_HOME"] + "/brisk")


def test_nobody_vouches_for_plain_http_from_elsewhere(served):
    with pytest.raises(PermissionError, match="insecure=True"):
        brisk.Image("http://host.invalid/tree.img")
    with pytest.raises(ValueError, match="64 hexadecimal digits"):
        brisk.Image(served.url + "#sha256=1")
    # The image has no hash tree, so nothing in it can be compared with a root hash.
    with pytest.raises(OSError, match="hash tree"):
        brisk.Image(served.url + "#sha256=" + "ab" * 32)


def test_a_whole_image_is_read_without_its_server(served, tree):
    image = brisk.Image(served.url)
    [about] = pathlib.Path(os.environ["XDG_CACHE_HOME"], "brisk/remote/images").glob("*/about")
    # The rest comes when nobody has waited for a while.
    deadline = time.monotonic() + 300
    while not json.loads(about.read_text())["is_complete"]:
        assert time.monotonic() < deadline, "the rest of the image does not come"
        time.sleep(0.1)
    assert image.read("long.bin") == (tree / "long.bin").read_bytes()
    served.shutdown()
    served.server_close()
    again = brisk.Image(served.url)
    assert again.read("long.bin") == (tree / "long.bin").read_bytes()

"""Images on the network, by `brisk-fetch` from a server of this process."""

import base64
import concurrent.futures
import errno
import functools
import hashlib
import http.server
import json
import multiprocessing
import os
import pathlib
import pickle
import random
import re
import shutil
import subprocess
import sys
import threading
import time

import brisk
import fsspec
import pytest
from brisk._programs import program
from conftest import pack


MANIFEST = "application/vnd.oci.image.manifest.v1+json"


class Ranges(http.server.SimpleHTTPRequestHandler):
    """Answers single ranges when its gate is open, and to whom it should. A manifest of a registry is a file, too."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:  # noqa: N802
        self.server.asked.append(self.path)
        assert self.server.opened.wait(300)
        if self.server.login not in (None, self.headers.get("Authorization")):
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="x"')
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
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
        if asked and asked[1] and self.server.gives_ends_only:
            self.send_error(503)
            return
        self.send_response(206 if asked else 200)
        # A server that has ended answers on no connection that was made before.
        self.send_header("Connection", "close")
        self.send_header("ETag", f'"{path.stat().st_mtime_ns}"')
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("Cache-Control", "max-age=3600")
        if "/manifests/" in self.path:
            self.send_header("Content-Type", MANIFEST)
        self.send_header("Content-Length", str(last + 1 - first))
        if asked:
            self.send_header("Content-Range", f"bytes {first}-{last}/{len(data)}")
        self.end_headers()
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
    server.asked, server.login, server.opened = [], None, threading.Event()
    server.opened.set()
    server.gives_ends_only = False
    server.files = tmp_path / "served"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    server.url = f"http://127.0.0.1:{server.server_port}/tree.img"
    yield server
    server.opened.set()
    server.shutdown()
    server.server_close()
    thread.join()


def brisk_tools(*arguments) -> str:
    """What the command prints."""
    return subprocess.run([os.environ["BRISK_TOOLS"], *arguments], check=True, stdout=subprocess.PIPE, text=True).stdout


@pytest.fixture
def publish(served, packed, tmp_path):
    """Publishes an image as signed.img, by the key app, with a serial number, and returns its URL with the root hash in it."""
    for name in ("app", "foreign"):
        keys = ["-p", tmp_path / f"{name}.pub", "-s", tmp_path / f"{name}.key"]
        subprocess.run(["minisign", "-G", "-W", *keys], check=True, stdout=subprocess.DEVNULL)

    def publish(serial: int, image=packed) -> str:
        options = ["--name", "signed.img", "--key", tmp_path / "app.key", "--serial", str(serial), "--force"]
        printed = brisk_tools("publish", image, served.files, *options)
        return f"{served.url[:-8]}signed.img#sha256={re.search('sha256=([0-9a-f]{64})', printed)[1]}"

    return publish


def await_that(what: str, is_so) -> None:
    deadline = time.monotonic() + 300
    while not is_so():
        assert time.monotonic() < deadline, f"not so: {what}"
        time.sleep(0.1)


def about_image() -> pathlib.Path:
    """What the cache knows of its only image."""
    [about] = pathlib.Path(os.environ["XDG_CACHE_HOME"], "brisk/remote/images").glob("*/about")
    return about


def await_whole() -> None:
    """The rest comes when nobody has waited for a while."""
    await_that("all of the image is here", lambda: json.loads(about_image().read_text())["is_complete"])


def pass_a_minute(server) -> None:
    """As if nobody had asked the server for the image since 1970."""
    about = json.loads(about_image().read_text())
    about_image().write_text(json.dumps(about | {"asked": 0}))
    del server.asked[:]


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
    await_whole()
    assert image.read("long.bin") == (tree / "long.bin").read_bytes()
    # It answers nothing for a while, and is asked beside whether there is a newer image.
    served.opened.clear()
    pass_a_minute(served)
    again = brisk.Image(served.url)
    assert again.read("long.bin") == (tree / "long.bin").read_bytes()
    await_that("the server is asked", lambda: served.asked)
    served.opened.set()
    served.shutdown()
    served.server_close()
    assert brisk.Image(served.url).read("long.bin") == (tree / "long.bin").read_bytes()
    # It has said before that it has a newer one.
    [name] = about_image().parents[2].glob("names/" + "?" * 64)
    name.with_suffix(".newer").touch()
    with pytest.warns(UserWarning, match="brisk starts the image that it has under this name"):
        assert brisk.Image(served.url).read("long.bin") == (tree / "long.bin").read_bytes()
    with pytest.raises(OSError, match="refused"):
        brisk.Image(served.url, refresh=True)


def test_a_trusted_key_must_have_signed_the_image(served, publish, tree, tmp_path, monkeypatch):
    url, _ = publish(1).split("#")
    key, foreign = tmp_path / "app.pub", str(tmp_path / "foreign.pub")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    with pytest.raises(PermissionError, match=r"no key is trusted, .* name it with trust=$"):
        brisk.Image(url, trust=True)
    installed = tmp_path / "config/brisk/trusted.d"
    installed.mkdir(parents=True, mode=0o700)
    shutil.copy(key, installed)
    for trust in (key, [foreign, key], True):
        assert brisk.Image(url, trust=trust).read("lines.txt") == (tree / "lines.txt").read_bytes()
    with pytest.raises(PermissionError, match="by a key that is not trusted; .* name the right key with trust= if you trust it"):
        brisk.Image(url, trust=foreign)
    with pytest.raises(PermissionError, match="tree.img: the image is not signed"):
        brisk.Image(served.url, trust=key)
    with pytest.raises(PermissionError, match=r'\(trust="KEY.pub"\), or read it all the same \(insecure=True\)'):
        brisk.Image("http://host.invalid/tree.img")
    with pytest.raises(FileNotFoundError, match="absent.pub"):
        brisk.Image(url, trust="absent.pub")
    file_system = fsspec.filesystem("squashfs", fo=url, trust=str(key))
    assert file_system.cat_file("lines.txt") == (tree / "lines.txt").read_bytes()
    with pytest.raises(PermissionError, match="not trusted"):
        fsspec.filesystem("squashfs", fo=url, trust=foreign)
    # Its path is good in another directory, too.
    monkeypatch.chdir(tmp_path)
    pickled = pickle.dumps(brisk.Image(url, trust="app.pub"))
    monkeypatch.chdir("/")
    assert pickle.loads(pickled).read("lines.txt") == (tree / "lines.txt").read_bytes()
    key.unlink()
    with pytest.raises(FileNotFoundError, match="app.pub"):
        pickle.loads(pickled)


def test_an_older_image_is_refused(served, publish, tmp_path):
    url, _ = publish(2).split("#")
    brisk.Image(url, trust=tmp_path / "app.pub")
    # What would keep the publisher from that.
    (served.files / "signed.img.remote").unlink()
    publish(1)
    with pytest.raises(PermissionError, match="its serial number is 1, and one with 2 was there before"):
        brisk.Image(url, trust=tmp_path / "app.pub", refresh=True)


def test_a_file_needs_no_key_and_has_no_variant(packed, tmp_path):
    for options, message in [
        ({"trust": True}, "trust= is for the URL of an image"),
        ({"variant": "x"}, "variant= is for the URL of an image"),
        ({"trust": []}, "trust= has no key"),
    ]:
        with pytest.raises(ValueError, match=message):
            brisk.Image(packed, **options)
        with pytest.raises(ValueError, match=message):
            brisk.Image(packed.open("rb"), **options)
    with pytest.raises(TypeError):
        brisk.Image(packed, trust=5)
    assert brisk.Image(packed, trust=False).exists("lines.txt")


def test_what_a_server_took_back_is_asked_anew(served, publish, tree):
    """It had a longer file, and gave only the end of that."""
    url = publish(1)
    image = served.files / "signed.img"
    (served.files / "signed.img.remote").unlink()
    (served.files / "signed.img.remote.minisig").unlink()
    whole = image.read_bytes()
    image.write_bytes(whole + bytes(8192))
    served.gives_ends_only = True
    with pytest.raises(subprocess.CalledProcessError):
        brisk_tools("cat", url, "lines.txt", "--wait", "1s")
    image.write_bytes(whole)
    served.gives_ends_only = False
    assert brisk.Image(url).read("lines.txt") == (tree / "lines.txt").read_bytes()


def test_what_was_said_of_an_image_is_forgotten_with_it(served, publish, tmp_path):
    url, _ = publish(1).split("#")
    key = tmp_path / "app.pub"
    image = brisk.Image(url, trust=key)
    image.close()
    del image
    await_whole()
    brisk_tools("remote", "forget", url)
    (tmp_path / "later").mkdir()
    (tmp_path / "later/new.txt").write_text("new")
    publish(2, pack(tmp_path / "later", tmp_path / "later.img"))
    assert brisk.Image(url, trust=key).read("new.txt") == b"new"
    served.shutdown()
    served.server_close()
    with pytest.raises(OSError, match="leave out refresh=True to start the one that is here"):
        brisk.Image(url, trust=key, refresh=True)


def test_a_registry_gets_what_docker_keeps_for_it(served, packed, tree, tmp_path, monkeypatch):
    data = packed.read_bytes()

    def content(blob: bytes, media_type: str) -> dict:
        digest = "sha256:" + hashlib.sha256(blob).hexdigest()
        path = served.files / "v2/app/blobs" / digest
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(blob)
        return {"mediaType": media_type, "digest": digest, "size": len(blob)}

    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": content(b"{}", "application/vnd.oci.empty.v1+json"),
        "layers": [content(data, "application/vnd.brisk.image.layer.v1.squashfs")],
    }
    (served.files / "v2/app/manifests").mkdir()
    (served.files / "v2/app/manifests/1").write_text(json.dumps(manifest))
    secret = base64.b64encode(b"alice:open sesame").decode()
    served.login = f"Basic {secret}"
    host = f"127.0.0.1:{served.server_port}"
    for name in ("HOME", "DOCKER_CONFIG", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.delenv("REGISTRY_AUTH_FILE", raising=False)
    with pytest.raises(OSError, match="docker login"):
        brisk.Image(f"oci://{host}/app:1")
    (tmp_path / "config.json").write_text(json.dumps({"auths": {host: {"auth": secret}}}))
    image = brisk.Image(f"oci://{host}/app:1")
    assert image.read("lines.txt") == (tree / "lines.txt").read_bytes()
    await_whole()
    pass_a_minute(served)
    assert brisk.Image(f"oci://{host}/app:1").exists("lines.txt")
    await_that("the registry is asked", lambda: served.asked)
    with pytest.raises(ValueError, match="only a registry has several images under one name; leave out variant="):
        brisk.Image(served.url, variant="x")
    with pytest.raises(ValueError, match='variant= is "x,y", allowed are letters, digits'):
        brisk.Image(f"oci://{host}/app:1", variant="x,y")

"""Images are used by threads, by forked processes, and by processes that get them pickled."""

import concurrent.futures
import io
import multiprocessing
import pickle
import random
import sys
import threading
import time

import brisk
import pytest
from conftest import pack


def test_threads_read_the_right_bytes(image, tree):
    files = [path for path in image if path.startswith("small")]
    true = {path: (tree / path).read_bytes() for path in files}
    long = (tree / "long.bin").read_bytes()
    file = image.open("long.bin")

    def read(seed: int) -> int:
        chance = random.Random(seed)
        for _ in range(300):
            path = chance.choice(files)
            assert image.read(path) == true[path]
            at = chance.randrange(len(long))
            buffer = bytearray(5000)
            assert buffer[: image.readinto("long.bin", buffer, at)] == long[at : at + 5000]
        return seed

    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        assert list(threads.map(read, range(8))) == list(range(8))
    assert file.read() == long


class Gate(io.BytesIO):
    """A file object whose first read waits until `opened` is set."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.armed = False
        self.entered, self.opened = threading.Event(), threading.Event()

    def read(self, size: int = -1) -> bytes:
        if self.armed:
            self.armed = False
            self.entered.set()
            assert self.opened.wait(300)
        return super().read(size)


def test_a_read_that_waits_stops_no_other_thread(packed):
    gate = Gate(packed.read_bytes())
    image = brisk.Image(gate)
    other = brisk.Image(packed)
    gate.armed = True
    with concurrent.futures.ThreadPoolExecutor(2) as threads:
        waiting = threads.submit(image.read, "long.bin")
        assert gate.entered.wait(300)
        # Two of one image wait for each other, and not for the lock of Python.
        behind = threads.submit(image.read, "holes.bin")
        assert other.read("long.bin")[:5] and not waiting.done()
        gate.opened.set()
        assert waiting.result(300) == other.read("long.bin")
        assert behind.result(300) == other.read("holes.bin")


def test_a_heart_beats_while_a_file_is_decoded(tmp_path):
    """The interval is an hour, so a thread gets the lock of Python only where another one lets it go."""
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "long").write_bytes(b"0123456789abcdef" * (4 << 20))
    image = brisk.Image(pack(tree, tmp_path / "long.img", "-comp", "gzip"))
    buffer = bytearray(64 << 20)
    beats, begun, stop = 0, threading.Event(), threading.Event()

    def beat() -> None:
        nonlocal beats
        while not stop.is_set():
            beats += 1
            begun.set()
            time.sleep(0)

    def beats_during(work) -> bool:
        """Whether the heart beats, soon or after a while: a busy machine may not let it run at once."""
        before = beats
        return any(work() and beats > before for _ in range(100))

    interval = sys.getswitchinterval()
    heart = threading.Thread(target=beat)
    sys.setswitchinterval(3600)
    try:
        heart.start()
        begun.wait()
        assert not beats_during(lambda: sum(range(100_000)))
        assert beats_during(lambda: image.read("long"))
        assert beats_during(lambda: image.readinto("long", buffer))
        assert beats_during(lambda: image.open("long").readinto(buffer))
    finally:
        stop.set()
        sys.setswitchinterval(interval)
    heart.join()


def in_child(work, queue) -> None:
    try:
        queue.put(work())
    except BaseException as e:  # noqa: BLE001
        queue.put(repr(e))


def forked(work):
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    child = context.Process(target=in_child, args=(work, queue))
    child.start()
    result = queue.get()
    child.join()
    return result


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_reads_while_threads_of_its_parent_do(image, tree):
    files = [path for path in image if path.startswith("small")]
    true = {path: (tree / path).read_bytes() for path in files}
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            for path in files:
                image.read(path)

    file = image.open("long.bin")
    file.seek(100)
    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    try:
        for _ in range(4):
            assert forked(lambda: all(image.read(path) == true[path] for path in files)) is True
            assert forked(lambda: file.read()) == (tree / "long.bin").read_bytes()[100:]
    finally:
        stop.set()
        for reader in readers:
            reader.join()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_reads_the_file_that_was_opened(packed, tmp_path):
    path = tmp_path / "replaced.img"
    path.write_bytes(packed.read_bytes())
    image = brisk.Image(path)
    path.unlink()
    assert forked(lambda: image.read("lines.txt")[:6]) == b"line 0"
    in_object = brisk.Image(io.BytesIO(packed.read_bytes()))
    assert "file object" in forked(lambda: in_object.read("lines.txt"))
    image.close()
    assert "closed image" in forked(lambda: image.read("lines.txt"))


def test_pickles_have_the_path(packed, monkeypatch):
    monkeypatch.chdir(packed.parent)
    image = brisk.Image(packed.name)
    pickled = pickle.dumps(image)
    assert len(pickled) < 500
    monkeypatch.chdir("/")
    again = pickle.loads(pickled)
    assert type(again) is brisk.Image and again.read("link") == image.read("link")
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        assert pool.map(again.read, ["link", "lines.txt"]) == [image.read("link"), image.read("lines.txt")]
    with pytest.raises(TypeError):
        pickle.dumps(brisk.Image(packed.open("rb")))

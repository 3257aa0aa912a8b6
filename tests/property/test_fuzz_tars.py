"""Damaged and hostile tar shards: an index whose images lie inside the file, or one line; no time, no memory, nothing written elsewhere."""

from __future__ import annotations

import io
import json
import os
import signal
import tarfile
import tracemalloc
from contextlib import contextmanager, suppress

import pytest
from fuzzing import BYTE_CHANGES, CHANGES, changed, damaged, examples, fuzz, nothing_written_outside, only_one_line
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from goatbench import complaints
from goatbench.data.decode import UnreadableImageError
from goatbench.data.webdataset import ImageWebdatasetSource
from goatbench.errors import UsageError

BLOCK = 512
SECONDS, PEAK_BYTES = 20, 16 * 2**20  # for one shard of 10 KiB
FIELDS = {  # of a header: where, how long
    "name": (0, 100), "mode": (100, 8), "size": (124, 12), "mtime": (136, 12), "checksum": (148, 8), "type": (156, 1), "magic": (257, 8),
    "sparse": (386, 100), "prefix": (345, 155),
}  # fmt: skip
SIZES = [b"77777777777\0", b"00000000000\0", b"00000001000\0", b"\x80" + b"\xff" * 11, b"\x80\0\0\0\x7f" + b"\xff" * 7, b"\xff" * 12]
SIZES += [b"\xff" * 10 + b"\xfe\x00", b"\xff" * 9 + b"\0\0\0", b"99999999999\0", b"-0000001000\0"]
NAMES = [
    b"../../x.jpg",
    b"/etc/passwd.jpg",
    b"../x.cls",
    b"a.jpg",
    b"a.cls",
    b".jpg",
    b"b.c/.cls",
    b"\xff\xfe.jpg",
    b"a\nb.jpg",
    b"\x1b[2J.png",
    b"",
]
TYPES = [bytes([byte]) for byte in b"\x000123567LKSVDMNgxXAZ"]
OTHERS = st.sampled_from([*SIZES, *NAMES, *TYPES]) | st.binary(max_size=12)
HEADER_CHANGES = st.lists(st.tuples(st.integers(0, 20), st.sampled_from(sorted(FIELDS)), OTHERS), min_size=1, max_size=3)
PAX_KEYS = st.sampled_from(
    ["size", "path", "mtime", "hdrcharset", "GNU.sparse.map", "GNU.sparse.size", "GNU.sparse.realsize", "GNU.sparse.name"]
)
PAX_VALUES = st.sampled_from(["-512", "-1024", "-1", "9" * 30, "../../y.jpg", "/y.cls", "1,2", "BINARY", "nan", "x\0.jpg"]) | st.text(
    max_size=6
)
PAX = st.lists(st.tuples(PAX_KEYS, PAX_VALUES), min_size=1, max_size=2)
CONTENTS = st.binary(max_size=40) | st.sampled_from(NAMES) | PAX.map(lambda rows: pax(*rows))
EXTENDED = st.tuples(st.sampled_from(TYPES), CONTENTS, st.none() | st.sampled_from(SIZES))


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.setenv("GOATBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    with nothing_written_outside(tmp_path):
        yield tmp_path


@contextmanager
def cheaply():
    """A hang fails, and so does an allocation that a shard of 10 KiB cannot need."""

    def fail(*_):
        raise AssertionError(f"more than {SECONDS} seconds")

    before = signal.signal(signal.SIGALRM, fail)
    signal.alarm(SECONDS)
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < PEAK_BYTES
    finally:
        tracemalloc.stop()
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def pax(*rows: tuple[str, str]) -> bytes:
    """Records of an extended header, LENGTH KEY=VALUE."""
    lines = b""
    for key, value in rows:
        body = f" {key}={value}\n".encode()
        length = len(body) + 1
        while len(str(length)) + len(body) != length:
            length += 1
        lines += str(length).encode() + body
    return lines


def padded(content: bytes) -> bytes:
    return content + bytes(-len(content) % BLOCK)


def header(name: bytes, size: int, kind: bytes = b"0") -> bytes:
    info = tarfile.TarInfo("x")
    info.size, info.type = size, kind
    return with_field(info.tobuf(tarfile.GNU_FORMAT), "name", name.ljust(100, b"\0")[:100])


def with_field(block: bytes, field: str, value: bytes) -> bytes:
    """The header with the beginning of a field replaced, and a checksum that fits, if it was not the checksum that changed."""
    at, length = FIELDS[field]
    block = block[:at] + value[:length] + block[at + len(value[:length]) :]
    return block if field == "checksum" else block[:148] + b"%06o\0 " % sum(block[:148] + b" " * 8 + block[156:]) + block[156:]


def member(name: bytes, content: bytes) -> bytes:
    return header(name, len(content)) + padded(content)


def picture() -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (2, 2), (1, 2, 3)).save(stream, "PNG")
    return stream.getvalue()


MEMBERS = [member(b"%d.%s" % (k, kind), content) for k in range(4) for kind, content in ((b"cls", b"%d" % (k % 2)), (b"png", picture()))]
END = bytes(2 * BLOCK)


def shards(root, train: bytes):
    """A folder of two shards: the bytes given, and four sound samples for validation."""
    for path in (root.parent / "cache").rglob("*.json"):  # a file that changes within one tick of the clock is the same to the cache
        path.unlink()
    root.mkdir(exist_ok=True)
    (root / "x-train-0.tar").write_bytes(train)
    (root / "x-val-0.tar").write_bytes(b"".join(MEMBERS) + END)
    return root


def use(root) -> int:
    """What a run does with the shards. Images that can be decoded."""
    source, good = ImageWebdatasetSource(str(root)), 0
    assert len(source.class_names) >= 1 and len(source.fingerprint) == 64
    for name in ("train", "validation", "test"):
        split = source.split(name)
        for index in range(len(split)):
            shard, offset, size = split._places[index].tolist()
            assert 0 <= offset <= offset + size <= (root / split._shards[shard]).stat().st_size
            try:
                split.image(index)
                good += 1
            except UnreadableImageError as error:
                assert complaints.one_line(str(error)).isprintable()
    return good


def test_the_sound_shard_is_read(here):
    with cheaply():
        assert use(shards(here / "root", b"".join(MEMBERS) + END)) == 8


@examples(60)
def test_bytes_of_tars(number, here):
    content = b"".join(MEMBERS) + END

    @fuzz(number)
    @given(BYTE_CHANGES)
    def check(changes):
        with only_one_line(), cheaply():
            use(shards(here / "root", damaged(content, changes)))

    check()


@examples(100)
def test_headers_of_tars(number, here):
    """Fields of headers changed under a checksum that fits, and extended headers, long names and members of any type put between."""

    @fuzz(number)
    @given(HEADER_CHANGES | st.just([]), st.lists(st.tuples(st.integers(0, 8), EXTENDED), max_size=2), st.booleans())
    def check(changes, extended, ends):
        members = list(MEMBERS)
        for place, field, value in changes:
            block = members[place % 8]
            members[place % 8] = with_field(block[:BLOCK], field, value) + block[BLOCK:]
        for place, (kind, content, size) in extended:
            block = header(b"y.jpg", len(content), kind)
            members.insert(place, (block if size is None else with_field(block, "size", size)) + padded(content))
        with only_one_line(), cheaply():
            use(shards(here / "root", b"".join(members) + (END if ends else b"")))

    check()


@examples(50)
def test_the_cache_of_a_tar(number, here):
    """An index in the cache was damaged: it is made again, and the images are those of the shard."""
    root = shards(here / "root", b"".join(MEMBERS) + END)
    assert use(root) == 8
    files = sorted((here / "cache").rglob("*.json"))
    contents = {path: path.read_bytes() for path in files}
    expected = ImageWebdatasetSource(str(root)).fingerprint

    @fuzz(number)
    @given(st.sampled_from(files), BYTE_CHANGES, st.none() | CHANGES)
    def check(path, of_bytes, of_json):
        for file, content in contents.items():
            file.write_bytes(content)
        if of_json is None:
            path.write_bytes(damaged(contents[path], of_bytes))
        else:
            path.write_text(json.dumps(changed(json.loads(contents[path]), of_json)))
        with cheaply():
            assert use(root) == 8 and ImageWebdatasetSource(str(root)).fingerprint == expected

    check()


FIRST, REST = MEMBERS[0], b"".join(MEMBERS[1:]) + END
HOSTILE = {  # how: the shard, what is said
    "a long name of 8 GiB": (FIRST + with_field(header(b"x", 0, b"L"), "size", b"77777777777\0") + REST, "of 8,589,934,592 bytes"),
    "an extended header of 2**80 bytes": (FIRST + with_field(header(b"x", 0, b"x"), "size", b"\x80\0\1" + bytes(9)) + REST, "a header of"),
    "extended headers whose keys grow": (
        header(b"x", 20000, b"x") + padded(b"2 " * 9000 + b"=" + b"\n" * 1999) + FIRST + REST, "a header of 20,480 bytes"
    ),
    "a member that ends where it begins": (
        FIRST + header(b"x", 17, b"x") + padded(pax(("size", "-1536"))) + member(b"x.json", b"{}") + REST, "damaged at byte 1,024"
    ),
    "a member of 2**80 bytes": (FIRST + header(b"x", 40, b"x") + padded(pax(("size", str(2**80)))) + REST, "damaged at byte 1,024"),
    "a size for all members": (header(b"x", 19, b"g") + padded(pax(("size", "1000000"))) + FIRST + REST, "damaged at byte 1,024"),
    "long names without end": (FIRST + header(b"x", 0, b"L") * 3000 + REST, "recursion"),
    "a sparse member": (FIRST + header(b"0.png", 0, b"S") + REST, "0.png is stored sparse"),
    "a sparse member that is cut off": (FIRST + with_field(header(b"0.png", 0, b"S"), "sparse", b"1" * 97), "no tar that can be read"),
    "a name of 5,000 letters": (FIRST + header(b"x", 5001, b"L") + padded(b"y" * 4996 + b".png\0") + REST, "5,000 letters"),
}  # fmt: skip


@pytest.mark.parametrize("how", HOSTILE)
def test_hostile_headers_are_refused(how, here):
    content, says = HOSTILE[how]
    with cheaply(), pytest.raises(UsageError) as raised:
        use(shards(here / "root", content))
    assert says in str(raised.value) and "x-train-0.tar" in str(raised.value) and "\n" not in str(raised.value)


@pytest.mark.parametrize("name", [b"../../z", b"/etc/z", b"../root/z"])
def test_names_that_lead_elsewhere_are_only_names(name, here):
    content = member(name + b".cls", b"1") + member(name + b".png", picture()) + b"".join(MEMBERS) + END
    with cheaply(), suppress(UnreadableImageError):
        assert use(shards(here / "root", content)) == 9

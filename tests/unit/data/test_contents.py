"""Contents of image files: a fingerprint of names and sizes does not see them."""

from __future__ import annotations

import io
import tarfile

import pytest
from PIL import Image

from goatbench.data import contents
from goatbench.data.contents import compare_contents
from goatbench.data.sources import ImageFolderSource, ImageParquetSource, ImageWebdatasetSource
from goatbench.errors import UsageError


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("GOATBENCH_CACHE", str(tmp_path / "cache"))


def bitmap(shade):
    """Without compression or checksums: one byte that differs changes neither size nor whether it can be read."""
    picture = io.BytesIO()
    Image.new("L", (4, 4), shade).save(picture, "BMP")
    return picture.getvalue()


def folder_of(root):
    for part in ("train", "val"):
        for shade, name in enumerate(("cat", "dog")):
            (root / part / name).mkdir(parents=True)
            for number in range(3):
                (root / part / name / f"{number}.bmp").write_bytes(bitmap(10 * shade + number))
    return ImageFolderSource(str(root))


def parquet_of(root):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    root.mkdir()
    for part in ("train", "validation"):
        rows = [{"bytes": bitmap(number), "path": f"{number}.bmp"} for number in range(4)]
        pq.write_table(pa.table({"image": rows, "label": [0, 0, 1, 1]}), root / f"{part}-00000.parquet", compression="none")
    return ImageParquetSource(str(root))


def tar_of(root):
    root.mkdir()
    for part in ("train", "validation"):
        with tarfile.open(root / f"{part}-00.tar", "w") as shard:
            for number in range(4):
                for ending, content in (("bmp", bitmap(number)), ("cls", str(number // 2).encode())):
                    member = tarfile.TarInfo(f"{number}.{ending}")
                    member.size = len(content)
                    shard.addfile(member, io.BytesIO(content))
    return ImageWebdatasetSource(str(root))


@pytest.mark.parametrize("make", [folder_of, parquet_of, tar_of])
def test_a_changed_byte_that_no_fingerprint_sees_is_found_in_a_copy(tmp_path, make):
    source = make(tmp_path / "one")
    first = compare_contents(source.files)
    assert first.is_new and not first.changed
    copy = make(tmp_path / "two")
    again = compare_contents(copy.files)
    assert not again.is_new and not again.changed and again.whole == first.whole
    for damaged in copy.files:  # all are covered, the test images too
        whole = damaged.read_bytes()
        position = whole.index(bitmap(1)[:54]) + 56 if make is not folder_of else 60  # in the pixels of an image
        damaged.write_bytes(whole[:position] + bytes([whole[position] ^ 1]) + whole[position + 1 :])
        changed = type(source)(str(tmp_path / "two"))
        assert changed.fingerprint == source.fingerprint
        found = compare_contents(changed.files)
        assert found.changed == [damaged] and found.whole != first.whole
        damaged.write_bytes(whole)


def test_a_first_check_that_stops_is_gone_on_with(tmp_path, monkeypatch):
    source = folder_of(tmp_path / "tree")
    read, digest = [], contents._digest
    monkeypatch.setattr(contents, "_digest", lambda path: (read.append(path), digest(path))[1])
    lost = source.files[7]
    kept = lost.read_bytes()
    lost.unlink()
    with pytest.raises(UsageError, match=f"{lost}: No such file"):
        compare_contents(source.files)
    lost.write_bytes(kept)
    read.clear()
    assert compare_contents(source.files).is_new
    assert sorted(read) == sorted(source.files[7:])  # what was read and comes after the lost one is read again
    read.clear()
    assert not compare_contents(source.files).is_new
    assert len(read) == 12


def test_a_file_that_was_cut_off_is_found(tmp_path):
    """Its size, and with it the fingerprint, is another: the commonest damage of a copy."""
    source = folder_of(tmp_path / "tree")
    assert compare_contents(source.files).is_new
    cut = source.files[3]
    cut.write_bytes(cut.read_bytes()[:40])
    assert ImageFolderSource(str(tmp_path / "tree")).fingerprint != source.fingerprint
    assert compare_contents(source.files).changed == [cut]


@pytest.mark.parametrize("damage", [b"", b"no array", b"\x93NUMPY\x01\x00"])
def test_damaged_notes_are_made_anew(tmp_path, damage):
    source = folder_of(tmp_path / "tree")
    noted = compare_contents(source.files).noted
    noted.write_bytes(damage)
    assert compare_contents(source.files).is_new
    assert not compare_contents(source.files).is_new

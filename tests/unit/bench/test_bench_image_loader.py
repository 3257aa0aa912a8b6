"""The image benchmark: runs on made-up files and on a folder, writes what it prints, refuses what it cannot measure."""

from __future__ import annotations

import io
import json

import pytest
from PIL import Image

from goatbench.bench import image_files, image_loader
from goatbench.bench.image_files import made_up, write_layouts
from goatbench.bench.image_loader import SOURCES, main, measure, render
from goatbench.errors import UsageError

pytest.importorskip("pyarrow")
GREYS = (0, 50, 100, 150, 200)


@pytest.fixture(autouse=True)
def small(monkeypatch, tmp_path):
    monkeypatch.setenv("GOATBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(image_files, "ROWS", 2)
    monkeypatch.setattr(image_loader, "ROWS", 2)


def grey(value: int) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (40, 30), (value,) * 3).save(file, "PNG")
    return file.getvalue()


def test_quick_run_and_record(tmp_path, capsys):
    out = tmp_path / "record.json"
    assert main(["--quick", "--images", "3", "--out", str(out)]) == 0
    record = json.loads(out.read_text())
    assert {len(seconds) for seconds in record["seconds"].values()} == {3} and len(record["seconds"]) == 7
    assert record["settings"]["content"].startswith("made up: ") and record["settings"]["images"] == 3
    ratios = {result["where"]: result["value"] for result in record["results"]}
    assert ratios["ready tensor"] == 1 and ratios["evaluation from tar"] > 1
    said = capsys.readouterr().out
    assert said.startswith("3 images of ") and all(name in said for name in record["seconds"])
    with pytest.raises(UsageError, match="never overwritten"):
        main(["--quick", "--out", str(out)])


def test_made_up_files_are_as_large_as_those_of_imagenet():
    first, second = made_up(0), made_up(1)
    assert first != second and first == made_up(0)
    assert Image.open(io.BytesIO(first)).size == (500, 375) and 50_000 < len(first) < 110_000


def test_every_layout_holds_the_same_images_in_the_same_order(tmp_path):
    write_layouts(tmp_path, [grey(value) for value in GREYS])
    for name, source in SOURCES.items():
        split = source(str(tmp_path / name)).split("test")
        assert [split.image(index).getpixel((0, 0))[0] for index in range(len(split))] == list(GREYS), name
        assert split.labels.tolist() == [0, 0, 0, 1, 1]


def test_shuffled_reading_changes_the_row_group_with_every_image(tmp_path, monkeypatch):
    write_layouts(tmp_path, [grey(value) for value in GREYS[:4]])
    asked = []
    over = image_loader._over
    monkeypatch.setattr(image_loader, "_over", lambda read, requests: asked.append(requests) or over(read, requests))
    measure(tmp_path, 2)
    assert [0, 2, 1, 3] in asked  # of two groups of two


def test_own_files(tmp_path, capsys):
    for part in ("train", "val"):
        for k, value in enumerate(GREYS[:4]):
            path = tmp_path / "own" / part / f"class{k % 2}" / f"{k}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(grey(value))
    assert main(["--quick", "--root", str(tmp_path / "own")]) == 0
    assert capsys.readouterr().out.startswith("4 images of ")
    (tmp_path / "own/val/class1/1.png").write_bytes(b"no image")
    with pytest.raises(UsageError, match=r"cannot be decoded .*remove the file"):
        main(["--quick", "--root", str(tmp_path / "own")])


def test_layouts_that_disagree_are_an_error(tmp_path):
    write_layouts(tmp_path, [grey(value) for value in GREYS])
    (tmp_path / "folder/validation/class0/000000.jpg").write_bytes(grey(255))
    with pytest.raises(RuntimeError, match="two layouts of the same files disagree"):
        measure(tmp_path, 2)


def test_table():
    seconds = {"slow": [4.0, 5.0, 8.0], "ready tensor": [1.0, 1.0, 1.0]}
    title, _, slow, tensor = render(seconds, 1000, 81.6).splitlines()
    assert title == "1,000 images of 82 kB on average, to 224 px, CPU time of one thread"
    assert slow.split() == ["slow", "200", "[162,", "225]", "5.0", "5.0"]
    assert tensor.split() == ["ready", "tensor", "1,000", "[1,000,", "1,000]", "1.0", "1.0"]


def test_one_line_for_what_cannot_be_measured(tmp_path):
    with pytest.raises(UsageError, match="no folder train/"):
        main(["--root", str(tmp_path)])
    with pytest.raises(UsageError, match="--images 1: 2 or more are needed"):
        main(["--images", "1"])
    with pytest.raises(UsageError, match="unrecognized arguments"):
        main(["--speed"])

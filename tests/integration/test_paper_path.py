"""The paper-scale path on a made-up ImageNet tree: real files of every awkward kind, the real recipe, a toy budget."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import forked
import numpy as np
import pytest
import torch
from PIL import Image

from goatbench import cli
from goatbench.compose import compose
from goatbench.data import images
from goatbench.data.images import ImageData
from goatbench.registry import tasks
from goatbench.training.checkpoint import read_checkpoint

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
TOY = [
    "scale=paper", "trainer=cpu", "task=vit_res288", "attention=goat", "model.embed_dim=64", "model.depth=1", "model.num_heads=1",
    "model.num_classes=3", "training.epochs=1", "training.batch_size=8", "seed=1",
]  # fmt: skip


def run(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "goatbench", "run", *arguments]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=600, check=False, env=env)


@pytest.fixture(scope="module")
def imagenet(tmp_path_factory) -> Path:
    """Three wnids; JPEGs of many sizes, a CMYK one, a PNG named .JPEG, grey ones."""
    root, rng = tmp_path_factory.mktemp("imagenet"), np.random.default_rng(0)
    for split, count in (("train", 12), ("val", 4)):
        for wnid in ("n01440764", "n01443537", "n02102040"):
            folder = root / split / wnid
            folder.mkdir(parents=True)
            for n in range(count):
                height, width = rng.integers(40, 330, 2)
                pixels = Image.fromarray(rng.integers(0, 256, (height, width, 3), dtype=np.uint8))
                path = folder / f"{wnid}_{n}.JPEG"
                if n == 0:
                    pixels.convert("CMYK").save(path, "JPEG")
                elif n == 1:
                    pixels.save(path, "PNG")
                else:
                    (pixels.convert("L") if n == 2 else pixels).save(path, "JPEG")
    return root


@contextmanager
def truncated(path: Path) -> Iterator[None]:
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    try:
        yield
    finally:
        path.write_bytes(whole)


def test_the_recipe_runs_and_every_image_counts_once(imagenet, tmp_path):
    done = run(*TOY, f"data.root={imagenet}", cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    (path,) = tmp_path.glob("runs/2*/record.json")
    record = json.loads(path.read_text())
    assert record["scale"] == "paper" and record["protocol"]["preset"] == "deit3"
    assert {m["n"] for m in record["measurements"]} == {12}
    assert {m["conditions"]["resolution"] for m in record["measurements"]} == {224, 288}
    assert str(imagenet) not in path.read_text()


def write_parquet(tree: Path, target: Path) -> None:
    wnids = sorted(folder.name for folder in (tree / "train").iterdir())
    for part, name in (("train", "train"), ("val", "validation")):
        paths = sorted((tree / part).rglob("*.JPEG"))
        cells = [{"bytes": path.read_bytes(), "path": path.name} for path in paths]
        table = pa.table({"image": cells, "label": [wnids.index(path.parent.name) for path in paths]})
        pq.write_table(table, target / f"{name}-00000-of-00001.parquet", row_group_size=5)


def write_tars(tree: Path, target: Path) -> None:
    for part, name in (("train", "train"), ("val", "validation")):
        with tarfile.open(target / f"imagenet1k-{name}-0000.tar", "w") as tar:
            for path in sorted((tree / part).rglob("*.JPEG")):
                for kind, content in (("cls", path.parent.name.encode()), ("jpg", path.read_bytes())):
                    member = tarfile.TarInfo(f"{path.stem}.{kind}")
                    member.size = len(content)
                    tar.addfile(member, io.BytesIO(content))


@pytest.mark.parametrize(("source", "write"), [("imagenet_parquet", write_parquet), ("imagenet_webdataset", write_tars)])
def test_the_recipe_runs_from_shards(imagenet, tmp_path, monkeypatch, source, write):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GOATBENCH_CACHE", str(tmp_path / "cache"))
    (tmp_path / "shards").mkdir()
    write(imagenet, tmp_path / "shards")
    with pytest.raises(SystemExit) as ended:
        cli.main(["run", *TOY, f"data={source}", "data.root=shards"])
    assert ended.value.code == 0
    (path,) = tmp_path.glob("runs/2*/record.json")
    record = json.loads(path.read_text())
    assert record["data"]["counts"] == {"train": 35, "validation": 1, "test": 12} and record["data"]["skipped"] == 0
    assert record["data"]["source"].startswith("real: local") and "shards" in record["data"]["source"]
    assert record["budget"]["samples"] == 32
    assert {(m["conditions"]["resolution"], m["n"]) for m in record["measurements"]} == {(224, 12), (288, 12)}


def test_a_truncated_test_image_is_an_error_with_its_name(imagenet, tmp_path):
    victim = next((imagenet / "val").rglob("*_3.JPEG"))
    with truncated(victim):
        done = run(*TOY, f"data.root={imagenet}", cwd=tmp_path)
    assert done.returncode != 0 and victim.name in done.stderr and "Traceback" not in done.stderr


def test_a_truncated_training_image_is_left_out_and_counted(imagenet, tmp_path, monkeypatch, capsys):
    """Two looks at it in one batch, and one in the next, which has seven images to mix then."""
    monkeypatch.chdir(tmp_path)
    victim = imagenet / "train" / "n02102040" / "n02102040_3.JPEG"
    with truncated(victim):
        for allowed in (0, 1):
            with pytest.raises(SystemExit) as ended:
                cli.main(["run", *TOY, f"data.root={imagenet}", f"data.max_unreadable={allowed}"])
            said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("goatbench: ") and "loading" not in line]
            if allowed == 0:
                assert ended.value.code == 2 and len(said) == 1 and f"{victim.name}: cannot be decoded" in said[0]
                assert not list(tmp_path.glob("runs/2*"))
    assert ended.value.code == 0, said
    (path,) = tmp_path.glob("runs/2*/record.json")
    record = json.loads(path.read_text())
    assert record["data"]["skipped"] == 1 and record["budget"]["samples"] == 32 - 3
    assert record["config"]["data"]["augmentation"]["mixup"] == 0.8 and record["config"]["data"]["repeats"] == 3


def one_of_two(rank: int, folder: Path, overrides: list[str]) -> None:
    """Trains; writes the count at the first checkpoint and at the end, and the samples of both ranks."""
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo0" if sys.platform == "darwin" else "lo"
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2, timeout=timedelta(seconds=300)
    )
    os.environ.update(LOCAL_RANK=str(rank), NODE_RANK="0")
    spec, kept = compose(overrides).spec, []

    class Watched(ImageData):
        def state_dict(self):
            state = super().state_dict()
            kept.append(int(state["unreadable"].sum()))
            return state

        def val_dataloader(self):  # one image is too few for two ranks
            return self.eval_loader("test", self.model.image_size)

    images.ImageData = Watched
    task = tasks.get(spec.task.name)
    data = task.data(spec)
    task.train(spec, task.model(spec), data, folder / "weights.pt", meta={"run_id": "-"})
    samples = read_checkpoint(folder / "weights.pt")[1]["fit"]["samples"]
    (folder / f"{rank}.json").write_text(json.dumps([kept[0], data.skipped, samples]))
    torch.distributed.destroy_process_group()


def test_what_one_rank_cannot_read_is_counted_by_both(imagenet, tmp_path):
    """The second image of the first batch, which is the second rank's: its part is smaller than the first one's from the beginning."""
    mine = [f"data.root={imagenet}", "data.repeats=1", "data.max_unreadable=1", "trainer.devices=2", "trainer.checkpoint_steps=1"]
    with truncated(imagenet / "train" / "n02102040" / "n02102040_5.JPEG"):
        assert forked.wait([forked.start(one_of_two, rank, tmp_path, [*TOY, *mine]) for rank in (0, 1)]) == [0, 0]
    assert [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in (0, 1)] == [[1, 1, 31]] * 2


def test_numeric_folders_need_a_class_map(imagenet, tmp_path):
    numeric = tmp_path / "numeric"
    for split in ("train", "val"):
        for index, folder in enumerate(sorted((imagenet / split).iterdir())):
            target = numeric / split / str(index)
            target.mkdir(parents=True)
            for image in folder.iterdir():
                (target / image.name).write_bytes(image.read_bytes())
    refused = run(*TOY, f"data.root={numeric}", cwd=tmp_path)
    assert refused.returncode == 2 and "class_map" in refused.stderr
    assert len(refused.stderr.strip().splitlines()) == 2  # what it began with, and the mistake
    (tmp_path / "map.json").write_text(json.dumps({"0": 0, "1": 1, "2": 2}))
    accepted = run(*TOY, f"data.root={numeric}", f"data.class_map={tmp_path / 'map.json'}", cwd=tmp_path)
    assert accepted.returncode == 0, accepted.stderr[-2000:]


def test_vit_b_trains_in_two_stages(imagenet, tmp_path):
    """recipe=deit3_base as it stands, of a small width and few epochs."""
    small = [line for line in TOY if not line.startswith("task=")]
    budget = ["pretraining.training.epochs=1", "pretraining.training.batch_size=8"]
    done = run(*small, "task=vit_res224", "recipe=deit3_base", *budget, f"data.root={imagenet}", cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    (path,) = tmp_path.glob("runs/2*/record.json")
    record = json.loads(path.read_text())
    assert "first stage: 4 steps, 32 samples" in str(record["notes"]) and record["budget"]["steps"] == 8


def test_a_test_set_of_fewer_classes_is_scored_among_these(imagenet, tmp_path):
    """ImageNet-A beside ImageNet's training images: the same weights, other test images."""
    root = tmp_path / "root"
    (root / "val").mkdir(parents=True)
    (root / "train").symlink_to(imagenet / "train")
    for wnid in ("n01440764", "n02102040"):
        (root / "val" / wnid).symlink_to(imagenet / "val" / wnid)
    first = run(*TOY, f"data.root={imagenet}", cwd=tmp_path)
    assert first.returncode == 0, first.stderr[-2000:]
    refused = run(*TOY, f"data.root={root}", cwd=tmp_path)
    assert refused.returncode == 2 and "Traceback" not in refused.stderr
    (line,) = (line for line in refused.stderr.splitlines() if line.startswith("goatbench: "))
    assert "show 2 of 3 classes" in line and "evaluation.classes=present" in line
    masked = run(*TOY, f"data.root={root}", "evaluation.classes=present", cwd=tmp_path)
    assert masked.returncode == 0, masked.stderr[-2000:]
    records = [json.loads(path.read_text()) for path in sorted(tmp_path.glob("runs/2*/record.json"))]
    assert [record["training"]["reused"] for record in records] == [False, True]
    assert {m["n"] for m in records[1]["measurements"]} == {8} and records[1]["protocol"]["classes"] == "present"
    assert {m["value"] for m in records[1]["measurements"] if m["metric"] == "top5"} == {1.0}

"""The main job at smoke scale, through the command line: records, checkpoints, repeatability, two processes, failures."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from goatbench import cli
from goatbench.records.leaderboard import build_boards
from goatbench.records.record import RunRecord
from goatbench.registry import tasks
from goatbench.verify import verify

TINY = ["scale=smoke", "data.num_train=128", "data.num_validation=64", "data.num_test=101", "training.batch_size=32"]


def run(*arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "goatbench", "run", *arguments]
    env = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=600, check=False, env=env)


def records(folder: Path) -> list[dict]:
    return [json.loads(path.read_text()) for path in sorted(folder.glob("runs/2*/record.json"))]


def values(record: dict) -> dict[tuple, float]:
    return {(m["metric"], m["conditions"]["nominal"], m["conditions"]["coords"]): m["value"] for m in record["measurements"]}


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    """A folder with one finished run of goat on two resolutions."""
    folder = tmp_path_factory.mktemp("run")
    done = run("task=vit_res512", "attention=goat", *TINY, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "record: runs/" in done.stdout and "±" in done.stdout and "28 (512)" in done.stdout
    return folder


def test_a_record_holds_what_a_reader_needs(trained):
    (record,) = records(trained)
    assert record["status"] == "ok" and record["error"] is None
    assert record["data"]["counts"] == {"train": 128, "validation": 64, "test": 101}
    assert record["budget"] == {"epochs": 1, "steps": 4, "samples": 128, "batch_size": 32}
    assert record["model"]["kernel_eval"] == "sdpa-flash" and record["model"]["num_lanes"] > 0
    assert record["protocol"] == {
        "preset": "embedded", "crop_pct": 1.0, "interpolation": "bicubic", "antialias": True, "resize": "short side, PIL",
        "dtype": "32-true", "tuned_at_test": False, "split": "test", "base": 224,
    }  # fmt: skip
    for m in record["measurements"]:
        conditions = m["conditions"]
        assert conditions["resize_side"] == conditions["resolution"] and conditions["coords"] in ("raw", "scaled")
        assert conditions["split"] == "test"
    top1 = [m for m in record["measurements"] if m["metric"] == "top1"]
    seen = {(m["conditions"]["resolution"], m["conditions"]["coords"]) for m in top1}
    assert seen == {(12, "raw"), (12, "scaled"), (28, "raw"), (28, "scaled")}
    for m in top1:
        hits = m["value"] * 101
        assert m["n"] == 101 and hits == pytest.approx(round(hits), abs=1e-6)
        assert m["stderr"] == pytest.approx((m["value"] * (1 - m["value"]) / 101) ** 0.5, abs=1e-6)
    text = json.dumps(record)
    for secret in (str(trained), os.uname().nodename, str(Path.home())):
        assert secret not in text or len(secret) < 4


def test_images_that_are_not_square(tmp_path, monkeypatch, capsys):
    """Trained at 12 x 16, evaluated at 20 x 28; boards and the record say so."""
    sizes = ["model.image_size=[12,16]", "evaluation.pixels.224=[12,16]", "evaluation.pixels.512=[20,28]"]
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        cli.main(["run", "task=vit_res512", "attention=learned_absolute", *TINY, *sizes])
    out, err = capsys.readouterr()
    assert ended.value.code == 0, err
    assert "12x16 (224)" in out and "20x28 (512)" in out
    (record,) = records(tmp_path)
    found = {(m["conditions"]["nominal"], m["conditions"]["resolution"], m["conditions"]["resize_side"]) for m in record["measurements"]}
    assert found == {(224, "12x16", 12), (512, "20x28", 20)}
    assert record["config"]["model"]["image_size"] == [12, 16] and record["protocol"]["pixels"] == "224: 12x16, 512: 20x28"
    loaded = RunRecord.model_validate(record)
    verify(loaded)
    (board,) = build_boards(tasks.get("vit_res512").card, [], [loaded])
    assert [column.head for column in board.columns if column.is_score] == ["12x16 (224)", "20x28 (512)↑"]


def test_the_same_training_is_reused_and_the_numbers_repeat(trained):
    before = records(trained)[0]
    done = run("task=vit_resolution", "attention=goat", *TINY, cwd=trained)
    assert done.returncode == 0 and "same training hash" in done.stdout, done.stderr
    again = next(r for r in records(trained) if r["task"]["name"] == "vit_resolution")
    assert again["training"]["reused"] and again["training"]["from_run"] == before["run_id"]
    mine, theirs = values(before), values(again)
    assert {key: theirs[key] for key in mine} == mine
    retrained = run("task=vit_res512", "attention=goat", "retrain=true", *TINY, cwd=trained)
    assert "trained in this run" in retrained.stdout
    last = max(records(trained), key=lambda r: r["run_id"])
    assert not last["training"]["reused"] and values(last) == mine  # bitwise: same seed, same thread count


def test_two_processes_evaluate_like_one(tmp_path):
    """Trained and evaluated by two gloo ranks, then the same checkpoint by one process alone: same n, same numbers."""
    two = ["task=vit_res512", "attention=goat", *TINY, "trainer.devices=2", "trainer.strategy=ddp"]
    done = run(*two, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    (first,) = records(tmp_path)  # one record, not one per rank
    assert first["measurements"][0]["n"] == 101 and first["budget"]["samples"] == 128 and first["environment"]["devices"] == 2
    assert run(*two, cwd=tmp_path).returncode == 0  # reuses the checkpoint, so no second rank is started
    second = next(r for r in records(tmp_path) if r["training"]["reused"])
    for key, value in values(second).items():
        assert values(first)[key] == pytest.approx(value, abs=1e-6), key


def test_interrupted_runs_leave_a_record_and_no_weights(tmp_path):
    import signal
    import time

    command = [sys.executable, "-P", "-m", "goatbench", "run", "task=vit_res224", "attention=nope", "scale=smoke", "training.epochs=500"]
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while not list(tmp_path.glob("runs/checkpoints/*/lock")) and time.monotonic() < deadline:
        time.sleep(0.2)
    time.sleep(1.0)
    process.send_signal(signal.SIGTERM)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130, stderr
    (record,) = records(tmp_path)
    assert record["status"] == "interrupted" and record["measurements"] == []
    assert not list(tmp_path.glob("runs/checkpoints/*/weights.pt")) and "Traceback" not in stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["task=vit_res513"], "vit_res512"),
        (["attention=goatt"], "goat"),
        (["attention=alibi"], "alibi_2d"),
        (["training.epoch=3"], "training.epochs"),
        (["training.epochs=0"], "training.epochs"),
        (["model.patch_size=5"], "patch_size"),
        (["data=imagenet_folder", "data.root=/nonexistent", "scale=paper", "trainer=cpu"], "/nonexistent"),
        (["runs_dir=/proc/nothing"], "/proc/nothing"),
        (["kernel=flash", "scale=smoke"], "flash"),
        (["attention.lanes=carve", "attention.options_2d.num_frequencies=8"], "head_dim"),
        (["scale=smoke", "kernel=flex"], "backward"),
        (["scale=smoke", "trainer=gpu"], "CUDA"),
        (["scale=smoke", "+attention.options_2d.foo=1"], "num_frequencies"),
        (["scale=smoke", "attention=rope_axial", "attention.options.base=abc"], "base"),
        (["scale=smoke", "attention=rope_axial", "attention.options.base=-1"], "base"),
        (["scale=smoke", "model.embed_dim=10000000000"], "embed_dim"),
        (["scale=smoke", "model.depth=100000000"], "depth"),
        (["scale=smoke", "trainer.num_threads=100000"], "num_threads"),
        (["scale=smoke", "trainer.strategy=foo"], "strategy"),
        (["scale=smoke", "training.batch_size=1000000"], "batch_size"),
        (["scale=smoke", "runs_dir="], "runs_dir"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(arguments, says, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:  # in this process: two dozen imports of torch would be minutes
        cli.main(["run", *arguments])
    stderr = capsys.readouterr().err
    assert ended.value.code == 2, (ended.value.code, stderr)
    message = [line for line in stderr.splitlines() if "loading PyTorch" not in line]
    assert len(message) == 1 and says in message[0]
    assert not list(tmp_path.iterdir()), "something was left behind"


def test_no_resolutions_means_base_alone(tmp_path):
    assert run("task=vit_res512", "attention=nope", "task.resolutions=[]", *TINY, cwd=tmp_path).returncode == 0
    (record,) = records(tmp_path)
    assert {m["conditions"]["nominal"] for m in record["measurements"]} == {224}


def test_a_failure_keeps_its_reason_without_paths(tmp_path):
    """A time limit that training cannot meet: a record with status timeout, exit code 1, no weights."""
    done = run("task=vit_res224", "attention=goat", "scale=smoke", "training.epochs=200", "trainer.time_limit_minutes=0.02", cwd=tmp_path)
    assert done.returncode == 1 and "timeout" in done.stderr and "Traceback" not in done.stderr
    (record,) = records(tmp_path)
    assert record["status"] == "timeout" and record["error"]["message"] and str(tmp_path) not in json.dumps(record)
    assert not list(tmp_path.glob("runs/checkpoints/*/weights.pt"))


def test_boards_say_what_they_could_not_read(tmp_path):
    """An interrupted run and a damaged record are named even where nothing else is there to show."""
    damaged = tmp_path / "runs" / "20260102t030405-0123abcd-0123ab"
    damaged.mkdir(parents=True)
    (damaged / "record.json").write_text('{"value": NaN}')
    command = [sys.executable, "-P", "-m", "goatbench", "leaderboard", "task=vit_res288"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2 and "skipped" in done.stderr and damaged.name in done.stderr
    wrong = subprocess.run([*command, "--scale", "smok"], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert wrong.returncode == 2 and "did you mean 'smoke'" in wrong.stderr

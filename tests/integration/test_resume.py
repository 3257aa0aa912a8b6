"""A training that is stopped and started again ends with the same bits, whatever stopped it."""

from __future__ import annotations

import errno
import io
import json
import multiprocessing
import os
import random
import signal
import subprocess
import tarfile
import tempfile
import time
from pathlib import Path

import forked
import pytest
import torch
from domain_runs import RUNS, overridden, spec_of, train
from kept import Kept
from PIL import Image

from goatbench.cli import main
from goatbench.compose import compose
from goatbench.errors import REQUEUES, PreemptedError, UsageError
from goatbench.execute import execute
from goatbench.records import files
from goatbench.registry import tasks
from goatbench.training.module import TrainingModule


def at_step(monkeypatch, number: int, act) -> None:
    """act() in the step that follows on `number` whole ones, once."""
    check, done = TrainingModule.check_finite, []

    def hooked(self, loss):
        if self.global_step == number and not done:
            done.append(number)
            act()
        check(self, loss)

    monkeypatch.setattr(TrainingModule, "check_finite", hooked)


def equal(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    """unbroken(domain) -> (weights, fit) of a training that nothing stopped; 8 steps of 4 samples."""
    found = {}

    def of(domain):
        if domain not in found:
            found[domain] = train(spec_of(domain), tmp_path_factory.mktemp(domain) / "weights.pt")
            assert found[domain][1]["steps"] == 8
        return found[domain]

    return of


CASES = [*((domain, 2, signal.SIGTERM) for domain in RUNS), ("vision", 3, signal.SIGUSR1), ("vision", 5, signal.SIGTERM)]
CASES += [("toy", 3, signal.SIGINT)]


@pytest.mark.parametrize(("domain", "steps", "number"), CASES)
def test_stopped_and_resumed_is_bitwise_unbroken(domain, steps, number, unbroken, tmp_path, monkeypatch):
    """Stopped in the middle of an epoch or in its last step, gone on with a data worker of its own."""
    path = tmp_path / "weights.pt"
    at_step(monkeypatch, steps, lambda: os.kill(os.getpid(), number))
    with pytest.raises(PreemptedError if number == signal.SIGUSR1 else KeyboardInterrupt):
        train(spec_of(domain), path)
    assert [p.name for p in tmp_path.iterdir()] == ["resume.ckpt"]
    weights, fit = train(spec_of(domain, "trainer.num_workers=1"), path)
    whole, plain = unbroken(domain)
    assert equal(weights, whole) and fit["resumed_at_steps"] == [steps + 1]
    for name in ("steps", "samples", "validation_values", "selected_epoch"):
        assert fit[name] == plain[name], name
    assert [p.name for p in tmp_path.iterdir()] == ["weights.pt"]


@pytest.mark.parametrize("domain", RUNS)
def test_what_workers_had_prepared_is_not_taken_for_trained(domain, unbroken, tmp_path, monkeypatch):
    """Stopped with two data workers, which are batches ahead by then, and gone on without any."""
    path = tmp_path / "weights.pt"
    at_step(monkeypatch, 1, lambda: os.kill(os.getpid(), signal.SIGTERM))
    with pytest.raises(KeyboardInterrupt):
        train(spec_of(domain, "trainer.num_workers=2"), path)
    weights, fit = train(spec_of(domain), path)
    assert equal(weights, unbroken(domain)[0]) and (fit["resumed_at_steps"], fit["samples"]) == ([2], 32)


def test_an_interrupt_keeps_the_training_and_says_so_in_one_line(tmp_path, monkeypatch, capsys):
    def interrupt_all():
        """As a terminal does: the data workers, which are children of this process, get it too."""
        for process in (*multiprocessing.active_children(), multiprocessing.current_process()):
            os.kill(process.pid, signal.SIGINT)

    at_step(monkeypatch, 2, interrupt_all)
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)}
    try:
        with pytest.raises(SystemExit) as stop:
            main(["run", *RUNS["toy"], f"runs_dir={tmp_path}", "trainer.num_workers=1"])
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        assert stop.value.code == 130 and len(list(tmp_path.rglob("resume.ckpt"))) == 1
        said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("goatbench: ")]
        assert said == ["goatbench: interrupted: training is kept up to step 3; the same command goes on from there"]
        monkeypatch.undo()
        with pytest.raises(SystemExit) as end:
            main(["run", *RUNS["toy"], f"runs_dir={tmp_path}", "trainer.num_workers=1"])
        assert end.value.code == 0 and "training goes on from step 3" in capsys.readouterr().err
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_an_interrupted_retraining_promises_nothing(tmp_path, monkeypatch):
    at_step(monkeypatch, 2, lambda: os.kill(os.getpid(), signal.SIGINT))
    record = run_in(tmp_path, "retrain=true")
    assert record.status == "interrupted"
    assert record.error.message == "stopped after 3 steps; with retrain=true the same command starts anew"


def test_a_second_interrupt_does_not_wait(tmp_path, monkeypatch):
    def twice():
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)

    at_step(monkeypatch, 2, twice)
    with pytest.raises(KeyboardInterrupt):
        train(spec_of("toy"), tmp_path / "weights.pt")
    assert not list(tmp_path.iterdir())


def test_a_signal_in_the_last_step_comes_after_the_weights(unbroken, tmp_path, monkeypatch):
    at_step(monkeypatch, 7, lambda: os.kill(os.getpid(), signal.SIGUSR1))
    with pytest.raises(PreemptedError, match="after 8 steps"):
        train(spec_of("toy"), tmp_path / "weights.pt")
    assert [p.name for p in tmp_path.iterdir()] == ["weights.pt"]
    assert equal(torch.load(tmp_path / "weights.pt", weights_only=True)["state_dict"], unbroken("toy")[0])


def test_accumulated_batches_are_resumed_at_a_whole_step(tmp_path, monkeypatch):
    halves = spec_of("text", "trainer.accumulate=2")
    whole, _ = train(halves, tmp_path / "whole" / "weights.pt")
    at_step(monkeypatch, 5, lambda: os.kill(os.getpid(), signal.SIGTERM))
    with pytest.raises(KeyboardInterrupt):
        train(halves, tmp_path / "weights.pt")
    weights, fit = train(halves, tmp_path / "weights.pt")
    assert equal(weights, whole) and fit["resumed_at_steps"] == [6] and fit["samples"] == 32


def run_in(folder: Path, *more: str):
    return execute(compose([*RUNS["toy"], f"runs_dir={folder}", *more]))


def test_a_compiler_that_a_signal_killed_is_no_failure_of_the_run(tmp_path, monkeypatch):
    def killed(*_, **__):
        raise RuntimeError("C++ compile error") from subprocess.CalledProcessError(-signal.SIGTERM, ["g++"])

    monkeypatch.setattr(type(tasks.get("needle")), "train", killed)
    record = run_in(tmp_path)
    assert (record.status, record.error.kind, record.error.message) == ("interrupted", "Interrupted", "stopped by a signal")
    monkeypatch.setenv(REQUEUES, "1")
    with pytest.raises(PreemptedError, match="stopped by SIGTERM; the same command goes on"):
        run_in(tmp_path)
    assert len(list(tmp_path.rglob("record.json"))) == 1


def test_training_done_and_evaluation_failed_resumes_at_the_evaluation(tmp_path, monkeypatch):
    task = type(tasks.get("needle"))
    with monkeypatch.context() as patched:
        patched.setattr(task, "measure", lambda *_: 1 / 0)
        failed = run_in(tmp_path)
    assert failed.status == "failed" and failed.measurements == []
    with monkeypatch.context() as patched:
        patched.setattr(task, "train", lambda *_, **__: pytest.fail("trained again"))
        record = run_in(tmp_path)
    assert record.status == "ok" and record.training.reused and record.training.from_run == failed.run_id


@pytest.mark.parametrize("retrain", ["retrain=false", "retrain=true"])
def test_a_run_that_is_requeued_in_its_evaluation_has_trained_its_weights(tmp_path, monkeypatch, retrain):
    run_id, task = "20260131t120000-0123abcd-45ef67", type(tasks.get("needle"))
    overrides = compose([*RUNS["toy"], f"runs_dir={tmp_path}", retrain])

    def preempted(*_):
        raise PreemptedError

    with monkeypatch.context() as patched, pytest.raises(PreemptedError):
        patched.setattr(task, "measure", preempted)
        execute(overrides, run_id)
    with monkeypatch.context() as patched:
        patched.setattr(task, "train", lambda *_, **__: pytest.fail("trained again"))
        record = execute(overrides, run_id)
    assert record.status == "ok" and not record.training.reused and record.training.from_run == run_id


def test_a_requeued_run_keeps_its_id_and_says_where_it_went_on(tmp_path, monkeypatch):
    run_id = "20260131t120000-0123abcd-45ef67"
    overrides = compose([*RUNS["toy"], f"runs_dir={tmp_path}", "retrain=true"])
    at_step(monkeypatch, 4, lambda: os.kill(os.getpid(), signal.SIGUSR1))
    with pytest.raises(PreemptedError, match="after 5 steps"):
        execute(overrides, run_id)
    assert not list(tmp_path.rglob("record.json"))
    record = execute(overrides, run_id)
    assert record.run_id == run_id and record.status == "ok"
    assert "training went on from a checkpoint after 5 steps" in record.notes
    assert record.training.from_run == run_id and record.budget.steps == 8


def test_a_full_disk_is_one_line_and_the_last_checkpoint_is_kept(unbroken, tmp_path, monkeypatch):
    with monkeypatch.context() as patched:
        save, calls = torch.save, []

        def limited(content, file):
            calls.append(file)
            if len(calls) > 1:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            save(content, file)

        patched.setattr(torch, "save", limited)
        refused_and_finished("No space left on device", patched, unbroken, tmp_path)
    assert not list(tmp_path.rglob("*.tmp"))


@pytest.mark.parametrize("half_way", [False, True], ids=["between", "within"])
def test_a_folder_that_becomes_read_only_is_one_line_and_the_last_checkpoint_is_kept(half_way, unbroken, tmp_path, monkeypatch):
    """Between two checkpoints, or while the second is written: then its temporary file cannot be removed either."""
    with monkeypatch.context() as patched:
        save, calls = torch.save, []

        def refuse(*_, **__):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))

        def read_only_after_one(content, file):
            calls.append(file)
            if len(calls) > 1:
                patched.setattr(os, "unlink", refuse)
                refuse()
            save(content, file)
            if not half_way:
                at_step(patched, 4, lambda: patched.setattr(tempfile, "mkstemp", refuse))

        patched.setattr(torch, "save", read_only_after_one)
        refused_and_finished("Read-only file system", patched, unbroken, tmp_path)


def refused_and_finished(reason, patched, unbroken, folder):
    """A disk that refuses the second checkpoint, after 6 steps, ends the run in one line; once it no longer does, the run goes on."""
    with pytest.raises(UsageError, match=f"cannot write .*resume.ckpt: {reason}; what was saved before is kept") as caught:
        run_in(folder, "trainer.checkpoint_steps=3")
    patched.undo()
    assert "\n" not in str(caught.value)
    assert len(list(folder.rglob("resume.ckpt"))) == 1 and not list(folder.rglob("weights.pt"))
    record = run_in(folder)
    assert "training went on from a checkpoint after 3 steps" in record.notes
    (path,) = folder.rglob("weights.pt")
    assert equal(torch.load(path, weights_only=True)["state_dict"], unbroken("toy")[0])


def folder_of_images(root: Path) -> Path:
    """root/{train,val}/<class>/*.JPEG; what may vanish."""
    for split, count in (("train", 16), ("val", 2)):
        for wnid in ("n01440764", "n01443537", "n02102040"):
            (root / split / wnid).mkdir(parents=True)
            for number in range(count):
                Image.new("L", (16, 16), 20 * number % 256).save(root / split / wnid / f"{wnid}_{number}.JPEG", "PNG")
    return root / "train"


def listed(root: Path) -> dict[str, list[tuple[int, Path]]]:
    """part -> class index and file of each image, the classes in turns."""
    folder_of_images(root / "tree")
    found = {part: sorted((root / "tree" / part).rglob("*.JPEG"), key=lambda path: path.name[9:]) for part in ("train", "val")}
    classes = sorted({path.parent.name for path in found["train"]})
    return {part: [(classes.index(path.parent.name), path) for path in paths] for part, paths in found.items()}


def parquet_of_images(root: Path) -> Path:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    for part, rows in listed(root).items():
        table = {"image": [{"bytes": path.read_bytes(), "path": path.name} for _, path in rows], "label": [label for label, _ in rows]}
        pq.write_table(pa.table(table), root / f"{part}-0.parquet", row_group_size=1)
    return root / "train-0.parquet"


def tar_of_images(root: Path) -> Path:
    for part, rows in listed(root).items():
        with tarfile.open(root / f"{part}-0.tar", "w") as tar:
            for label, path in rows:
                for name, content in ((f"{path.stem}.jpg", path.read_bytes()), (f"{path.stem}.cls", str(label).encode())):
                    member = tarfile.TarInfo(name)
                    member.size = len(content)
                    tar.addfile(member, io.BytesIO(content))
    return root / "train-0.tar"


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize(
    ("data", "write"),
    [("imagenet_folder", folder_of_images), ("imagenet_parquet", parquet_of_images), ("imagenet_webdataset", tar_of_images)],
)
def test_data_that_vanish_half_way_are_one_line_and_the_last_checkpoint_is_kept(data, write, workers, tmp_path, monkeypatch):
    """With a worker, two batches are ready beyond the one that is trained."""
    root = tmp_path / "images"
    gone = write(root)
    run = ["task=vit_res224", "attention=goat", "scale=smoke", f"data={data}", f"data.root={root}", "model.num_classes=3"]
    run += ["data.num_train=24", "data.num_validation=1", "data.num_test=6", "data.max_unreadable=0", f"trainer.num_workers={workers}"]
    run += ["training.batch_size=2", "training.epochs=1", "trainer.checkpoint_steps=1"]
    composed = compose([*run, f"runs_dir={tmp_path / 'runs'}"])
    at_step(monkeypatch, 5, lambda: gone.rename(tmp_path / "away"))
    with pytest.raises(UsageError, match=r"cannot be decoded .*No such file") as caught:
        execute(composed)
    assert "\n" not in str(caught.value) and gone.stem.removesuffix("-0") in str(caught.value)
    assert len(list(tmp_path.rglob("resume.ckpt"))) == 1
    (tmp_path / "away").rename(gone)
    record = execute(composed)
    assert record.status == "ok" and record.budget.steps == 12
    (note,) = [note for note in record.notes if note.startswith("training went on from a checkpoint")]
    assert 6 <= int(note.split()[-2]) <= (9 if workers else 6)


def child(arguments: list[str], log: Path) -> None:
    """A run through the command line that writes down the number of each step it begins, and is a little slow."""
    check = TrainingModule.check_finite

    def hooked(self, loss):
        with open(log, "a") as file:
            file.write(f"{self.global_step}\n")
        time.sleep(0.03)
        check(self, loss)

    TrainingModule.check_finite = hooked
    os.environ["OMP_NUM_THREADS"] = "1"
    main(["run", *arguments])


def killed_and_finished(folder: Path, kills: int, interval: int, epochs: int) -> list[dict]:
    """A training of 4 steps an epoch, killed that many times and then left to end. For each kill: when, and the steps it lay between."""
    draw = random.Random(kills)
    arguments = overridden("toy", f"training.epochs={epochs}", f"runs_dir={folder / 'runs'}", f"trainer.checkpoint_steps={interval}")
    reached, found = 0, []
    for number in range(kills + 1):
        log, seconds = folder / f"steps{number}.txt", draw.uniform(0, 0.6)
        process = forked.start(child, arguments, log)
        if number < kills:
            deadline = time.monotonic() + 120
            while not (log.exists() and log.read_text().endswith("\n")) and process.is_alive() and time.monotonic() < deadline:
                time.sleep(0.01)
            time.sleep(seconds)
            process.kill()
            process.join()
            assert not list(folder.rglob("record.json")) and not list(folder.rglob("weights.pt"))
        else:
            assert forked.wait([process]) == [0]
        began = [int(line) for line in log.read_text().split("\n")[:-1]]
        assert began[0] >= reached - interval, "more than the last interval was lost"
        assert began == list(range(began[0], began[0] + len(began)))
        if found:
            found[-1]["whole_steps_lost"] = max(0, reached - began[0])
        reached = began[-1]
        if number < kills:
            found.append({"seconds_after_its_first_step": round(seconds, 3), "from_step": began[0], "in_step": reached})
    (record,) = [json.loads(path.read_text()) for path in folder.rglob("record.json")]
    assert record["status"] == "ok" and record["budget"]["steps"] == 4 * epochs and record["budget"]["samples"] == 16 * epochs
    weights, _ = train(spec_of("toy", f"training.epochs={epochs}"), folder / "whole.pt")
    (path,) = folder.rglob("weights.pt")
    assert equal(torch.load(path, weights_only=True)["state_dict"], weights)
    return found


def dying(arguments: list[str], where: str) -> None:
    """A run through the command line that is killed as it begins to measure, or with its whole record in a file of another name."""
    end, link = lambda *_: os.kill(os.getpid(), signal.SIGKILL), files._link
    if where == "measure":
        type(tasks.get("needle")).measure = end
    else:
        files._link = lambda temporary, path: (end if path.name == "record.json" else link)(temporary, path)
    main(["run", *arguments])


@pytest.mark.parametrize("where", ["measure", "record"])
def test_killed_behind_its_training_it_goes_on_there(where, tmp_path, monkeypatch):
    arguments = overridden("toy", f"runs_dir={tmp_path}")
    process = forked.start(dying, arguments, where)
    assert forked.wait([process]) == [-signal.SIGKILL]
    assert not list(tmp_path.rglob("record.json")) and len(list(tmp_path.rglob("weights.pt"))) == 1
    monkeypatch.setattr(type(tasks.get("needle")), "train", lambda *_, **__: pytest.fail("trained again"))
    record = execute(compose(arguments))
    assert record.status == "ok" and record.training.reused and record.measurements
    assert [path.parent.name for path in tmp_path.rglob("record.json")] == [record.run_id]


def test_killed_three_times(tmp_path):
    killed_and_finished(tmp_path, 3, interval=2, epochs=6)


@pytest.mark.slow
def test_killed_twenty_times(tmp_path):
    kept = Kept("kill-20", "tests/integration/test_resume.py::test_killed_twenty_times")
    kills = killed_and_finished(tmp_path, 20, interval=2, epochs=60)  # so long that no kill comes after the end: 0.03 s a step at least
    assert len(kills) == 20 and len({kill["in_step"] for kill in kills}) > 10
    most = max(kill["whole_steps_lost"] for kill in kills)
    kept.write(kills=kills, checkpoint_every_steps=2, most_whole_steps_lost=most, steps=240, weights="bitwise those of an unbroken run")

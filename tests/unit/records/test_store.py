"""What is on disk is whole or absent, survives crashes, and is read with suspicion."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest

from goatbench.errors import UsageError
from goatbench.records import files, store
from goatbench.records.store import RunFolder, interrupted, iter_records, new_run_id, read_record

STARTED = {"task": "toy_ladder", "attention": "goat", "scale": "embedded", "seed": 0, "config_hash": "0123abcd"}


def test_run_ids_name_time_configuration_and_chance():
    before = datetime.now(UTC).strftime("%Y%m%dt%H%M%S")
    ids = {new_run_id("0123abcd4567") for _ in range(50)}
    after = datetime.now(UTC).strftime("%Y%m%dt%H%M%S")
    assert len(ids) == 50
    for run_id in ids:
        second, config, chance = run_id.split("-")
        assert before <= second <= after and config == "0123abcd" and re.fullmatch("[0-9a-f]{6}", chance)
    with pytest.raises(ValueError, match="config hash"):
        new_run_id("../../etc")


def test_a_record_comes_back_as_it_went(tmp_path, make_record):
    record = make_record()
    folder = RunFolder(tmp_path / "runs", record.run_id)
    folder.start(**STARTED)
    path = folder.finish(record)
    assert path == tmp_path / "runs" / record.run_id / "record.json"
    assert read_record(path) == record
    assert sorted(p.name for p in folder.path.iterdir()) == ["record.json", "started.json"]
    assert list(iter_records(tmp_path / "runs", [])) == [record]


def test_an_undecodable_file_name_in_the_config_does_not_lose_the_run(tmp_path, make_record):
    record = make_record(config={"root": "caf\udce9", "name": "fü"})
    assert read_record(RunFolder(tmp_path, record.run_id).finish(record)).config == {"root": "caf?", "name": "fü"}


def test_a_finished_run_is_never_written_again(tmp_path, make_record):
    folder = RunFolder(tmp_path, make_record().run_id)
    path = folder.finish(make_record())
    before = path.read_bytes()
    with pytest.raises(UsageError, match="never overwritten"):
        folder.finish(make_record(seed=7))
    with pytest.raises(UsageError, match="has finished"):
        folder.start(**STARTED)
    assert path.read_bytes() == before


@pytest.mark.parametrize("run_id", ["../x", "20260102t030405-0123abcd-00000g", "20260102t030405-0123abcd-000000\n", "", "/tmp/x"])
def test_a_run_folder_has_a_run_id_for_a_name(tmp_path, run_id):
    with pytest.raises(UsageError, match="run id"):
        RunFolder(tmp_path / "runs", run_id)
    assert not list(tmp_path.iterdir())


def test_nan_never_reaches_a_file(tmp_path, make_record):
    record = make_record(config={"learning_rate": float("nan")})
    folder = RunFolder(tmp_path, record.run_id)
    with pytest.raises(UsageError, match="not strict JSON"):
        folder.finish(record)
    assert not list(folder.path.iterdir())


@pytest.mark.parametrize("failing", ["fsync", "link"])
def test_a_full_disk_leaves_nothing_and_says_so_in_one_line(tmp_path, make_record, monkeypatch, failing):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    record = make_record()
    folder = RunFolder(tmp_path, record.run_id)
    monkeypatch.setattr(files.os, failing, full)
    with pytest.raises(UsageError, match="No space left on device") as caught:
        folder.finish(record)
    assert "\n" not in str(caught.value) and not list(folder.path.iterdir())
    monkeypatch.undo()
    assert read_record(folder.finish(record)) == record


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_the_write_itself_failing_leaves_nothing(tmp_path, make_record, monkeypatch):
    """A real ENOSPC from the kernel: the temporary file's descriptor is one of /dev/full."""
    made = files.tempfile.mkstemp

    def on_full_disk(**arguments):
        handle, name = made(**arguments)
        os.close(handle)
        return os.open("/dev/full", os.O_WRONLY), name

    monkeypatch.setattr(files.tempfile, "mkstemp", on_full_disk)
    folder = RunFolder(tmp_path, make_record().run_id)
    with pytest.raises(UsageError, match="No space left"):
        folder.finish(make_record())
    assert not list(folder.path.iterdir())


def test_a_file_system_without_hard_links_is_exclusive_too(tmp_path, make_record, monkeypatch):
    def unsupported(*_, **__):
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(files.os, "link", unsupported)
    folder = RunFolder(tmp_path, make_record().run_id)
    assert read_record(folder.finish(make_record())) == make_record()
    with pytest.raises(UsageError, match="never overwritten"):
        folder.finish(make_record(seed=3))
    assert [p.name for p in folder.path.iterdir()] == ["record.json"]


def _write_at_once(barrier, outcomes, path, name):
    barrier.wait()
    try:
        files.create_exclusive(path, (name * 400_000).encode())
        outcomes.put((name, "won"))
    except FileExistsError:
        outcomes.put((name, "lost"))


def test_of_sixteen_writers_one_wins_and_its_file_is_whole(tmp_path):
    context = multiprocessing.get_context("fork")  # spawning would import everything sixteen times
    path, barrier, outcomes = tmp_path / "record.json", context.Barrier(16), context.Queue()
    writers = [context.Process(target=_write_at_once, args=(barrier, outcomes, path, name)) for name in "abcdefghijklmnop"]
    for writer in writers:
        writer.start()
    found = dict(outcomes.get(timeout=60) for _ in writers)
    for writer in writers:
        writer.join(timeout=60)
    assert sorted(found.values()) == ["lost"] * 15 + ["won"]
    winner = next(name for name, outcome in found.items() if outcome == "won")
    assert path.read_text() == winner * 400_000
    assert list(tmp_path.iterdir()) == [path]


KILLED = """
import sys, time
from goatbench.records import files
from goatbench.records.store import RunFolder
first, second = (files.parse_record(open(path, "rb").read(), path) for path in sys.argv[2:4])
folder = RunFolder(sys.argv[1], first.run_id)
folder.finish(first)
folder = RunFolder(sys.argv[1], second.run_id)
folder.start(task="toy_ladder", attention="goat", scale="embedded", seed=1, config_hash="0123abcd")
def hang(handle):
    print("half-way", flush=True)
    time.sleep(60)
files.os.fsync = hang
folder.finish(second)
"""


def test_kill_9_in_the_middle_of_a_write_loses_nothing_finished(tmp_path, make_record):
    runs, first, second = tmp_path / "runs", make_record(run=1), make_record(run=2, seed=1)
    for name, record in (("first", first), ("second", second)):
        (tmp_path / name).write_bytes(files.record_bytes(record))
    command = [sys.executable, "-c", KILLED, str(runs), str(tmp_path / "first"), str(tmp_path / "second")]
    # start() writes its marker before fsync is replaced, so the only write that hangs is that of the second record
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "half-way\n"
    assert interrupted(runs, []) == []  # it is alive
    process.send_signal(signal.SIGKILL)
    process.wait(timeout=30)
    warnings: list[str] = []
    assert list(iter_records(runs, warnings)) == [first] and warnings == []
    assert [marker.run_id for marker in interrupted(runs, warnings)] == [second.run_id] and warnings == []
    RunFolder(runs, second.run_id).start(**STARTED)  # a requeued run takes over
    RunFolder(runs, second.run_id).finish(second)
    assert list(iter_records(runs, [])) == [first, second] and interrupted(runs, []) == []


def test_a_recycled_pid_is_not_taken_for_alive(tmp_path, make_record):
    folder = RunFolder(tmp_path, make_record().run_id)
    marker = folder.start(**STARTED)
    assert interrupted(tmp_path, []) == [] and marker.pid == os.getpid()
    path = folder.path / "started.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"process_started": "1"}))
    assert [m.run_id for m in interrupted(tmp_path, [])] == [folder.run_id]
    path.write_text(json.dumps(json.loads(path.read_text()) | {"machine": "elsewhere"}))
    assert [m.is_here for m in interrupted(tmp_path, [])] == [False]


def test_a_live_run_is_not_taken_over(tmp_path, make_record):
    folder = RunFolder(tmp_path, make_record().run_id)
    folder.start(**STARTED)
    with subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE) as other:
        while (started := store.process_started(other.pid)) is None:
            time.sleep(0.01)
        path = folder.path / "started.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"pid": other.pid, "process_started": started}))
        with pytest.raises(UsageError, match=f"process {other.pid}"):
            folder.start(**STARTED)
        other.stdin.close()
    assert folder.start(**STARTED).pid == os.getpid()


def test_the_marker_holds_no_host_name(tmp_path, make_record):
    folder = RunFolder(tmp_path, make_record().run_id)
    folder.start(**STARTED)
    text = (folder.path / "started.json").read_text()
    assert os.uname().nodename not in text and str(tmp_path) not in text


def hostile(record: dict, **changes) -> bytes:
    return json.dumps(record | changes).encode()


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda r: hostile(r, seed=-1), "seed"),
        (lambda r: hostile(r, seed="3"), "seed"),
        (lambda r: hostile(r, extra=1), "extra"),
        (lambda r: hostile(r, schema_version=2), "schema_version"),
        (lambda r: hostile(r, row={"attention": "../../x"}), "row.attention"),
        (lambda r: hostile(r, scale="Embedded"), "scale"),
        (lambda r: hostile(r, scale="a/b"), "scale"),
        (lambda r: hostile(r, run_id=r["run_id"] + "\n"), "run_id"),
        (lambda r: hostile(r, measurements=[{"metric": "top1"}]), "measurements.0.value"),
        (lambda r: hostile(r, config={"a": float("nan")}), "strict JSON"),
        (lambda r: hostile(r, config={"a": -float("inf")}), "strict JSON"),
        (lambda r: hostile(r, config={"a": "1e999"}).replace(b'"1e999"', b"1e999"), "strict JSON"),
        (lambda r: hostile(r, costs=[r["costs"][0] | {"value": float("nan")}]), "costs.0.value"),
        (lambda r: hostile(r, row={"attention": "goat", "variant": {"a": [float("nan")]}}), "strict JSON"),
        (lambda r: hostile(r, config={"a": "?"}).replace(b'"?"', b"[" * 100_000 + b"]" * 100_000), "recursion"),
        (lambda r: hostile(r, scale="embedded\ud800"), "Invalid JSON"),
        (lambda r: hostile(r)[:-5], "Invalid JSON"),
        (lambda r: b"\xff\xfe\x00", "Invalid JSON"),
        (lambda r: b"", "Invalid JSON"),
        (lambda r: b"[]", "the record"),
        (lambda r: hostile(r, **{"a\nb\x1b[2J": 1}), "a b [2J"),
    ],
)
def test_a_stranger_s_record_is_refused_in_one_line(tmp_path, make_record, change, expected):
    path = tmp_path / "record.json"
    path.write_bytes(change(make_record().model_dump(mode="json")))
    with pytest.raises(UsageError, match=re.escape(expected)) as caught:
        read_record(path)
    text = str(caught.value)
    assert str(path) in text and text.isprintable() and len(text) <= 400


def test_only_small_regular_files_are_read(tmp_path, make_record):
    real = tmp_path / "real.json"
    real.write_bytes(files.record_bytes(make_record()))
    (tmp_path / "link.json").symlink_to(real)
    os.mkfifo(tmp_path / "pipe.json")
    with open(tmp_path / "huge.json", "wb") as file:
        file.truncate(files.MAX_RECORD_BYTES + 1)
    (tmp_path / "folder.json").mkdir()
    reasons = {"link": "symbolic link", "pipe": "regular", "huge": "larger", "folder": "regular", "none": "No such file"}
    for name, reason in reasons.items():
        with ThreadPoolExecutor(1) as pool, pytest.raises(UsageError, match=reason):  # a thread: a pipe must not block for ever
            pool.submit(read_record, tmp_path / f"{name}.json").result(timeout=10)


def test_a_bad_file_is_a_warning_and_the_others_are_read(tmp_path, make_record):
    good, bad, liar = make_record(run=1), make_record(run=2), make_record(run=3)
    RunFolder(tmp_path, good.run_id).finish(good)
    path = RunFolder(tmp_path, bad.run_id).finish(bad)
    path.write_text("{")
    RunFolder(tmp_path, liar.run_id).path.joinpath("record.json").write_bytes(files.record_bytes(good))
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "linked").symlink_to(path.parent)
    warnings: list[str] = []
    assert list(iter_records(tmp_path, warnings)) == [good]
    assert len(warnings) == 2 and str(path) in warnings[0] and "another run" in warnings[1]
    assert list(iter_records(tmp_path / "absent", warnings)) == [] and len(warnings) == 2

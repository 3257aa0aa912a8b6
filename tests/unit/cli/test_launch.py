"""Sweeps: what is skipped, what a failing job does to the others, Ctrl-C. The children are small scripts."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from goatbench import launch
from goatbench.compose import Composer, compose
from goatbench.elsewhere import lock_job
from goatbench.errors import UsageError
from goatbench.records.record import RunRecord
from goatbench.sweep_display import seconds_left

SOURCE, DATA = "a" * 16, "b" * 64


def key_of(spec):
    return spec.config_hash, 1, DATA, SOURCE


def record_of(job_overrides, *, version=1, data=DATA, source=SOURCE, status="ok", run_id="20260131t120000-0123abcd-45ef67"):
    spec = Composer().compose(job_overrides).spec
    error = None if status == "ok" else {"kind": "RuntimeError", "message": "no"}
    return RunRecord.model_validate(
        {
            "run_id": run_id,
            "status": status,
            "error": error,
            "task": {"name": spec.task.name, "version": version, "card_hash": "c" * 16},
            "scale": spec.scale,
            "domain": spec.domain,
            "row": {"attention": spec.attention.name},
            "seed": spec.seed,
            "config": {},
            "config_hash": spec.config_hash,
            "model": {
                "name": "m", "params_total": 1, "params_trainable": 1, "params_prior": 0, "head_dim": 32, "content_dim": 32,
                "num_lanes": 0, "lanes": "none", "kernel_train": "sdpa", "kernel_eval": "sdpa",
            },
            "data": {"name": "fashion_mnist", "fingerprint": data, "counts": {"test": 1}, "source": "real"},
            "code": {"version": "0", "commit": None, "dirty": None, "source_hash": source},
            "measurements": [{"metric": "top1", "value": 0.5, "unit": "fraction", "n": 4, "conditions": {"nominal": 512}}],
            "started_at": "2026-01-31T12:00:00+00:00",
        }
    )  # fmt: skip


def write(record, runs_dir):
    folder = runs_dir / record.run_id
    folder.mkdir(parents=True)
    (folder / "record.json").write_text(json.dumps(record.model_dump(mode="json")))


SWEEP = ["scale=smoke", "attention=goat,nope", "seed=0,1"]
DONE = ["scale=smoke", "attention=nope", "seed=1"]


def test_everything_is_planned_where_nothing_is_finished(tmp_path):
    jobs, skipped = launch.plan([*SWEEP, f"runs_dir={tmp_path}"], key_of=key_of)
    assert skipped == 0
    assert [job.label for job in jobs] == [
        "attention=goat seed=0", "attention=goat seed=1", "attention=nope seed=0", "attention=nope seed=1",
    ]  # fmt: skip
    assert len({job.run_id for job in jobs}) == 4


def test_a_finished_job_is_skipped(tmp_path):
    write(record_of(DONE), tmp_path)
    jobs, skipped = launch.plan([*SWEEP, f"runs_dir={tmp_path}"], key_of=key_of)
    assert skipped == 1
    assert [job.label for job in jobs] == ["attention=goat seed=0", "attention=goat seed=1", "attention=nope seed=0"]


@pytest.mark.parametrize("change", [{"version": 2}, {"data": "d" * 64}, {"source": "e" * 16}, {"status": "failed"}])
def test_another_version_data_source_or_status_is_not_finished(tmp_path, change):
    write(record_of(DONE, **change), tmp_path)
    jobs, skipped = launch.plan([*SWEEP, f"runs_dir={tmp_path}"], key_of=key_of)
    assert (len(jobs), skipped) == (4, 0)


def test_another_configuration_or_retrain_is_not_skipped(tmp_path):
    write(record_of(DONE), tmp_path)
    assert launch.plan([*DONE, "training.epochs=2", f"runs_dir={tmp_path}"], key_of=key_of)[1] == 0
    assert launch.plan([*DONE, "retrain=true", f"runs_dir={tmp_path}"], key_of=key_of)[1] == 0
    assert launch.plan([*DONE, f"runs_dir={tmp_path}"], key_of=key_of) == ([], 1)


def test_one_bad_job_stops_the_sweep_before_it_starts(tmp_path):
    with pytest.raises(UsageError, match=r"did you mean attention=alibi_2d\?.*\(job: attention=alibi seed=0\)"):
        launch.plan(["attention=goat,alibi", "seed=0", f"runs_dir={tmp_path}"][:2], key_of=key_of)
    with pytest.raises(UsageError, match="the same run"):
        launch.plan(["seed=0,0"], key_of=key_of)


def make_jobs(tmp_path, names):
    return [
        launch.Job([name], name, f"20260131t120000-0123abcd-{index:06x}", str(tmp_path), 3, (f"{index:016x}", 1, DATA, SOURCE))
        for index, name in enumerate(names)
    ]


def child(script):
    return [sys.executable, "-c", script]


def test_a_failing_job_does_not_end_the_others(tmp_path, capsys):
    jobs = make_jobs(tmp_path, ["good", "bad", "unusable", "threads"])
    record = json.dumps(record_of(DONE, run_id=jobs[0].run_id).model_dump(mode="json"))
    (tmp_path / "good.json").write_text(record)
    scripts = {
        "good": f"import shutil; shutil.copy({str(tmp_path / 'good.json')!r}, {str(jobs[0].folder / 'record.json')!r})",
        "bad": "print('working'); raise RuntimeError('out of luck')",
        "unusable": f"import shutil, sys; print('goatbench: no such folder'); shutil.rmtree({str(jobs[2].folder)!r}); sys.exit(2)",
        "threads": "import os, sys; sys.exit('threads ' + os.environ['OMP_NUM_THREADS'])",
    }
    code = launch.Sweep(jobs, 2, lambda job: child(scripts[job.label])).run()
    assert code == 1
    assert [job.state for job in jobs] == ["ok", "crashed", "refused", "crashed"]
    assert jobs[0].detail == "top1 50.0"
    assert jobs[1].detail == "exit code 1: RuntimeError: out of luck"
    assert jobs[2].detail == "no such folder"
    assert jobs[3].detail == "exit code 1: threads 3"
    assert "working" in jobs[1].log.read_text()
    out, err = capsys.readouterr()
    assert "1 of 4 jobs finished; the same command runs the others" in out
    assert "crashed bad in" in err


def test_all_good_is_zero(tmp_path):
    jobs = make_jobs(tmp_path, ["one"])
    (tmp_path / "r.json").write_text(json.dumps(record_of(DONE, run_id=jobs[0].run_id).model_dump(mode="json")))
    script = f"import shutil; shutil.copy({str(tmp_path / 'r.json')!r}, {str(jobs[0].folder / 'record.json')!r})"
    assert launch.Sweep(jobs, 4, lambda job: child(script)).run() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_children_and_grandchildren(tmp_path, number):
    """A sweep of two children that each start a sleeper; the signal goes to the sweep alone."""
    script = textwrap.dedent(
        f"""
        import sys
        from goatbench import launch
        sleeper = "import subprocess, sys, os; p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']); "
        sleeper += "open(os.environ['PIDS'], 'a').write(f'{{os.getpid()}} {{p.pid}} '); p.wait()"
        jobs = [launch.Job([n], n, f"20260131t120000-0123abcd-00000{{n}}", {str(tmp_path)!r}, 1, (n * 16, 1, "", "")) for n in "012"]
        sys.exit(launch.Sweep(jobs, 2, lambda job: [sys.executable, "-c", sleeper]).run())
        """
    )
    pids = tmp_path / "pids"
    sweep = subprocess.Popen(
        [sys.executable, "-c", script], env={**os.environ, "PIDS": str(pids)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 60
    while (not pids.exists() or len(pids.read_text().split()) < 4) and time.monotonic() < deadline:
        time.sleep(0.05)
    started = [int(pid) for pid in pids.read_text().split()]
    assert len(started) == 4
    sweep.send_signal(number)
    out, _ = sweep.communicate(timeout=60)
    assert sweep.returncode == 130
    assert out.count("interrupted") == 2 and out.count("not started") == 1
    assert "0 of 3 jobs finished" in out
    assert not any(alive(pid) for pid in started)


def alive(pid):
    """Running, not merely waiting to be reaped."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("error", [UsageError("no room"), OSError(28, "No space left on device")])
def test_an_error_in_mid_sweep_ends_the_children_that_run(tmp_path, monkeypatch, error):
    """The second job cannot be started while the first one sleeps."""
    jobs, start = make_jobs(tmp_path, ["sleeps", "cannot start"]), launch._start

    def start_first(job, *more):
        if job is jobs[1]:
            raise error
        start(job, *more)

    monkeypatch.setattr(launch, "_start", start_first)
    with pytest.raises(type(error)) as caught:
        launch.Sweep(jobs, 2, lambda job: child("import time; time.sleep(60)")).run()
    try:
        assert caught.value is error and jobs[0].process.returncode == -signal.SIGTERM
    finally:
        jobs[0].process.kill()


def other_process(script):
    """A process that has locked the job KEY of the folder RUNS when this returns."""
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "locked\n"
    return process


LOCKING = """
import os, pathlib, time
from goatbench.elsewhere import lock_job
lock = lock_job({runs!r}, {key!r})
print("locked", flush=True)
while not pathlib.Path({free!r}).exists():
    time.sleep(0.01)
"""
ENDS = {
    "finished": "os.makedirs({folder!r}); os.replace({record!r}, {folder!r} + '/record.json')",
    "killed": "os.kill(os.getpid(), 9)",
}


@pytest.mark.parametrize(("end", "parallel"), [("finished", 1), ("finished", 2), ("killed", 1), ("killed", 2)])
def test_what_another_process_is_doing_is_waited_for_and_done_here_only_if_it_dies(tmp_path, capsys, end, parallel):
    runs = tmp_path / "runs"
    held, free = make_jobs(runs, ["held", "free"])
    done = record_of(DONE)
    held.key = key_of(Composer().compose(DONE).spec)
    run_id = f"20260131t120000-{done.config_hash[:8]}-aaaaaa"
    (tmp_path / "r.json").write_text(json.dumps({**done.model_dump(mode="json"), "run_id": run_id}))
    names = {"runs": str(runs), "key": held.key, "free": str(free.folder), "folder": str(runs / run_id), "record": str(tmp_path / "r.json")}
    other = other_process((LOCKING + ENDS[end]).format(**names))  # ends when the free job has begun
    launch.Sweep([held, free], parallel, lambda job: child(f"open({str(tmp_path / 'did')!r}, 'a').write('{job.label} ')")).run()
    other.wait(timeout=10)
    started, out, err = (tmp_path / "did").read_text().split(), *capsys.readouterr()
    assert "waiting held: another process is doing it" in err
    if end == "finished":
        assert started == ["free"] and (held.state, held.run_id) == ("ok", run_id)
        assert held.detail == "top1 50.0, done by another process" and "1 of 2 jobs finished" in out
    else:
        assert sorted(started) == ["free", "held"] and held.state == "crashed"  # these children leave no record


def test_the_child_of_a_killed_sweep_keeps_its_job(tmp_path):
    (job,) = make_jobs(tmp_path, ["one"])
    sweep = f"""
import sys
from goatbench import launch
job = launch.Job(["one"], "one", {job.run_id!r}, {str(tmp_path)!r}, 1, {job.key!r})
launch.Sweep([job], 1, lambda job: [sys.executable, "-c", "import os, time; print(os.getpid(), flush=True); time.sleep(60)"]).run()
"""
    process = subprocess.Popen([sys.executable, "-c", sweep], stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 30
    while not (job.log.exists() and job.log.read_text().endswith("\n")) and time.monotonic() < deadline:
        time.sleep(0.02)
    process.kill()
    process.wait()
    try:
        assert lock_job(str(tmp_path), job.key) is None
    finally:
        os.kill(int(job.log.read_text()), signal.SIGKILL)
    while (lock := lock_job(str(tmp_path), job.key)) is None and time.monotonic() < deadline:
        time.sleep(0.02)
    assert lock is not None
    lock.close()


def test_a_retraining_waits_for_its_turn_and_trains(tmp_path):
    spec = Composer().compose([*DONE, "retrain=true"]).spec
    write(record_of(DONE, run_id=f"20260131t120000-{spec.config_hash[:8]}-aaaaaa"), tmp_path)
    job = launch.Job([], "again", "20260131t120000-0123abcd-000001", str(tmp_path), 1, key_of(spec), spec)
    launch.Sweep([job], 1, lambda job: child("")).run()
    assert job.state == "crashed"  # it was started, and left no record


def test_the_child_command_is_one_run():
    job = launch.Job(["task=vit_res512", "seed=1"], "seed=1", "20260131t120000-0123abcd-000000", "runs", 1, key_of(compose([]).spec))
    assert launch.command(job, "s", "mine")[1:] == [
        "-P", "-m", "goatbench", "run", "--config-dir", "mine", "--run-id", job.run_id, "--sweep-id", "s", "task=vit_res512", "seed=1",
    ]  # fmt: skip


def test_time_left_is_the_median_shared_by_the_workers(tmp_path):
    jobs = make_jobs(tmp_path, "abcdef")
    assert seconds_left(jobs, 2, now=0) is None
    for job, seconds in zip(jobs[:3], (10, 20, 60), strict=True):
        job.state, job.seconds = "ok", seconds
    jobs[3].state, jobs[3].started = "running", 95
    # median 20; the running one needs 15 more, two wait: (15 + 2 * 20) / 2
    assert seconds_left(jobs, 2, now=100) == 27.5
    assert seconds_left(jobs[:4], 2, now=100) == 15  # one job cannot be shared

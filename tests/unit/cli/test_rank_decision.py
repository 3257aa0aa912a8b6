"""Of ranks that start together the first one decides, under its lock, whether the run trains; the others may look too early or too late."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace

import pytest
import torch

from goatbench import execute, rank_decision, weights
from goatbench.compose import compose
from goatbench.errors import PreemptedError, RankError, UsageError
from goatbench.rank_decision import REUSE, TRAIN
from goatbench.training.checkpoint import save_checkpoint

RUN_ID = "20260131t120000-0123abcd-45ef67"
TRAINING = "0123456789abcdef"
OTHER = "20260131t120000-0123abcd-000000"


@pytest.fixture
def ask(tmp_path):
    """ask(rank) -> (meta, reused) of that rank of two, whose training says that it is this run's."""
    spec = SimpleNamespace(runs_dir=str(tmp_path), retrain=False, trainer=SimpleNamespace(devices=2, num_nodes=1))
    (tmp_path / RUN_ID).mkdir()

    def train(spec, net, data, checkpoint, meta):
        save_checkpoint(checkpoint, net.state_dict(), meta)

    def of(rank):
        task = SimpleNamespace(train=train)
        return weights._load_or_train(spec, task, torch.nn.Linear(1, 1), None, tmp_path / TRAINING / "weights.pt", {"run_id": RUN_ID}, rank)

    return of


@pytest.fixture
def other_run(tmp_path):
    """other_run() writes the weights of another run that needs the same."""
    return lambda: save_checkpoint(tmp_path / TRAINING / "weights.pt", torch.nn.Linear(1, 1).state_dict(), {"run_id": OTHER})


@pytest.mark.parametrize("rank", [0, 1])
def test_what_the_first_rank_decides_is_done_by_all(ask, other_run, tmp_path, rank):
    other_run()
    assert ask(0) == ({"run_id": OTHER}, True) and rank_decision.decided(tmp_path / RUN_ID, TRAINING) == REUSE
    (tmp_path / TRAINING / "weights.pt").unlink()
    rank_decision.decide(tmp_path / RUN_ID, TRAIN, TRAINING)
    assert ask(rank) == ({"run_id": RUN_ID}, False) and rank_decision.decided(tmp_path / RUN_ID, TRAINING) == TRAIN


def test_a_rank_trains_with_the_first_though_it_sees_weights(ask, other_run, tmp_path):
    rank_decision.decide(tmp_path / RUN_ID, TRAIN, TRAINING)
    other_run()
    assert ask(1) == ({"run_id": RUN_ID}, False)


def test_a_rank_waits_while_another_run_trains_and_takes_its_weights_as_the_first_does(ask, other_run):
    found = []
    thread = threading.Thread(target=lambda: found.append(ask(1)))
    thread.start()
    time.sleep(0.3)  # the first rank waits for the lock
    assert thread.is_alive() and not found
    other_run()
    first = ask(0)
    thread.join(10)
    assert found == [first] == [({"run_id": OTHER}, True)]


def test_one_process_leaves_no_word(ask, tmp_path, monkeypatch):
    monkeypatch.setattr(rank_decision, "decide", None)
    spec = SimpleNamespace(runs_dir=str(tmp_path), retrain=False, trainer=SimpleNamespace(devices=1, num_nodes=1))
    task = SimpleNamespace(train=lambda spec, net, data, checkpoint, meta: save_checkpoint(checkpoint, net.state_dict(), meta))
    weights._load_or_train(spec, task, torch.nn.Linear(1, 1), None, tmp_path / TRAINING / "weights.pt", {"run_id": RUN_ID}, 0)


def test_a_first_rank_that_ended_without_a_word_is_not_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr(rank_decision, "POLL_SECONDS", 0.01)
    (tmp_path / "record.json").touch()
    with pytest.raises(RankError, match="has ended"):
        rank_decision.decided(tmp_path, TRAINING)
    folder = tmp_path / "refused"
    folder.mkdir()
    threading.Timer(0.1, folder.rmdir).start()
    with pytest.raises(RankError, match="has ended"):
        rank_decision.decided(folder, TRAINING)


def test_a_requeued_job_does_not_read_the_word_of_its_last_attempt(tmp_path, monkeypatch):
    rank_decision.decide(tmp_path, TRAIN, TRAINING)
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    rank_decision.decide(tmp_path, REUSE, TRAINING)
    assert rank_decision.decided(tmp_path, TRAINING) == REUSE and len(list(tmp_path.iterdir())) == 2
    rank_decision.forget(tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_run_that_stops_or_starts_forgets_what_was_decided(tmp_path, monkeypatch):
    composed = compose(["task=needle", "scale=smoke", f"runs_dir={tmp_path}"])
    folder, seen = tmp_path / RUN_ID, []

    def run(*_):
        seen.append(list(folder.glob("*decision*")))
        rank_decision.decide(folder, TRAIN, TRAINING)
        raise ends

    monkeypatch.setattr(execute, "_run", run)
    for ends in (GeneratorExit(), PreemptedError()):  # the first as of a process that was killed: nobody tidies up
        with pytest.raises(type(ends)):
            execute.execute(composed, RUN_ID)
    assert seen == [[], []] and not list(folder.glob("*decision*"))


@pytest.mark.parametrize("started", [{"RANK": "0"}, {"RANK": "1"}, {"SLURM_NTASKS": "2", "SLURM_PROCID": "1"}])
def test_ranks_that_start_together_need_one_run_id(started, tmp_path, monkeypatch):
    for name, value in started.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(execute, "_run", None)
    composed = compose(["task=needle", "scale=smoke", "trainer.devices=2", "trainer.strategy=ddp", f"runs_dir={tmp_path / 'runs'}"])
    with pytest.raises(UsageError, match="need one run id: give each the same --run-id"):
        execute.execute(composed)
    assert not (tmp_path / "runs").exists()


def test_a_rank_with_other_code_or_data_is_an_error_and_hangs_nobody(ask, tmp_path):
    rank_decision.decide(tmp_path / RUN_ID, TRAIN, "f" * 16)
    with pytest.raises(RankError, match="other code, data or settings than the first"):
        ask(1)


def test_a_long_wait_is_told(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(rank_decision, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(rank_decision, "TELL_AFTER_SECONDS", 0.05)
    thread = threading.Timer(0.3, rank_decision.decide, (tmp_path, TRAIN, TRAINING))
    thread.start()
    assert rank_decision.decided(tmp_path, TRAINING) == TRAIN
    assert capsys.readouterr().err.count("runs_dir must be one folder for all machines") == 1


@pytest.mark.parametrize(
    ("environment", "expected"),
    [({"NODE_RANK": "1"}, False), ({"LOCAL_RANK": "0"}, False), ({"LOCAL_RANK": "1"}, True), ({"LOCAL_RANK": "1", "RANK": "1"}, False)],
)
def test_only_a_rank_that_lightning_started_ends_with_its_parent(monkeypatch, environment, expected):
    """One that was started by hand outlives the shell that it was typed into."""
    for name in ("NODE_RANK", "LOCAL_RANK", "RANK"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert execute._is_started_by_lightning() == expected

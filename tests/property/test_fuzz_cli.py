"""Random words and damaged files through the command line: a record, a checkpoint, a configuration, a FASTA and its cache.

Each file is first given as it is, which works; then damaged, which is an answer, or one line and an exit code of the manual.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import torch
import yaml
from fuzzing import BYTE_CHANGES, CHANGES, TEXTS, changed, damaged, fuzz, nothing_written_outside
from hypothesis import given
from hypothesis import strategies as st

import goatbench.configs
from goatbench import cli
from goatbench.compose import compose
from goatbench.data.genome.sources import _load
from goatbench.models import build_decoder
from goatbench.training.checkpoint import save_checkpoint

RESULTS = Path(__file__).resolve().parents[2] / "results"
SMALL = ["data.num_train=8", "data.num_validation=4", "data.num_test=2", "training.epochs=1", "training.batch_size=4", "task.multiples=[1]"]


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """Everything of the test lies in its folder."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)}
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GOATBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("MPLCONFIGDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with nothing_written_outside(tmp_path):
        yield tmp_path
    for number, handler in handlers.items():
        signal.signal(number, handler)
    _load.cache_clear()


ARGUMENTS = st.lists(
    TEXTS.map(lambda text: text.replace("\0", "")) | st.sampled_from(["--scale", "--out", "--repro", "-m", "task=needle", "goat", "1e9"]),
    max_size=3,
)
QUICK = ("list", "show", "leaderboard", "compare", "submit", "plan", "export", "data", "nonsense")


def test_command_lines(capsys):
    """In this process: exit codes are those of the manual, and a mistake is one line."""

    @fuzz(20)
    @given(st.sampled_from(("show", "submit", "plan", "export", "data", "nonsense")), ARGUMENTS)
    def check(verb, arguments):
        with pytest.raises(SystemExit) as ended:
            cli.main([verb, *arguments])
        err = capsys.readouterr().err
        assert ended.value.code in (0, 1, 2)
        assert ended.value.code == 0 or (err.startswith("goatbench: ") and err.count("\n") == 1), (arguments, err)

    check()


@pytest.mark.slow
def test_command_lines_of_their_own_process(here):
    @fuzz(20)
    @given(st.sampled_from(QUICK), ARGUMENTS)
    def check(verb, arguments):
        words = [word.encode(errors="surrogateescape") if word.isprintable() else b"x" for word in (verb, *arguments)]
        done = subprocess.run([sys.executable, "-m", "goatbench", *words], cwd=here, capture_output=True, timeout=300)
        assert done.returncode in (0, 1, 2) and b"Traceback" not in done.stderr, done.stderr

    check()


def a_run(here):
    """The record and the scores of single examples of a published run, as if it had run here, and where its weights would be."""
    path = min(RESULTS.glob("genome_nll@v*/embedded/rope/*.json"), key=lambda path: path.stat().st_size)
    record = json.loads(path.read_text())
    weights = here / "runs" / "checkpoints" / record["training"]["training_hash"] / "weights.pt"
    folder = here / "runs" / record["run_id"]
    folder.mkdir(parents=True)
    shutil.copy(path, folder / "record.json")
    shutil.copy(path.with_suffix(".npz"), folder / "examples.npz")
    return folder / "record.json", folder / "examples.npz", weights


def of_show(here):
    path, *_ = a_run(here)
    return ["show", str(path)], [path]


def of_submit(here):
    path, scores, _ = a_run(here)
    return ["submit", str(path), "--results-dir", "results"], [path, scores]


def of_export(here):
    path, _, weights = a_run(here)
    spec = compose(["task=genome_nll", "attention=rope", "scale=smoke"]).spec
    record = json.loads(path.read_text())
    record["config"] |= {"model": spec.model.model_dump(mode="json"), "attention": spec.attention.model_dump(mode="json")}
    path.write_text(json.dumps(record))
    torch.manual_seed(0)
    save_checkpoint(weights, build_decoder(spec.model, spec.attention).state_dict(), {})
    return ["export", record["run_id"], "--out", "model"], [path, weights]


def of_run(here):
    other = here / "configs" / "data" / "other.yaml"
    other.parent.mkdir(parents=True)
    shutil.copy(Path(goatbench.configs.__path__[0]) / "data" / "synthetic.yaml", other)
    return ["run", "--config-dir", "configs", "task=needle", "scale=smoke", "data=other", *SMALL], [other]


def of_data_check(here):
    fasta, split = here / "x.fa", here / "split.tsv"
    fasta.write_text(">one\n" + "ACGTNacgtn" * 30 + "\n")
    rows = [("contig", "start", "end", "split"), ("one", 0, 100, "train"), ("one", 100, 200, "validation"), ("one", 200, 300, "test")]
    split.write_text("".join("\t".join(map(str, row)) + "\n" for row in rows))
    call = ["data", "check", "fasta", "data.fasta=x.fa", "data.split=file", "data.split_file=split.tsv"]
    with pytest.raises(SystemExit):
        cli.main(call)
    return call, [fasta, split, *(path for path in sorted((here / "cache").rglob("*")) if path.suffix in (".fai", ".json", ".codes"))]


def rewritten(path, content, of_bytes, of_values):
    """The content with its values changed where it has any, or else its bytes."""
    if of_values is None or path.suffix not in (".json", ".yaml"):
        return damaged(content, of_bytes)
    return json.dumps(changed(yaml.safe_load(content), of_values)).encode()


@pytest.mark.parametrize("prepare", [of_show, of_submit, of_export, of_run, of_data_check])
def test_damaged_files_through_the_command_line(prepare, here, capsys):
    """20 in all, and each first file cut in half, which is refused."""
    arguments, files = prepare(here)
    contents = {path: path.read_bytes() for path in files}

    def call():
        _load.cache_clear()
        for made in ("model", "results"):
            shutil.rmtree(here / made, ignore_errors=True)
        (here / "results").mkdir()
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            cli.main(arguments)
        err = capsys.readouterr().err
        return ended.value.code, [line for line in err.splitlines() if line.startswith("goatbench: ") and "note: " not in line], err

    assert call()[0] == 0

    @fuzz(4)
    @given(st.sampled_from(files), BYTE_CHANGES, st.none() | CHANGES)
    def check(path, of_bytes, of_values):
        for file, content in contents.items():
            file.write_bytes(content)
        path.write_bytes(rewritten(path, contents[path], of_bytes, of_values))
        answered()

    def answered():
        code, said, err = call()
        assert code in (0, 1, 2) and "Traceback" not in err, err
        is_told = len(said) == 1 or (arguments[0] == "data" and code == 1)  # what is broken in data is told where its facts are
        assert code == 0 or is_told, err
        return code

    check()
    files[0].write_bytes(contents[files[0]][: len(contents[files[0]]) // 2])
    assert answered() != 0

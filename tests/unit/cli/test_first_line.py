"""What `run` says before it imports anything heavy, also where nobody watches a terminal."""

import os
import subprocess
import sys

import pytest

from goatbench import cli, execute

RUN = ("run", "task=vit_res512", "attention=goat", "scale=smoke", "seed=3")
LINE = "vit_res512 with goat, scale smoke, seed 3: loading PyTorch and the data ..."
STAND_IN = "import os, sys\nprint('torch is imported', file=sys.stderr, flush=True)\nos._exit(7)\n"


def test_a_piped_run_says_what_it_is_before_torch_is_imported(tmp_path):
    """A stand-in for torch, found before the real one, ends the process."""
    (tmp_path / "torch.py").write_text(STAND_IN)
    done = subprocess.run(
        [sys.executable, "-P", "-m", "goatbench", *RUN],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr.splitlines()) == (7, "", [LINE, "torch is imported"])


@pytest.mark.parametrize(("rank", "lines"), [("0", [LINE]), ("1", [])])
def test_only_the_first_of_several_processes_says_it(rank, lines, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LOCAL_RANK", rank)
    monkeypatch.setattr(execute, "execute", lambda *_: None)
    monkeypatch.setattr(cli, "_handle_signals", lambda: None)
    with pytest.raises(SystemExit) as ended:
        cli.main(list(RUN))
    out, err = capsys.readouterr()
    assert (ended.value.code, out, err.splitlines()) == (0, "", lines)

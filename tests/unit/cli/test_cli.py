"""The shell: one line an error, exit codes, quick answers without torch and Hydra, help with examples."""

import re
import subprocess
import sys

import pytest
import yaml

from goatbench import __version__, cli, listing
from goatbench.registry import attentions

VERBS = ("run", "list", "show", "plan", "check", "leaderboard", "compare", "report", "submit", "export", "doctor")


def call(capsys, *arguments):
    """(exit code, stdout, stderr) of one command line, in this process."""
    with pytest.raises(SystemExit) as ended:
        cli.main(list(arguments))
    out, err = capsys.readouterr()
    return ended.value.code, out, err


MISTAKES = [
    (["run", "task=vit_res51"], "unknown task 'vit_res51'; did you mean 'vit_res512'?"),
    (["run", "attention=alibi", "task=vit_res512"], "did you mean attention=alibi_2d?"),
    (["run", "trainer.devces=2"], "did you mean 'trainer.devices'?"),
    (["run", "seed=0,1"], "goatbench run -m seed=0,1"),
    (["run", "-m", "attention=goat,gaot"], "did you mean 'goat'?"),
    (["run", "-j", "2"], "-j 2 needs -m"),
    (["run", "-j", "0", "-m"], "--jobs': Input should be greater"),
    (["run", "--cfg", "jb"], "Invalid value for '--cfg'"),
    (["run", "--config-dir", "/nowhere/at/all"], "--config-dir /nowhere/at/all is not a folder"),
    (["run", "-m", "--cfg", "job"], "-m goes with neither"),
    (["run", "--dry-run", "--cfg", "job"], "--cfg prints the configuration, --dry-run what would be started"),
    (["rnu"], "No such command 'rnu'"),
    (["run", "--sede", "1"], "No such option"),
    (["run", "--runs-dir", "there"], "(write runs_dir=PATH)"),
    (["plan", "-m", "task=needle"], "(plan takes a sweep as it stands)"),
    (["list", "taks"], "'taks' is not one of 'tasks'"),
    (["show", "gaot"], "nothing is called 'gaot'; did you mean 'goat'?"),
    (["show"], "Missing argument"),
    (["leaderboard", "task=vit_res51"], "did you mean 'vit_res512'?"),
    (["leaderboard", "attention=goat"], "is asked for with task=NAME"),
    (["leaderboard", "genome_nll", "--against", "rop", "--published"], "unknown row 'rop'; did you mean 'rope'?"),
    (["leaderboard", "--overall", "--against", "gaot", "--published"], "--against gaot: no task has this row"),
    (["leaderboard", "--metric", "top1"], "--metric top1 belongs to a task"),
    (["leaderboard", "--overall", "--plot", "x"], "it goes with neither --overall nor --against"),
    (["leaderboard", "--against", "gaot", "--scale", "embedded", "--published"], "unknown row 'gaot'; did you mean 'goat'?"),
    (["leaderboard", "genome_nll", "--out", "/"], "--out / is a folder"),
    (["leaderboard", "genome_nll", "--format", "pdf"], "'pdf' is not one of"),
    (["compare", "gaot", "rope"], "no results of 'gaot'; did you mean 'goat'?"),
    (["compare", "goat"], "Missing argument"),
    (["compare", "20261129t202833-0d61a9b3-ffffff", "goat"], "no finished run 20261129t202833-0d61a9b3-ffffff"),
    (["show", "goat", "--repro"], "'goat' is no run id"),
    (["submit", "no-such-run"], "neither a run id"),
    (["plan", "task=vit_res51"], "did you mean 'vit_res512'?"),
    (["plan", "--memory", "much"], "--memory 'much' is no amount of memory"),
    (["plan", "--memory", "80"], "--memory 80 has no unit: write 80GiB"),
    (["plan", "--throughput", "-5"], "--throughput -5 is no number above 0"),
    (["run", "task=needle", "attention=rope", "task=lm_length"], "task is given twice, as task=needle and task=lm_length"),
    (["plan", "seed=1", "++seed=2"], "seed is given twice, as seed=1 and ++seed=2"),
    (["export", "20261129t202833-0d61a9b3-ffffff"], "Missing option"),
    (["data", "chek"], "No such command 'chek'"),
    (["run", "=3"], "cannot read '=3': write key=value"),
    (["plan", "task=needle", "=3"], "cannot read '=3': write key=value"),
    (["run", "task=genome_nll", "data=fasta", "data.fasta=no.fa", "data.split=instadeep"], "data.fasta=no.fa: there is no such file"),
    (["run", f"task={'x' * 3000}"], f"unknown task '{'x' * 60}...'"),
]


@pytest.mark.parametrize(("arguments", "expected"), MISTAKES, ids=[" ".join(mistake[0]) for mistake in MISTAKES])
def test_a_mistake_is_one_line_on_stderr_and_exit_code_2(capsys, arguments, expected):
    code, out, err = call(capsys, *arguments)
    assert code == 2
    assert err.startswith("goatbench: ") and expected in err
    assert err.count("\n") == 1 and out == ""


@pytest.mark.parametrize("runs_dir", ["afile", "afile/runs"])
@pytest.mark.parametrize("sweep", [[], ["-m"]])
def test_a_file_is_no_runs_dir(tmp_path, capsys, monkeypatch, runs_dir, sweep):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "afile").touch()
    code, _, err = call(capsys, "run", *sweep, "task=needle", "attention=rope", f"runs_dir={runs_dir}")
    assert (code, err) == (2, f"goatbench: runs_dir={runs_dir}: afile is a file; name a folder with runs_dir=PATH\n")


def test_a_mistake_leaves_nothing_behind(tmp_path):
    """A process of its own: no traceback, no folder, no data read."""
    done = subprocess.run(
        [sys.executable, "-m", "goatbench", "run", "task=vit_res51"], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2
    assert done.stderr.startswith("goatbench: unknown task") and len(done.stderr.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


QUICK = [
    ["--help"],
    ["run", "--help"],
    ["plan", "--help"],
    ["data", "check", "--help"],
    ["list"],
    ["show", "vit_res512"],
    ["show", "goat"],
    ["show", "embedded"],
    ["show", "20261130t100746-0d61a9b3-daf159"],
    ["leaderboard", "vit_res512", "--runs-dir", "."],
    ["leaderboard", "--overall", "--runs-dir", "."],
    ["compare", "goat", "rope", "--runs-dir", "."],
    ["report", "--out", "report.html", "--runs-dir", "."],
    ["run", "task=needel"],
    ["plan", "attention=gaot"],
]


@pytest.mark.parametrize("arguments", QUICK, ids=" ".join)
def test_quick_verbs_import_neither_torch_nor_hydra(tmp_path, arguments):
    script = (
        "import sys\nfrom goatbench.cli import main\n"
        f"try:\n    main({arguments!r})\nexcept SystemExit:\n    pass\n"
        "heavy = {'torch', 'hydra', 'omegaconf', 'lightning', 'timm', 'numpy', 'matplotlib'} & set(sys.modules)\n"
        "print('HEAVY', sorted(heavy))"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    reads_arrays = arguments[0] in ("compare", "report")  # scores of single examples
    allowed = ["HEAVY []", "HEAVY ['numpy']"] if reads_arrays else ["HEAVY []"]
    assert done.stdout.splitlines()[-1] in allowed, done.stdout + done.stderr


def test_help_of_a_benchmark_imports_no_torch():
    script = (
        "import sys\nfrom goatbench.cli import main\n"
        "for name in ('attention', 'decoder', 'genome_loader', 'gpu', 'image_loader'):\n"
        "    try:\n        main(['bench', name, '--help'])\n    except SystemExit as ended:\n        assert ended.code == 0\n"
        "assert not {'torch', 'numpy', 'hydra'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and done.stdout.count("usage: goatbench bench ") == 5, done.stderr


def test_importing_the_package_imports_nothing_heavy():
    script = "import sys, goatbench; print(sorted({'torch', 'pydantic', 'typer', 'yaml'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60).stdout.strip() == "[]"


@pytest.mark.parametrize("verb", VERBS)
def test_help_of_each_verb_shows_an_example(capsys, verb):
    code, out, _ = call(capsys, verb, "--help")
    assert code == 0
    assert re.search(rf"Example: goatbench {verb}\b", out)


def test_every_name_in_the_examples_exists(capsys):
    """The examples that cost nothing run as they stand; those of run are composed."""
    for verb in ("list", "show", "leaderboard", "compare"):
        example = re.search(r"Example: goatbench (.*)", call(capsys, verb, "--help")[1]).group(1)
        assert call(capsys, *example.split())[0] == 0
    text = " ".join(call(capsys, "run", "--help")[1].split())
    example = re.search(r"Example: goatbench (run .*?) Sweep:", text).group(1)
    assert call(capsys, *example.split(), "--cfg", "job")[0] == 0


def test_cfg_job_prints_the_resolved_configuration(capsys):
    code, out, _ = call(capsys, "run", "--cfg", "job", "attention=nope", "seed=3", "scale=smoke")
    values = yaml.safe_load(out)
    assert code == 0
    assert (values["seed"], values["attention"]["name"], values["scale"], values["domain"]) == (3, "nope", "smoke", "vision")
    assert values["training"]["epochs"] == 1


def test_options_may_stand_anywhere(capsys):
    between, before = ("seed=3", "--cfg", "job", "attention=nope"), ("--cfg", "job", "seed=3", "attention=nope")
    assert call(capsys, "run", *between) == call(capsys, "run", *before)


def test_list_names_every_attention_with_its_axes(capsys):
    code, out, _ = call(capsys, "list", "attentions")
    lines = {line.split()[0]: line for line in out.splitlines()[1:]}
    assert code == 0 and set(attentions.names()) <= set(lines)
    assert "[1D 2D]" in lines["goat"] and "[1D   ]" in lines["alibi"] and "[2D   ]" in lines["alibi_2d"]


def test_list_says_what_each_attention_costs(capsys):
    """What follows from the mechanisms: lanes stay in the flash kernel, convolved logits are written out, vectors at the input stay put."""
    out = call(capsys, "list", "attentions")[1]
    cells = {line.split()[0]: line.split("]")[-1].split()[:3] for line in out.splitlines()}
    assert cells["goat"] == cells["rope"] == cells["alibi"] == ["sdpa-flash", "chunks", "linear"]
    assert cells["mta"] == ["written-out", "tokens", "quadratic"]
    assert cells["t5"] == ["sdpa-math", "chunks", "quadratic"]
    assert cells["sinusoidal"] == ["sdpa-flash", "no", "linear"] and cells["rope_axial"] == ["sdpa-flash", "-", "linear"]
    assert max(map(len, out.splitlines())) <= 110


def test_rows_of_others_have_no_capabilities(capsys, tmp_path):
    (tmp_path / "attention").mkdir()
    (tmp_path / "attention" / "mine.yaml").write_text("# One of my own.\nname: mine\nposition: rope\naxes: [1]\n", encoding="utf-8")
    code, out, _ = call(capsys, "list", "attentions", "--config-dir", str(tmp_path))
    (line,) = [line for line in out.splitlines() if line.split()[0] == "mine"]
    assert code == 0 and line.split("]")[1].split()[:3] == ["-", "-", "-"] and "(from" in line


def test_list_has_every_section(capsys):
    out = call(capsys, "list")[1]
    for section, group in listing.SECTIONS.items():
        assert f"{section} ({group}=NAME)" in out


def test_show_a_task_tells_the_card(capsys):
    out = call(capsys, "show", "task=vit_res512")[1]
    assert "task vit_res512, version" in out and "top1 at nominal 512, higher is better" in out
    for part in ("what", "protocol", "nats", "chance", "time", "source", "expected"):
        assert part in out


def test_show_an_attention_tells_source_values_and_docstring(capsys):
    out = call(capsys, "show", "alibi_2d")[1]
    assert "goatbench.attention.priors.alibi:Alibi2D" in out
    assert "Expected" in out and "axes: [2]" in out
    assert "Euclidean" in out


def test_bare_call_prints_help(capsys):
    code, out, _ = call(capsys)
    assert "Commands:" in out and code in (0, 2)


def test_version(capsys):
    assert call(capsys, "--version")[:2] == (0, f"{__version__}\n")


def test_interrupt_is_130(monkeypatch, capsys):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(listing, "list_lines", interrupted)
    code, _, err = call(capsys, "list")
    assert (code, err.strip()) == (130, "goatbench: interrupted")


def test_a_misspelled_choice_is_answered_with_the_nearest(capsys):
    code, _, error = call(capsys, "list", "atentions")
    assert code == 2 and "'atentions' is not one of" in error and "Did you mean 'attentions'?" in error and "Value error" not in error

"""README says what is true: its examples run, its tables are what the commands print, its commands exist."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.S)


def marked(name: str) -> str:
    return re.search(rf"<!-- {re.escape(name)} -->\n(.*?)<!-- /", README, flags=re.S).group(1)


def goatbench(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "goatbench", *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=300, check=False)


def test_the_core_serves_in_ones_own_model():
    (example,) = [block for block in blocks("python") if "Positions.line" in block]
    values: dict = {}
    exec(compile(example, "README.md", "exec"), values)
    assert values["y"].shape == (1, 256, 128) and values["y"].isfinite().all()
    assert values["logits"].shape == (1, 10) and values["logits"].isfinite().all()


def test_the_attention_in_20_lines_is_at_work():
    import torch

    from goatbench.models.vit import GoatViT

    (example,) = [block for block in blocks("python") if "SameRow" in block]
    values: dict = {}
    exec(compile(example, "README.md", "exec"), values)
    body = example[example.index("class SameRow") : example.index("def register")]
    assert len([line for line in body.splitlines() if line.strip()]) <= 20
    torch.manual_seed(0)
    net = GoatViT(values["SameRow"], img_size=12, patch_size=2, in_chans=1, num_classes=4, embed_dim=32, depth=1, num_heads=2).eval()
    images = torch.randn(2, 1, 8, 12)
    with torch.no_grad():
        before = net(images)
        net.blocks[0].attn.scheme.weight.fill_(2.0)
        after = net(images)
    assert not torch.allclose(before, after, atol=1e-4)  # the prior reaches the output
    net(images).sum().backward()
    assert net.blocks[0].attn.scheme.weight.grad.abs().min() > 0


FIGURES = re.findall(r"\(results/figures/(\w+)(-(\w+))?\.svg\)", README)
BOARDS = re.findall(r"<!-- leaderboard:(\w+) -->", README)


@pytest.mark.parametrize("task", BOARDS)
def test_the_leaderboard_is_what_the_command_prints(task, tmp_path):
    done = goatbench("leaderboard", f"task={task}", "--scale", "embedded", "--format", "md", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert marked(f"leaderboard:{task}").strip() == done.stdout.strip(), "README's table is stale: make readme"


@pytest.mark.parametrize("line", [line for block in blocks("") for line in block.splitlines() if line.startswith("goatbench run")])
def test_every_run_line_composes(line, tmp_path):
    words = [w for w in line.partition("#")[0].split()[2:] if w not in ("-m", "--cfg", "job")]
    words = [w for n, w in enumerate(words) if not (w == "-j" or (n and words[n - 1] == "-j"))]
    single = [word.partition(",")[0] for word in words]
    done = goatbench("run", "--cfg", "job", *single, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert not list(tmp_path.iterdir())  # nothing was started


def write() -> None:
    """Put the leaderboards as they now are into README (make readme)."""
    text = README
    for task in BOARDS:
        done = goatbench("leaderboard", f"task={task}", "--scale", "embedded", "--format", "md", cwd=ROOT / "results")
        assert done.returncode == 0, done.stderr
        fresh = f"<!-- leaderboard:{task} -->\n{done.stdout.strip()}\n<!-- /"
        text = re.sub(rf"<!-- leaderboard:{task} -->\n.*?<!-- /", lambda _, new=fresh: new, text, count=1, flags=re.S)
    (ROOT / "README.md").write_text(text, encoding="utf-8")
    for task, _, what in FIGURES:  # TASK.svg, TASK-METRIC.svg or TASK-heatmap.svg
        figure = ROOT / "results" / "figures" / (f"{task}-{what}" if what else task)
        how = ["--kind", "heatmap"] if what == "heatmap" else ["--metric", what] if what else []
        done = goatbench("leaderboard", f"task={task}", "--scale", "embedded", "--plot", str(figure), *how, cwd=ROOT / "results")
        assert done.returncode == 0, done.stderr
        figure.with_suffix(".png").unlink()


def test_figures_exist_and_carry_the_rows_of_their_board():
    assert FIGURES
    for task, what, _ in FIGURES:
        figure = f"results/figures/{task}{what}.svg"
        text = (ROOT / figure).read_text(encoding="utf-8")
        board = marked(f"leaderboard:{task}")
        rows = [row for row in re.findall(r"^\| \S* \| ([\w.]+)", board, flags=re.M) if row != "row"]
        assert len(rows) > 2
        for row in rows:
            assert f"<!-- {row}" in text, f"{figure} lacks {row}: make readme"


def test_make_targets_exist():
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"^make (\S+)", "\n".join(blocks("")), flags=re.M):
        assert re.search(rf"^{target}:", makefile, flags=re.M), target


if __name__ == "__main__":
    write()

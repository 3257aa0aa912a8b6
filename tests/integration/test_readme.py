"""README and docs/ say what is true: examples run, tables are what the commands print, commands and links exist (`make readme`)."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from goatbench.plots.boards import MAX_LINES

ROOT = Path(__file__).resolve().parents[2]
SCALES = "configs/scale/README.md"
PATHS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / SCALES]
PAGES = {path.relative_to(ROOT).as_posix(): path.read_text("utf-8") for path in PATHS}
SHELL = ("", "bash", "sh")
# leaderboard: as the command prints it; table: without the notes, ablations and rows of one seed; plain: without variants either
MARKED = re.compile(r"<!-- (leaderboard|table):(\w+)( plain)? -->\n(.*?)<!-- /\1 -->", flags=re.S)
CONTENTS = re.compile(r"(?<=<!-- contents -->\n).*?(?=<!-- /contents -->)", flags=re.S)
BOARDS = [(page, *found.groups()) for page, text in PAGES.items() for found in MARKED.finditer(text)]
FIGURES = sorted({found for text in PAGES.values() for found in re.findall(r"results/figures/(\w+)(-(\w+))?\.svg\)", text)})


def blocks(*languages: str, pages: tuple[str, ...] = tuple(PAGES)) -> list[str]:
    found = [block for page in pages for block in re.findall(r"^```(\w*)\n(.*?)^```$", PAGES[page], flags=re.M | re.S)]
    return [content for language, content in found if language in languages]


def lines(start: str, pages: tuple[str, ...] = tuple(PAGES)) -> list[str]:
    return list(dict.fromkeys(line for block in blocks(*SHELL, pages=pages) for line in block.splitlines() if line.startswith(start)))


def goatbench(*arguments: str) -> str:
    command = [sys.executable, "-P", "-m", "goatbench", *arguments]
    done = subprocess.run(command, cwd=ROOT / "results", capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@cache
def board(task: str) -> str:
    return goatbench("leaderboard", f"task={task}", "--scale", "embedded", "--format", "md")


def shown(kind: str, task: str, plain: str | None) -> str:
    if kind == "leaderboard":
        return board(task)
    rows = board(task).partition("\n\n<details>")[0].splitlines()
    left_out = "\\[" if plain else "\\[attention."
    return "\n".join(row for row in rows if left_out not in row and "±?" not in row)


def contents() -> str:
    titles = {page: text.splitlines()[0].removeprefix("# ") for page, text in PAGES.items() if page.startswith("docs/")}
    return "".join(f"- [{page}]({page}): {title}\n" for page, title in titles.items())


def test_the_core_serves_in_ones_own_model():
    (example,) = [block for block in blocks("python", pages=("README.md",)) if "Positions.line" in block]
    values: dict = {}
    exec(compile(example, "README.md", "exec"), values)
    assert values["y"].shape == (1, 256, 128) and values["y"].isfinite().all()
    assert values["logits"].shape == (1, 10) and values["logits"].isfinite().all()


def test_the_attention_in_20_lines_is_at_work():
    import torch

    from goatbench.attention import Positions
    from goatbench.attention.positions import Scattered
    from goatbench.models.vit import GoatViT

    (example,) = [block for block in blocks("python", pages=("README.md",)) if "SameRow" in block]
    values: dict = {}
    exec(compile(example, "README.md", "exec"), values)
    body = example[example.index("class SameRow") : example.index("def register")]
    assert len([line for line in body.splitlines() if line.strip()]) <= 20
    torch.manual_seed(0)
    net = GoatViT(values["SameRow"], img_size=12, patch_size=2, in_chans=1, num_classes=4, embed_dim=32, depth=2, num_heads=2).eval()
    images = torch.randn(2, 1, 8, 12)
    with torch.no_grad():
        before = net(images)
        net.blocks[0].attn.scheme.weight.fill_(2.0)
        after = net(images)
    assert not torch.allclose(before, after, atol=1e-5, rtol=0)  # the prior reaches the output, by the next layer: CLS itself has no row
    net(images).sum().backward()
    assert net.blocks[0].attn.scheme.weight.grad.abs().min() > 0
    grid = Positions.grid(2, 2, 1)
    moved = replace(grid, layout=Scattered(5), coords=torch.cat((grid.coords, grid.coords.flip(-1))))  # row 1 of the batch: transposed
    bias = net.blocks[0].attn.scheme.prior(moved, moved).dense(2, 5, 5, batch=2)
    assert (bias[:, :, 0] == 0).all() and (bias[..., 0] == 0).all()  # CLS lies in no row
    assert bias[0, 0, 1].tolist() == [0, 2, 2, 0, 0] and bias[1, 0, 1].tolist() == [0, 2, 0, 2, 0]


@pytest.mark.parametrize("page", [page for page in PAGES if page != "README.md" and blocks("python", pages=(page,))])
def test_examples_run(page):
    """The blocks of a page are one program. What it calls `y` has the shape that its last comment names."""
    code = "\n".join(blocks("python", pages=(page,)))
    values: dict = {}
    exec(compile(code, page, "exec"), values)
    for shape in re.findall(r"^y = .*# .*\[([\d, ]+)\]$", code, flags=re.M):
        assert list(values["y"].shape) == [int(size) for size in shape.split(",")]


@pytest.mark.parametrize(("page", "kind", "task", "plain", "text"), BOARDS, ids=[f"{page}-{task}" for page, _, task, *_ in BOARDS])
def test_the_table_is_what_the_command_prints(page, kind, task, plain, text):
    assert text.strip() == shown(kind, task, plain), f"{page} is stale: make readme"


def test_the_contents_name_every_page():
    assert CONTENTS.search(PAGES["README.md"]).group(0) == contents(), "README's contents are stale: make readme"


@pytest.fixture(scope="module")
def composer():
    from goatbench.compose import Composer

    return Composer()


@pytest.mark.parametrize("line", [*lines("goatbench run"), *lines("goatbench plan")])
def test_every_run_line_composes(composer, line):
    words = [word for word in shlex.split(line, comments=True) if "=" in word]
    assert words
    jobs = composer.split_sweep(words)
    for job in (jobs[0], *jobs[1:][-1:]):
        composer.compose(job)


@pytest.mark.parametrize("line", [line for line in lines("goatbench") if "--install-completion" not in line])
def test_every_command_and_its_options_exist(line):
    """Behind an option that does not exist, --help is an error like anything else."""
    from typer.testing import CliRunner

    from goatbench.cli import app

    done = CliRunner().invoke(app, [*shlex.split(line, comments=True)[1:], "--help"])
    assert done.exit_code == 0 and "usage" in done.output.lower(), done.output


PRINTS = {"--cfg": "kind: images|kind: genome|kind: text", "--dry-run": "#SBATCH --partition=gpu"}  # and runs nothing
PRINTING = [line for line in lines("goatbench", (SCALES,)) if PRINTS.keys() & set(line.split())]


@pytest.mark.parametrize("line", [pytest.param(line, marks=pytest.mark.slow if i else ()) for i, line in enumerate(PRINTING)])
def test_what_the_scales_page_prints_is_printed(line, tmp_path, monkeypatch, capsys):
    from goatbench.cli import main

    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main(shlex.split(line)[1:])
    said = capsys.readouterr()
    assert ended.value.code == 0, said.err
    (option,) = PRINTS.keys() & set(line.split())
    assert re.search(PRINTS[option], said.out) and not list(tmp_path.rglob("record.json"))


@pytest.mark.slow
@pytest.mark.parametrize("line", [line for line in lines("goatbench", (SCALES,)) if line not in PRINTING])
def test_the_other_commands_of_the_scales_page_run(line, tmp_path):
    command = [sys.executable, "-P", "-m", "goatbench", *shlex.split(line)[1:]]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=1800, check=False)
    assert done.returncode == 0, done.stderr
    if " plan " in line:  # what the page says of it
        sizes = re.findall(r"[\d.]+ GiB", done.stdout)
        assert sizes
        if "vit_resolution" in line:
            assert sizes[0] in PAGES[SCALES]
            refused = [word for word in shlex.split(line)[1:] if not word.startswith("trainer.accumulate")]
            done = subprocess.run([*command[:4], *refused], cwd=tmp_path, capture_output=True, text=True, timeout=1800, check=False)
            assert done.returncode == 2 and f"{re.findall(r'[0-9.]+ GiB', done.stdout)[0]} a device" in PAGES[SCALES]
    if " run " in line:
        (record,) = [json.loads(path.read_text()) for path in tmp_path.rglob("record.json")]
        assert record["status"] == "ok" and record["config"]["trainer"]["devices"] == 2
        assert all(m["n"] > 0 for m in record["measurements"])


def test_make_targets_exist():
    makefile = (ROOT / "Makefile").read_text()
    targets = [line.split()[1] for line in lines("make ")]
    assert "demo" in targets and "test" in targets
    for target in targets:
        assert re.search(rf"^{target}:", makefile, flags=re.M), target


def headings(page: Path) -> set[str]:
    """The anchors of a page, as GitHub forms them."""
    titles = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.M | re.S), flags=re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", [*PAGES, "results/README.md"])
def test_links_lead_somewhere(page):
    here = ROOT / page
    links = re.findall(r"\]\(([^)\s]+)\)", here.read_text("utf-8"))
    for link in links:
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = (here.parent / path).resolve() if path else here
        assert target.exists() and target.is_relative_to(ROOT), link
        assert not anchor or anchor in headings(target), link


def test_figures_exist_and_carry_the_rows_of_their_board():
    assert FIGURES
    full = {task: text for _, kind, task, _, text in BOARDS if kind == "leaderboard"}
    for task, what, _ in FIGURES:
        figure = f"results/figures/{task}{what}.svg"
        text = (ROOT / figure).read_text(encoding="utf-8")
        listed = re.findall(r"^\| \S* \| ([\w.]+)(?:.*?±(\d)?)?", full[task], flags=re.M)  # one seed: ±?
        rows = {row for row, _ in listed if row != "row"}
        several = {row for row, spread in listed if spread}
        assert len(rows) > 2
        for row in rows if len(rows) <= MAX_LINES else several:
            assert f"<!-- {row}" in text, f"{figure} lacks {row}: make readme"


def write() -> None:
    """Put tables, contents and figures as they now are into README and docs/ (make readme)."""
    for page, text in PAGES.items():
        for found in MARKED.finditer(text):
            kind, task, plain, _ = found.groups()
            text = text.replace(found.group(0), f"<!-- {kind}:{task}{plain or ''} -->\n{shown(kind, task, plain)}\n<!-- /{kind} -->")
        (ROOT / page).write_text(CONTENTS.sub(lambda _: contents(), text), encoding="utf-8")
    for task, _, what in FIGURES:  # TASK.svg, TASK-METRIC.svg or TASK-heatmap.svg
        figure = ROOT / "results" / "figures" / (f"{task}-{what}" if what else task)
        how = ["--kind", "heatmap"] if what == "heatmap" else ["--metric", what] if what else []
        goatbench("leaderboard", f"task={task}", "--scale", "embedded", "--plot", str(figure), *how)
        figure.with_suffix(".png").unlink()


if __name__ == "__main__":
    write()

"""results/LEADERBOARD.md is what the records say now; many records of other tasks cost a board nothing."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest

from goatbench.boards import Asked, Format, Places, print_boards
from goatbench.records.layout import placed_at
from goatbench.records.record import RunRecord

RESULTS = Path(__file__).resolve().parents[3] / "results"


def test_the_committed_page_is_up_to_date(tmp_path, capsys):
    print_boards(Asked(scale="embedded"), Places(None, str(RESULTS)), Format.MD, str(tmp_path / "page.md"))
    assert (tmp_path / "page.md").read_bytes() == (RESULTS / "LEADERBOARD.md").read_bytes(), "results/LEADERBOARD.md is stale: make readme"
    assert "reported" not in (RESULTS / "LEADERBOARD.md").read_text()  # nothing from papers beside embedded scale
    assert (RESULTS / "LEADERBOARD.md").stat().st_size < 400_000  # GitHub shows no Markdown beyond 512 kB


def test_a_board_of_400_records_among_ten_thousand_in_under_a_second(tmp_path, capsys):
    """25 tasks of 400 records (80 rows, five seeds): those of the other 24 are not read."""
    paths = _publish(tmp_path, 400, ["genome_nll", *(f"other_{i}" for i in range(24))])
    _assert_a_board_takes(1, tmp_path, paths, idle_yardstick=0.06)
    assert capsys.readouterr().out.count("row7") >= 11  # row7 and row70 to row79


@pytest.mark.slow
def test_a_board_of_ten_thousand_records_in_under_three_seconds(tmp_path, capsys):
    """All of one task: 2,000 rows, five seeds."""
    paths = _publish(tmp_path, 10_000, ["genome_nll"])
    _assert_a_board_takes(3, tmp_path, paths, idle_yardstick=1.5)
    assert len(set(re.findall(r"row\d+", capsys.readouterr().out))) == 2000


def _publish(folder: Path, count: int, names: list[str]) -> list[Path]:
    """`count` records of each of these tasks, five seeds a row; the paths of the first task's."""
    template = json.loads(next(iter(sorted((RESULTS / "genome_nll@v1" / "embedded" / "goat").glob("*.json")))).read_text())
    template["curves"] = []
    for i in range(count):
        template |= {"run_id": f"20260102t030400-0123abcd-{i:06x}", "row": {"attention": f"row{i // 5}", "variant": {}}, "seed": i % 5}
        text = json.dumps(template)
        for name in names:
            path = folder / f"{name}@v1" / "embedded" / f"row{i // 5}" / f"{template['run_id']}.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text.replace('"genome_nll"', f'"{name}"'))
    paths = sorted((folder / f"{names[0]}@v1").rglob("*.json"))
    assert len(paths) == count and placed_at(RunRecord.model_validate_json(paths[0].read_text())) == paths[0].relative_to(folder)
    return paths


def _assert_a_board_takes(seconds: float, folder: Path, paths: list[Path], idle_yardstick: float) -> None:
    """At most so many seconds of processor time, scaled by what json.loads takes for these files now; idle_yardstick: on an idle core
    of the machine where this was written."""
    yardstick = _cpu_seconds(lambda: [json.loads(path.read_bytes()) for path in paths])
    taken = _cpu_seconds(lambda: print_boards(Asked(("genome_nll",)), Places(None, str(folder))))
    assert taken < seconds * max(1.0, yardstick / idle_yardstick), (taken, yardstick)


def _cpu_seconds(work) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started

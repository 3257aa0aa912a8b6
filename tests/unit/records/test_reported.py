"""Numbers from papers: the shipped files are valid and as the source has them, and they stand apart from what was measured."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from goatbench.records.board import markdown, to_text
from goatbench.records.reported import read_reported, reported_boards

ROOT = Path(__file__).resolve().parents[3] / "results"


def test_the_shipped_tables_are_valid_and_name_their_place():
    warnings: list[str] = []
    tables = read_reported(ROOT, warnings)
    assert warnings == [] and len(tables) == len(list((ROOT / "reported").glob("*.json"))) == 9
    for table in tables:
        assert table.scale == "paper" and ("arXiv" in table.source or "repository" in table.source)
        assert "able" in table.place  # Table 1, result tables, ...


def test_figures_stand_as_in_the_source():
    """LookHere's Table 1: 81.62 % at 512 px for LH-45; RoPE-ViT's README: 81.8 % at 384 px for RoPE-Mixed on ViT-S."""
    look, rope = reported_boards("vit_resolution", read_reported(ROOT, []))
    cells = {row.name: {key: cell.text for key, cell in row.cells.items()} for board in (look, rope) for row in board.rows}
    assert cells["LookHere-45"]["512"] == "81.62" and cells["LookHere-45"]["1024"] == "73.15"
    assert cells["ViT-S RoPE-Mixed"] == {"224": "80.9", "384": "81.8"}
    assert "arXiv 2405.13985, Tables 1, 6 and 7" in look.notes[0]


def test_the_block_task_stands_as_in_its_table_and_seed_by_seed():
    """Error in per cent: Table 1 of Multi-Token Attention, and of whole blocks of 5 letters the README of its code, which has the seeds."""
    tables = read_reported(ROOT, [])
    shown = lambda task: [
        {row.name: [cell.text for cell in row.cells.values()] for row in board.rows} for board in reported_boards(task, tables)
    ]
    seeds = {
        "Transformer on H100": ["77.7", "75.3", "1.9"], "MTA on H100": ["0.0", "0.0", "0.2"],
        "Transformer on H200": ["83.9", "83.1", "37.6"], "MTA on H200": ["0.1", "0.0", "0.1"],
    }  # fmt: skip
    assert shown("toy_blocks") == [seeds]
    means = {"toy_blocks_first": 78.2, "toy_blocks_last": 1.3, "toy_blocks8": 31.2, "toy_blocks8_first": 28.9, "toy_blocks8_last": 58.4}
    for task, plain in means.items():
        mta = "0.1" if task == "toy_blocks8" else "0.0"
        assert shown(task) == [{"Transformer": [f"{plain}"], "MTA": [mta]}], task
    assert shown("multi_needle") == [
        {"Transformer 3B": ["100", "85", "62", "55"], "DIFF Transformer 3B": ["100", "92", "84", "85"]}
    ]  # found of so many needles
    (board,) = reported_boards("toy_blocks8_last", tables)
    assert any("Transformer at 3: standard deviation over seeds 46.8 per cent" in note for note in board.notes)


def test_reported_rows_are_marked_and_not_ranked():
    (board, *_) = reported_boards("vit_resolution", read_reported(ROOT, []))
    assert all(row.rank == "" and row.label.endswith(" (reported)") and row.is_reported for row in board.rows)
    assert "not measured here" in board.title and board.facts["kind"] == "reported"
    assert "LookHere-45 (reported)" in to_text(board, 120) and "LookHere-45 (reported)" in markdown(board)
    assert reported_boards("genome_nll", read_reported(ROOT, [])) == []


def test_a_wrong_file_is_skipped_and_named(tmp_path):
    (tmp_path / "reported").mkdir()
    shutil.copy(ROOT / "reported" / "lookhere.json", tmp_path / "reported" / "a.json")
    good = json.loads((ROOT / "reported" / "lookhere.json").read_text())
    for name, change in (("b", {"scale": "embedded"}), ("c", {"source": ""}), ("d", {"figures": good["figures"] + good["figures"][:1]})):
        (tmp_path / "reported" / f"{name}.json").write_text(json.dumps({**good, **change}))
    (tmp_path / "reported" / "e.json").symlink_to(tmp_path / "reported" / "a.json")
    warnings: list[str] = []
    assert len(read_reported(tmp_path, warnings)) == 1
    assert len(warnings) == 4 and "b.json: scale" in warnings[0] and "source" in warnings[1]
    assert "two figures" in warnings[2] and "symbolic link" in warnings[3]
    assert read_reported(tmp_path / "nowhere", warnings) == []

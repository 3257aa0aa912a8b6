"""Per-example scores on disk: small, hashed, the same bytes each time, and refused in one line if they are not what the record says."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile

import numpy as np
import pytest

from goatbench.errors import UsageError
from goatbench.records import examples
from goatbench.records.canonical import canonical_json
from goatbench.records.examples import EXAMPLES, read_examples, write_examples
from goatbench.records.files import record_bytes
from goatbench.records.record import Examples, RunRecord
from goatbench.records.store import RunFolder, iter_records, placed_at, submit

TOP = {"nominal": 512, "resolution": 28, "coords": "raw", "split": "test"}
CORRECT = np.array([True, False, True, True, False])  # 0.6
NLL = np.array([1.0, 2.0, 4.0], np.float32)  # weighted by 1, 1, 2: 11 / 4


def scored(make_record, folder, stored=None, **changes):
    """A record with top1 0.6 and nll 2.75 at 512, and the file of its scores in `folder`."""
    record = make_record(scores={"raw": {(512, 28): 0.6}}, nll={"raw": {(512, 28): 2.75}}, **changes)
    stored = [Examples("top1", TOP, CORRECT), Examples("nll_nats", TOP, NLL, np.array([1, 1, 2]))] if stored is None else stored
    folder.mkdir(parents=True, exist_ok=True)
    info, left_out = write_examples(folder, stored)
    assert left_out == []
    return RunRecord.model_validate(record.model_dump() | {"examples": info.model_dump()})


def test_scores_come_back_as_they_went(tmp_path, make_record):
    record = scored(make_record, tmp_path)
    _, loaded = read_examples(record, tmp_path / EXAMPLES)
    correct, no_weights = loaded["top1", canonical_json(TOP)]
    nll, weights = loaded["nll_nats", canonical_json(TOP)]
    assert correct.dtype == bool and correct.tolist() == CORRECT.tolist() and no_weights is None
    assert nll.dtype == np.float32 and nll.tolist() == NLL.tolist() and weights.tolist() == [1, 1, 2]
    with np.load(tmp_path / EXAMPLES, allow_pickle=False) as plain:  # anybody's numpy reads it
        assert plain["s0"].tolist() == CORRECT.tolist()


def test_equal_scores_give_equal_bytes_and_few(tmp_path):
    """4,000 images at eleven sizes and modes: at most two bits each, and half precision of a number with some ten random bits."""
    draw = np.random.default_rng(0)
    stored = [Examples("top1", {"at": i}, draw.random(4000) < 0.6) for i in range(11)]
    stored += [Examples("nll_nats", {"at": i}, draw.exponential(size=4000).astype(np.float16)) for i in range(11)]
    sizes = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        info, left_out = write_examples(tmp_path / name, stored)
        sizes.append(info.num_bytes)
        assert left_out == []
    assert (tmp_path / "a" / EXAMPLES).read_bytes() == (tmp_path / "b" / EXAMPLES).read_bytes() and sizes[0] < 110_000
    bits, _ = write_examples(tmp_path / "b", stored[:11])
    assert bits.num_bytes < 11 * 4000 / 8 * 2 and len(list((tmp_path / "b").iterdir())) == 1


def test_what_is_too_large_is_left_out_by_whole_metrics(tmp_path, monkeypatch):
    draw = np.random.default_rng(0)
    stored = [Examples("top1", {"at": i}, draw.random(100) < 0.6) for i in range(2)]
    stored += [Examples("nll_nats", {"at": i}, draw.random(2000).astype(np.float32)) for i in range(2)]
    monkeypatch.setattr(examples, "MAX_FILE_BYTES", 5000)
    info, left_out = write_examples(tmp_path, stored)
    assert left_out == ["nll_nats"] and [array.metric for array in info.arrays] == ["top1", "top1"]
    monkeypatch.setattr(examples, "MAX_FILE_BYTES", 50)
    assert write_examples(tmp_path, stored) == (None, ["top1", "nll_nats"])


def archive(**arrays) -> bytes:
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)
    return file.getvalue()


def bomb(name: str, claim: int, size: int) -> bytes:
    """An archive whose array claims `claim` values and holds `size` zeros."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "|b1", "fortran_order": False, "shape": (claim,)})
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as out:
        out.writestr(f"{name}.npy", header.getvalue() + bytes(size))
    return file.getvalue()


BAD = {
    "truncated": (lambda good: good[:-30], "not a zip file"),
    "another array": (lambda good: archive(s0=CORRECT, s1=NLL, w0=NLL, more=NLL), "expected"),
    "one missing": (lambda good: archive(s0=CORRECT, s1=NLL), "expected"),
    "other type": (lambda good: archive(s0=CORRECT.astype(float), s1=NLL, w0=NLL), "float64"),
    "other length": (lambda good: archive(s0=CORRECT[:4], s1=NLL, w0=NLL), "(4,)"),
    "two axes": (lambda good: archive(s0=CORRECT[None], s1=NLL, w0=NLL), "(1, 5)"),
    "objects": (lambda good: archive(s0=np.array([{}] * 5, dtype=object), s1=NLL, w0=NLL), "object"),
    "not finite": (lambda good: archive(s0=CORRECT, s1=np.array([1, np.nan, 1], np.float32), w0=NLL), "not finite"),
    "no weight": (lambda good: archive(s0=CORRECT, s1=NLL, w0=np.array([1, 0, 1], np.float32)), "positive"),
    "no truth": (lambda good: archive(s0=np.array([0, 1, 2, 1, 0], np.uint8).view(bool), s1=NLL, w0=NLL), "truth"),
    "short": (lambda good: bomb("s0", 5, 3), "expected"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_stranger_s_file_is_refused_in_one_line(tmp_path, make_record, name):
    change, says = BAD[name]
    record = scored(make_record, tmp_path)
    content = change((tmp_path / EXAMPLES).read_bytes())
    (tmp_path / EXAMPLES).write_bytes(content)
    with pytest.raises(UsageError, match="size or sha256"):
        read_examples(record, tmp_path / EXAMPLES)
    info = record.examples.model_copy(update={"sha256": hashlib.sha256(content).hexdigest(), "num_bytes": len(content)})
    with pytest.raises(UsageError) as refused:
        read_examples(record.model_copy(update={"examples": info}), tmp_path / EXAMPLES)
    assert says in str(refused.value) and str(refused.value).isprintable() and len(str(refused.value)) <= 300


@pytest.mark.parametrize(("claim", "size"), [(10**9, 10), (5, 10**7), (5, 4), (10**12, 0)])
def test_nothing_is_inflated_or_allocated_beyond_what_the_record_says(tmp_path, make_record, claim, size):
    """An array of five values: a header that claims more, a stream of 10 MB behind it (10 kB packed), a stream too short."""
    record = scored(make_record, tmp_path, [Examples("top1", TOP, CORRECT)])
    content = bomb("s0", claim, size)
    (tmp_path / EXAMPLES).write_bytes(content)
    info = record.examples.model_copy(update={"sha256": hashlib.sha256(content).hexdigest(), "num_bytes": len(content)})
    with pytest.raises(UsageError, match=r"its record says|bytes of 5"):
        read_examples(record.model_copy(update={"examples": info}), tmp_path / EXAMPLES)


def test_a_link_or_a_huge_file_is_not_read(tmp_path, make_record):
    record = scored(make_record, tmp_path / "run")
    (tmp_path / "link.npz").symlink_to(tmp_path / "run" / EXAMPLES)
    with pytest.raises(UsageError, match="symbolic link"):
        read_examples(record, tmp_path / "link.npz")
    with open(tmp_path / "huge.npz", "wb") as file:
        file.truncate(examples.MAX_FILE_BYTES + 1)
    with pytest.raises(UsageError, match="larger than"):
        read_examples(record, tmp_path / "huge.npz")


@pytest.fixture
def results(tmp_path):
    (tmp_path / "results").mkdir()
    return tmp_path / "results"


def finished(make_record, runs, stored=None, **changes):
    run_id = make_record(**changes).run_id
    record = scored(make_record, runs / run_id, stored, **changes)
    RunFolder(runs, run_id).finish(record)
    return record


def test_submission_carries_the_file_and_is_repeatable(tmp_path, results, make_record):
    runs = tmp_path / "runs"
    record = finished(make_record, runs)
    (placed,) = submit([record.run_id], results, runs)
    beside = placed.path.with_suffix(".npz")
    assert beside.read_bytes() == (runs / record.run_id / EXAMPLES).read_bytes()
    assert [p.already for p in submit([record.run_id], results, runs)] == [True]
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    assert submit([placed.path], elsewhere)[0].path.with_suffix(".npz").read_bytes() == beside.read_bytes()  # from a published file too
    warnings: list[str] = []
    assert list(iter_records(results, warnings)) == [record] and warnings == []  # the file is no record and in nobody's way


def test_a_submission_that_was_cut_short_is_completed_and_a_foreign_file_is_not_overwritten(tmp_path, results, make_record):
    runs = tmp_path / "runs"
    record = finished(make_record, runs)
    beside = (results / placed_at(record)).with_suffix(".npz")
    beside.parent.mkdir(parents=True)
    beside.write_bytes((runs / record.run_id / EXAMPLES).read_bytes())
    assert submit([record.run_id], results, runs)[0].path.is_file()
    other = finished(make_record, runs, run=1)
    (results / placed_at(other)).with_suffix(".npz").write_bytes(b"something else")
    with pytest.raises(UsageError, match="in the way"):
        submit([other.run_id], results, runs)
    assert not (results / placed_at(other)).exists()


def test_submission_refuses_a_record_whose_scores_are_missing_or_not_its_own(tmp_path, results, make_record):
    runs = tmp_path / "runs"
    missing = finished(make_record, runs)
    (runs / missing.run_id / EXAMPLES).unlink()
    with pytest.raises(UsageError, match="is missing: submit its run folder"):
        submit([missing.run_id], results, runs)
    wrong_mean = finished(make_record, runs, [Examples("top1", TOP, ~CORRECT)], run=1)
    with pytest.raises(UsageError, match=r"top1 = 0\.6 under .* have the mean 0\.4"):
        submit([wrong_mean.run_id], results, runs)
    unknown = finished(make_record, runs, [Examples("top1", TOP | {"nominal": 384}, CORRECT)], run=2)
    with pytest.raises(UsageError, match="which was not measured"):
        submit([unknown.run_id], results, runs)
    assert not list(results.iterdir())


def test_a_link_in_the_place_of_the_file_is_not_followed(tmp_path, results, make_record):
    runs = tmp_path / "runs"
    record = finished(make_record, runs)
    beside = (results / placed_at(record)).with_suffix(".npz")
    beside.parent.mkdir(parents=True)
    beside.symlink_to(tmp_path / "stolen")
    with pytest.raises(UsageError, match="symbolic link"):
        submit([record.run_id], results, runs)
    assert not (tmp_path / "stolen").exists() and not (results / placed_at(record)).exists()


def test_a_record_without_scores_is_what_it_was(make_record):
    """Records from before there were any: valid, and the field is null in what is written now."""
    raw = json.loads(record_bytes(make_record()))
    assert raw.pop("examples") is None
    assert RunRecord.model_validate_json(json.dumps(raw), strict=True) == make_record()


def test_submission_refuses_a_record_that_no_longer_names_the_scores_beside_it(tmp_path, results, make_record):
    runs = tmp_path / "runs"
    path = runs / finished(make_record, runs).run_id / "record.json"
    raw = json.loads(path.read_text())
    path.write_text(json.dumps({name: value for name, value in raw.items() if name != "examples"}))
    with pytest.raises(UsageError, match=r"does not name .*examples\.npz, the per-example scores beside it"):
        submit([path.parent], results, runs)

"""The cache: used when it is whole and of this file, made again otherwise, and never trusted after a kill at any moment."""

import contextlib
import io
import json
import multiprocessing
import os
import pickle
import resource
import shutil
import signal
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from made_up_genome import codes_of, random_letters, write_fasta

from goatbench.data import cache_files
from goatbench.data.causal import CausalData
from goatbench.data.genome import cache, source
from goatbench.data.genome.source import GenomeSource
from goatbench.data.genome.splits import Interval
from goatbench.data.genome.windows import EvaluationWindows, TrainingWindows
from goatbench.errors import UsageError

RECORDS = {"one": random_letters(900, 1), "two": random_letters(500, 2)}
FORK = multiprocessing.get_context("fork")


@pytest.fixture
def path(tmp_path):
    (tmp_path / "reference").mkdir()
    return write_fasta(tmp_path / "reference" / "g.fa", RECORDS)


def whole(genome, records=RECORDS):
    return all(np.array_equal(genome.codes(name, 0, len(letters)), codes_of(letters)) for name, letters in records.items())


def read(path, folder, expected_notices=()):
    """Every contig through a new source; its notices must match, one by one."""
    with contextlib.redirect_stderr(io.StringIO()) as given:
        opened = GenomeSource(path, folder)
        genome = opened.genome(RECORDS)
    assert len(opened.notices) == len(expected_notices), opened.notices
    assert all(part in notice for part, notice in zip(expected_notices, opened.notices, strict=True))
    assert given.getvalue().splitlines() == [f"goatbench: note: {notice}" for notice in opened.notices]
    return genome


def folder_of(genome):
    return os.path.dirname(genome.files["one"].path)


def test_a_second_start_reads_no_fasta(path, tmp_path, monkeypatch):
    read(path, tmp_path / "cache")
    monkeypatch.setattr(source.fasta, "open_fasta", None)
    monkeypatch.setattr(source.fasta, "build_index", None)
    assert whole(read(path, tmp_path / "cache"))


def test_only_the_contigs_asked_for_are_encoded(path, tmp_path):
    genome = GenomeSource(path, tmp_path / "cache").genome(["two"])
    assert genome.contigs == ("two",)
    names = os.listdir(os.path.dirname(genome.files["two"].path))
    assert sorted(name.split("-")[0] for name in names) == ["index.fai", "index.json", "two", "two"]


def test_nothing_is_written_beside_the_fasta(path, tmp_path):
    path.parent.chmod(0o555)
    before = sorted(os.listdir(path.parent))
    assert whole(read(path, tmp_path / "cache"))
    assert sorted(os.listdir(path.parent)) == before


def test_an_index_beside_the_fasta_is_not_believed(path, tmp_path):
    """Stale, truncated or of another file: pyfaidx would read wrong letters with it, silently."""
    beside = path.with_name("g.fa.fai")
    beside.write_text("one\t10\t9\t60\t61\n")
    os.utime(beside, (2e9, 2e9))
    assert whole(read(path, tmp_path / "cache"))


def test_a_replaced_file_with_an_older_time_is_noticed(path, tmp_path):
    """cp -p, tar and rsync -t put old times on new content: same size here, and the index looks newer than the file."""
    read(path, tmp_path / "cache")
    other = {"one": random_letters(900, 7), "two": random_letters(500, 8)}
    write_fasta(path, other)
    os.utime(path, (1e9, 1e9))
    genome = read(path, tmp_path / "cache", ["has changed"])
    assert whole(genome, other)
    assert whole(read(path, tmp_path / "cache"), other)


def test_a_file_from_the_future_is_read(path, tmp_path):
    os.utime(path, (4e9, 4e9))
    assert whole(read(path, tmp_path / "cache"))
    assert whole(read(path, tmp_path / "cache"))


@pytest.mark.parametrize("damage", [lambda b: b[: len(b) // 2], lambda b: b"", lambda b: b.replace(b"900", b"901")])
def test_a_damaged_index_is_made_again(path, tmp_path, damage):
    folder = folder_of(read(path, tmp_path / "cache"))
    index = os.path.join(folder, "index.fai")
    with open(index, "rb") as file:
        content = file.read()
    with open(index, "wb") as file:
        file.write(damage(content))
    assert whole(read(path, tmp_path / "cache", ["index"]))
    assert whole(read(path, tmp_path / "cache"))


@pytest.mark.parametrize("part", ["codes", "json"])
@pytest.mark.parametrize("size", [0, 10])
def test_damaged_codes_are_made_again(path, tmp_path, part, size):
    genome = read(path, tmp_path / "cache")
    os.truncate(genome.files["two"].path[: -len("codes")] + part, size)
    assert whole(read(path, tmp_path / "cache", ["codes of two"]))
    assert whole(read(path, tmp_path / "cache"))


BAD_MARKS = [
    {"n_runs": None},
    {"n_runs": 3},
    {"n_runs": [[1, 2, 3]]},
    {"n_runs": [["a", "b"]]},
    {"n_runs": [[0, 1e30]]},
    {"n_runs": []},
    {"n_runs": [[0, 900]]},
    {"counts": {}},
    {"counts": [1]},
    {"counts": {"A": "x", "C": 0, "G": 0, "T": 0, "N": 0, "other": 0, "masked": 0}},
    {"m5": None},
    {"length": "500"},
    {"length": 500.0},
]


def test_a_sidecar_that_says_what_cannot_be_is_damage(path, tmp_path):
    genome = read(path, tmp_path / "cache")
    mark = Path(genome.files["two"].path).with_suffix(".json")
    sound = json.loads(mark.read_text())
    assert sound["n_runs"]
    backwards, shifted = sound["n_runs"][::-1], [[start + 1, end + 1] for start, end in sound["n_runs"]]
    for wrong in (*BAD_MARKS, {"n_runs": backwards}, {"n_runs": [*shifted[:-1], [499, 501]]}):
        mark.write_text(json.dumps(sound | wrong))
        again = read(path, tmp_path / "cache", ["codes of two"])
        assert again.files["two"] == genome.files["two"], wrong
        assert json.loads(mark.read_text()) == sound


@pytest.mark.parametrize("lengths", [None, [], {}, {"one": "900", "two": 500}, {"one": -1, "two": 500}])
def test_an_index_mark_with_lengths_that_cannot_be_is_damage(path, tmp_path, lengths):
    mark = Path(folder_of(read(path, tmp_path / "cache"))) / "index.json"
    mark.write_text(json.dumps(json.loads(mark.read_text()) | {"lengths": lengths}))
    assert whole(read(path, tmp_path / "cache", ["index"]))


@contextlib.contextmanager
def no_file_longer_than(size):
    """As a full disk, but for the word: every write beyond `size` bytes of a file fails."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("size", [0, 10, 45, 120, 400, 600])  # index; its copy; its mark; codes; the sidecar
def test_a_full_disk_is_one_line_and_leaves_nothing_unfinished(path, tmp_path, size):
    with pytest.raises(UsageError) as error, no_file_longer_than(size):
        GenomeSource(path, tmp_path / "cache").genome(RECORDS)
    said = str(error.value)
    assert "File too large" in said and "GOATBENCH_CACHE" in said and str(tmp_path / "cache") in said and "\n" not in said
    assert "pyfaidx" not in said and "rebuild" not in said
    left = [str(one) for one in (tmp_path / "cache").rglob("*") if "unfinished" in one.name or one.suffix == ".tmp"]
    assert left == []
    assert whole(GenomeSource(path, tmp_path / "cache").genome(RECORDS))


def test_a_cache_that_becomes_read_only_is_one_line(path, tmp_path, monkeypatch):
    GenomeSource(path, tmp_path / "cache")
    monkeypatch.setattr(tempfile, "mkstemp", _read_only)
    with pytest.raises(UsageError, match=r"cannot write .*Read-only file system; .*GOATBENCH_CACHE"):
        GenomeSource(path, tmp_path / "cache").genome(RECORDS)


def _read_only(*arguments, **named):
    raise OSError(30, "Read-only file system")


@pytest.mark.parametrize("content", [b">c\nAC\n>c\nGT\n", b">c\nACG\nAC\nACG\n", b">c\n>d\n", b">c\nA\xff\n"])
def test_a_bad_fasta_leaves_no_folder(tmp_path, content):
    path = tmp_path / "bad.fa"
    path.write_bytes(content)
    with pytest.raises(UsageError):
        GenomeSource(path, tmp_path / "cache")
    assert [one.name for one in (tmp_path / "cache" / "genome").rglob("*") if one.name != "lock" and one.parent.name != "genome"] == []


def test_codes_that_vanish_under_a_run_are_one_line(path, tmp_path):
    genome = read(path, tmp_path / "cache")
    shutil.rmtree(tmp_path / "cache")
    with pytest.raises(UsageError, match="start again"):
        genome.codes("one", 0, 1)


@pytest.mark.parametrize("workers", [0, 1])
def test_codes_that_vanish_are_one_line_whoever_reads_them(workers, path, tmp_path):
    genome, intervals = read(path, tmp_path / "cache"), [Interval("one", 0, 900, "train", 0, 900)]
    data = CausalData(None, None, SimpleNamespace(batch_tokens=20), seed=0, batch_size=2, num_workers=workers)
    data.num_train, data.training_set = 4, TrainingWindows(genome, intervals, 10, 0, 4)
    loaders = data.train_loader(0), data.eval_loader(EvaluationWindows(genome, intervals, 10))
    shutil.rmtree(tmp_path / "cache")
    for loader in loaders:
        with pytest.raises(UsageError, match="start again") as caught:
            list(loader)
        assert "\n" not in str(caught.value) and "worker" not in str(caught.value)


def test_sidecar_names_what_was_encoded(path, tmp_path):
    genome = read(path, tmp_path / "cache")
    with open(genome.files["one"].path[: -len("codes")] + "json") as file:
        content = json.load(file)
    assert content["format"] == cache_files.FORMAT_VERSION and content["length"] == 900
    assert [tuple(run) for run in content["n_runs"]] == list(genome.files["one"].n_runs)


def test_cache_folder_is_chosen_by_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("GOATBENCH_CACHE", str(tmp_path / "own"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_files.cache_root() == tmp_path / "own"
    monkeypatch.delenv("GOATBENCH_CACHE")
    assert cache_files.cache_root() == tmp_path / "xdg" / "goatbench"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_files.cache_root() == tmp_path / ".cache" / "goatbench"
    monkeypatch.setenv("GOATBENCH_CACHE", "~/own")
    assert cache_files.cache_root() == tmp_path / "own"
    monkeypatch.delenv("GOATBENCH_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "~/xdg")
    assert cache_files.cache_root() == tmp_path / "xdg" / "goatbench"


def test_a_cache_folder_that_cannot_be_made_is_one_line(path, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="set GOATBENCH_CACHE to a folder that can be written"):
        GenomeSource(path, tmp_path / "file" / "cache")


def test_a_pickled_genome_holds_paths_and_numbers_only(path, tmp_path):
    genome = read(path, tmp_path / "cache")
    genome.codes("one", 0, 900)
    pickled = pickle.dumps(genome)
    assert codes_of(RECORDS["one"]).tobytes() not in pickled
    assert whole(pickle.loads(pickled))


# Killed, and started several times at once


def _build_and_die(path, folder, at):
    """In a child: SIGKILL at the `at`-th moment: before each chunk, sync and rename, and after each rename and the index's build."""
    moments = 0

    def moment():
        nonlocal moments
        moments += 1
        if moments == at:
            os.kill(os.getpid(), signal.SIGKILL)

    def dying(function, before, after):
        def wrapper(*arguments, **named):
            if before:
                moment()
            result = function(*arguments, **named)
            if after:
                moment()
            return result

        return wrapper

    cache.CHUNK = 300
    os.replace, os.fsync = dying(os.replace, True, True), dying(os.fsync, True, False)
    cache.letters = dying(cache.letters, True, False)
    source.fasta.build_index = dying(source.fasta.build_index, False, True)
    GenomeSource(path, folder).genome(RECORDS)


@pytest.mark.parametrize("every", [pytest.param(1, marks=pytest.mark.slow), 4])
def test_killed_at_any_moment_leaves_nothing_that_is_trusted(path, tmp_path, every, monkeypatch):
    """And nothing that was finished is made again: a contig is, once its mark is there."""
    encode, encoded, rest = cache.encode_contig, [], set()
    monkeypatch.setattr(source.cache, "encode_contig", lambda *given: encoded.append(given[2]) or encode(*given))
    at = 1
    while (exitcode := _killed(path, tmp_path / "cache", at)) == -signal.SIGKILL:
        unfinished = tuple(name for name in RECORDS if not list((tmp_path / "cache").rglob(f"{name}-*.json")))
        encoded.clear()
        genome = GenomeSource(path, tmp_path / "cache").genome(RECORDS)
        assert whole(genome), at
        assert tuple(encoded) == unfinished, at
        rest.add(unfinished)
        assert not [name for name in os.listdir(folder_of(genome)) if name.startswith(cache_files.TEMPORARY)], at
        shutil.rmtree(tmp_path / "cache")
        at += every
    assert exitcode == 0 and at > 25  # there were that many moments
    assert {("one", "two"), ("two",)} <= rest


def _killed(path, folder, at):
    child = FORK.Process(target=_build_and_die, args=(path, folder, at))
    child.start()
    child.join()
    return child.exitcode


def _build_slowly(path, folder, log, barrier):
    original = cache.encode_contig

    def logged(*arguments):
        with open(log, "a") as file:
            file.write("encoded\n")
        time.sleep(0.1)
        return original(*arguments)

    source.cache.encode_contig = logged
    barrier.wait()
    assert whole(GenomeSource(path, folder).genome(RECORDS))


def test_processes_that_start_at_once_build_once(path, tmp_path):
    log, barrier = tmp_path / "log", FORK.Barrier(3)
    children = [FORK.Process(target=_build_slowly, args=(path, tmp_path / "cache", log, barrier)) for _ in range(3)]
    for child in children:
        child.start()
    for child in children:
        child.join()
    assert [child.exitcode for child in children] == [0, 0, 0]
    assert log.read_text() == "encoded\n" * len(RECORDS)


def test_a_file_that_changes_while_it_is_read_is_refused(path, tmp_path, monkeypatch):
    opened = GenomeSource(path, tmp_path / "cache")
    original = cache.letters

    def changing(*arguments):
        os.utime(path, (1e9, 1e9))
        return original(*arguments)

    monkeypatch.setattr(cache, "letters", changing)
    with pytest.raises(UsageError, match="changed while it was read; start again"):
        opened.genome(RECORDS)
    monkeypatch.undo()
    assert whole(read(path, tmp_path / "cache", ["has changed"]))

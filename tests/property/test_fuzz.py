"""Damaged and hostile input: every answer is a value or one line, and nothing is written outside the folder of the test."""

from __future__ import annotations

import io
import json
import os
import tempfile
from pathlib import Path

import pytest
import torch
import yaml
from fuzzing import (
    BYTE_CHANGES,
    CHANGES,
    COUNTS,
    TEXTS,
    TIMES_SLOW,
    VALUES,
    changed,
    damaged,
    examples,
    fuzz,
    nothing_written_outside,
    only_one_line,
)
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

import goatbench.configs
from goatbench.compose import compose
from goatbench.errors import UsageError
from goatbench.explain import explain, known_keys
from goatbench.export import _specs
from goatbench.overrides import literal_path, parse
from goatbench.plan.sizes import parse_bytes
from goatbench.records.files import parse_record
from goatbench.records.grouping import row_name
from goatbench.show_run import run_lines
from goatbench.spec import RUN_SPECS
from goatbench.training.checkpoint import read_checkpoint, save_checkpoint
from goatbench.training.resume import PARTS, ResumeFile

RESULTS = Path(__file__).resolve().parents[2] / "results"
TASKS = {"vision": "vit_res512", "genome": "genome_nll", "text": "lm_length", "toy": "needle", "stories": "babilong"}


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """Everything of the test lies in its folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GOATBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with nothing_written_outside(tmp_path):
        yield tmp_path


@pytest.fixture(scope="module")
def specs():
    return {domain: compose([f"task={task}", "scale=smoke"]).spec.model_dump(mode="json") for domain, task in TASKS.items()}


def small_record():
    path = min(RESULTS.glob("genome_*@v1/embedded/*/*.json"), key=lambda path: path.stat().st_size)
    return json.loads(path.read_text())


@examples(680)
def test_specifications(number, specs):
    """A changed configuration is refused in one line, or it is a specification with a name."""

    @fuzz(number)
    @given(st.sampled_from(sorted(specs)), CHANGES)
    def check(domain, changes):
        values = changed(specs[domain], changes)
        with only_one_line():
            try:
                spec = RUN_SPECS[domain].model_validate_json(json.dumps(values), strict=True)
            except ValidationError as error:
                raise UsageError(explain(error, known_keys(RUN_SPECS[domain]))) from None
            assert len(spec.config_hash) >= 8 and spec.learning_rate > 0

    check()


@examples(200)
def test_overrides(number):
    """What a user types behind `goatbench run`."""
    keys = st.sampled_from(["task", "seed", "data.path", "+data.root", "attention.options", "~task", "task@x", "model.depth"])

    @fuzz(number)
    @given(st.tuples(keys, TEXTS).map("=".join) | TEXTS)
    def check(line):
        with only_one_line():
            parse(literal_path(line))
        with only_one_line():
            parse_bytes(line)

    check()


FILES = {  # group -> the file, and what is given beside it
    "attention": ("goat", "task=needle"), "recipe": ("deit3_base", "task=vit_res224"), "data": ("synthetic", "task=needle"),
    "task": ("needle",),
}  # fmt: skip


@examples(60)
def test_files_of_a_config_dir(number, here):
    """Somebody else's YAML behind --config-dir: bytes of it damaged, or its values changed."""
    folder = Path(goatbench.configs.__path__[0])
    texts = {group: (folder / group / f"{name}.yaml").read_text() for group, (name, *_) in FILES.items()}

    @fuzz(number)
    @given(st.sampled_from(sorted(FILES)), BYTE_CHANGES, st.none() | CHANGES)
    def check(group, of_bytes, of_values):
        other = here / "configs" / group / "other.yaml"
        other.parent.mkdir(parents=True, exist_ok=True)
        values = None if of_values is None else changed(yaml.safe_load(texts[group]), of_values)
        text = texts[group] if values is None else json.dumps(values)
        other.write_bytes(damaged(text.encode(), of_bytes) if values is None else text.encode())
        with only_one_line():
            compose(["scale=smoke", f"{group}=other", *FILES[group][1:]], str(here / "configs"))
        other.unlink()

    check()


@examples(500)
def test_records(number):
    """Somebody else's record: refused, or printed without control characters."""
    record = small_record()

    @fuzz(number)
    @given(CHANGES | st.lists(st.tuples(st.integers(0, 10**6), st.just("set"), TEXTS, TEXTS), min_size=1, max_size=2))
    def check(changes):
        content = json.dumps(changed(record, changes)).encode()
        with only_one_line():
            found = parse_record(content, "stranger.json")
            row_name(found)
            assert all(line.isprintable() for line in run_lines(Path("stranger.json"), found))
            _specs(found)

    check()


@examples(150)
def test_bytes_of_records(number):
    content = json.dumps(small_record()).encode()

    @fuzz(number)
    @given(BYTE_CHANGES)
    def check(changes):
        with only_one_line():
            parse_record(damaged(content, changes), "stranger.json")

    check()


@examples(200)
def test_checkpoints(number, here):
    """A damaged file, or a pickle that would run something, is refused and runs nothing. resume.ckpt: of a training under way."""
    path, under_way = here / "weights.pt", here / "resume.ckpt"
    save_checkpoint(path, {"weight": torch.ones(3)}, {"run_id": "x", "fit": {"steps": 3}})
    ResumeFile().save_checkpoint({"pytorch-lightning_version": "2.6.6", **{part: {"weight": torch.ones(3)} for part in PARTS}}, under_way)
    read = {path: read_checkpoint, under_way: ResumeFile().load_checkpoint}
    contents = {file: file.read_bytes() for file in read}
    assert all(read[file](file) for file in read)

    @fuzz(number)
    @given(st.sampled_from([path, under_way]), BYTE_CHANGES)
    def check(file, changes):
        file.write_bytes(damaged(contents[file], changes))
        with only_one_line():
            read[file](file)

    check()
    evil = io.BytesIO()
    torch.save({"state_dict": {}, "meta": _Touch(here / "ran")}, evil)
    for file in read:
        file.write_bytes(evil.getvalue())
        with pytest.raises(UsageError):
            read[file](file)
    assert not (here / "ran").exists()


class _Touch:
    """Unpickling it would make a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


@examples(60)
def test_exported_models(number, here):
    """Headers of safetensors files and their JSON."""
    from goatbench.models.decoder import Decoder
    from goatbench.models.exported import load_exported, write_exported

    arguments = {"vocab_size": 5, "num_scored": 4, "seq_len": 8, "embed_dim": 8, "depth": 1, "num_heads": 1, "position": "nope"}
    config = {"model_args": arguments, "goatbench": {"model_class": "Decoder", "tokenizer": None}}
    folder = here / "model"
    write_exported(folder, Decoder(**arguments).state_dict(), config)
    weights = (folder / "model.safetensors").read_bytes()

    @fuzz(number)
    @given(st.one_of(st.tuples(BYTE_CHANGES, st.none()), st.tuples(st.none(), CHANGES)))
    def check(both):
        of_bytes, of_config = both
        (folder / "model.safetensors").write_bytes(weights if of_bytes is None else damaged(weights, of_bytes))
        (folder / "config.json").write_text(json.dumps(config if of_config is None else changed(config, of_config)))
        with only_one_line():
            load_exported(folder)

    check()


@examples(100)
def test_the_cache_of_a_fasta(number, here):
    """Index and marks in the cache were damaged: they are made again, and the bases are those of the file."""
    from goatbench.data.genome.source import GenomeSource

    fasta = here / "x.fa"
    fasta.write_text(">one\nACGTNACGTN\nACG\n>two\nTTTT\n")
    cache = here / "cache"
    GenomeSource(fasta, cache).genome(["one"])
    files = sorted(path for path in cache.rglob("*") if path.suffix in (".json", ".fai"))
    contents = {path: path.read_bytes() for path in files}

    @fuzz(number)
    @given(st.sampled_from(files), BYTE_CHANGES, st.none() | CHANGES)
    def check(path, of_bytes, of_json):
        for file, content in contents.items():
            file.write_bytes(content)
        if of_json is not None and path.suffix == ".json":
            path.write_text(json.dumps(changed(json.loads(contents[path]), of_json)))
        else:
            path.write_bytes(damaged(contents[path], of_bytes))
        with only_one_line():
            assert GenomeSource(fasta, cache).genome(["one"]).codes("one", 0, 5).tolist() == [0, 1, 2, 3, 4]

    check()


@examples(50)
def test_fasta_files(number, here):
    from goatbench.data.genome.source import GenomeSource

    fasta = here / "x.fa"

    @fuzz(number)
    @given(BYTE_CHANGES | st.just([(0, "cut", b"")]))
    def check(changes):
        fasta.write_bytes(damaged(b">one\nACGTNACGTN\nACG\n>two\nTTTT\n", changes))
        with only_one_line():
            source = GenomeSource(fasta, here / "cache")
            source.genome(list(source.lengths)[:1])

    check()


def test_as_many_examples_as_promised():
    """2,000 in every run, 10,000 in the long one; those of other files count with them where they are loaded."""
    assert sum(COUNTS) >= 2000 and TIMES_SLOW * sum(COUNTS) >= 10_000


@pytest.mark.parametrize("act", ["rename", "link", "symlink"])
def test_the_watch_sees_what_is_moved_or_linked_out(act, here):
    """From the folder to one beside it, whose name begins like its own."""
    root, beside = here / "watched", here / "watched-beside"
    for folder in (root, beside):
        folder.mkdir()
    (root / "file").touch()
    with pytest.raises(AssertionError, match=f"os.{act} .*-beside/file"), nothing_written_outside(root):
        getattr(os, act)(root / "file", beside / "file")


def test_values_are_as_strange_as_meant():
    """The generator reaches what it is for: a test that only ever sees plain values cannot fail."""
    seen = set()

    @fuzz(100)
    @given(VALUES)
    def look(value):
        seen.add(type(value).__name__)

    look()
    assert {"NoneType", "int", "float", "str", "list", "dict"} <= seen

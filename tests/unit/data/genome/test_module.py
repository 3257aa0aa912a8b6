"""The data module of a genome run: counts, regions, and evaluation batches."""

from __future__ import annotations

import numpy as np
import pytest

from goatbench.compose import compose
from goatbench.data.genome.codes import reverse_complement
from goatbench.data.genome.module import GenomeData, codes_of, regions_of
from goatbench.errors import UsageError


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> GenomeData:
    patch = pytest.MonkeyPatch()
    patch.setenv("GOATBENCH_CACHE", str(tmp_path_factory.mktemp("cache")))
    try:
        return make()
    finally:
        patch.undo()


def make(*overrides: str) -> GenomeData:
    spec = compose(["task=genome_nll", "scale=smoke", *overrides]).spec
    return GenomeData(spec.data, spec.model, spec.evaluation, seed=3, batch_size=spec.training.batch_size)


def test_counts_are_those_of_the_embedded_sequence(data):
    assert data.info.counts == {"train windows": 64, "validation windows": 16, "train bases": 6_000_000}
    assert data.steps_per_epoch == 16 and [len(s) for s in data.stretches("train")] == [1_500_000] * 4


def test_windows_know_their_region(data):
    windows = data.windows("test")
    regions = regions_of(windows, data.intervals("test"))
    by_name = ["chr3" if "chr3" in contig else "chr5" for contig, _ in windows.loci]
    assert regions.tolist() == by_name and set(by_name) == {"chr3", "chr5"}


def test_an_evaluation_batch_is_the_sequence_itself(data):
    windows = data.windows("masked")
    tokens, ids, masked = next(iter(data.eval_loader(windows)))
    contig, start = windows.loci[0]
    codes = data.genome.codes(contig, start, start + 129)
    assert ids[0] == 0 and tokens.shape == (32, 129) and masked.shape == (32, 128)
    np.testing.assert_array_equal(tokens[0].numpy(), codes & 7)
    np.testing.assert_array_equal(masked[0].numpy(), (codes[1:] & 8) > 0)
    np.testing.assert_array_equal(codes_of(windows)[0], codes)
    np.testing.assert_array_equal(codes_of(windows.on_other_strand())[0], reverse_complement(codes))


def test_training_sees_the_same_windows_for_every_number_of_workers(data):
    epochs = [[batch for batch in data.train_loader(epoch=1)] for _ in range(2)]
    for one, other in zip(*epochs, strict=True):
        assert one[0].equal(other[0]) and one[1].equal(other[1])
    shard = [GenomeData(data.data, data.model, data.evaluation, seed=3, batch_size=4, rank=r, world_size=2) for r in (0, 1)]
    first = [next(iter(part.train_loader(epoch=1))) for part in shard]
    assert sorted([*first[0][1].tolist(), *first[1][1].tolist()]) == sorted(epochs[0][0][1].tolist())


def test_test_windows_are_no_part_of_what_training_is_named_by(data, monkeypatch, tmp_path):
    monkeypatch.setenv("GOATBENCH_CACHE", str(tmp_path))
    other = make("data.num_test=7")
    assert other.training_fingerprint == data.training_fingerprint and other.fingerprint != data.fingerprint
    assert make("data.num_validation=7").training_fingerprint != data.training_fingerprint


def test_splits_nearer_than_the_longest_context_are_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("GOATBENCH_CACHE", str(tmp_path / "cache"))
    fasta, split = tmp_path / "a.fa", tmp_path / "split.tsv"
    fasta.write_text(">one\n" + "ACGT" * 5000 + "\n")
    rows = [("one", 0, 8000, "train"), ("one", 8200, 12000, "validation"), ("one", 13000, 20000, "test")]
    split.write_text("\n".join(["contig\tstart\tend\tsplit", *("\t".join(map(str, row)) for row in rows)]) + "\n")
    local = ["data=fasta", f"data.fasta={fasta}", "data.split=file", f"data.split_file={split}", "data.num_validation=4", "data.num_test=4"]
    spec = compose(["task=genome_nll", "scale=smoke", "data.num_train=8", *local]).spec
    assert GenomeData(spec.data, spec.model, spec.evaluation, seed=0, batch_size=4).info.counts["train bases"] == 8000
    with pytest.raises(UsageError, match="200 bases apart"):
        GenomeData(spec.data, spec.model, spec.evaluation, seed=0, batch_size=4, longest_context=2048)


def test_a_window_belongs_to_the_region_of_its_targets_not_of_its_context(tmp_path, monkeypatch):
    monkeypatch.setenv("GOATBENCH_CACHE", str(tmp_path / "cache"))
    fasta, split = tmp_path / "a.fa", tmp_path / "split.tsv"
    fasta.write_text(">one\n" + "ACGT" * 5000 + "\n>two\n" + "ACGT" * 3000 + "\n")
    rows = [
        ("one", 0, 8000, "train", 0, 8000, ""),
        ("one", 9000, 20000, "validation", 9000, 20000, ""),
        ("two", 0, 7000, "test", 100, 6000, "left"),
        ("two", 5000, 12000, "test", 6000, 12000, "right"),
    ]
    head = "contig\tstart\tend\tsplit\tcore_start\tcore_end\tregion"
    split.write_text("\n".join([head, *("\t".join(map(str, row)) for row in rows)]) + "\n")
    local = ["data=fasta", f"data.fasta={fasta}", "data.split=file", f"data.split_file={split}"]
    local += ["data.num_validation=4", "data.num_test=null"]
    spec = compose(["task=genome_nll", "scale=smoke", "data.num_train=8", *local]).spec
    data = GenomeData(spec.data, spec.model, spec.evaluation, seed=0, batch_size=4)
    windows = data.windows("test")
    regions = regions_of(windows, data.intervals("test"))
    for region, (first, last) in {"left": (100, 6000), "right": (6000, 12000)}.items():
        targets = [start + 1 for (_, start), name in zip(windows.loci, regions, strict=True) if name == region]
        assert min(targets) >= first and max(targets) + 128 <= last and len(targets) == (last - first) // 128

"""Composition of sequence against slices of strings and worked examples."""

import math
import re

import numpy as np
import pytest

from goatbench.metrics import composition

TEXT = "ACGTTTTNNCGcgcggaaaaaNAAAACGNC"


def dna(text: str) -> np.ndarray:
    return np.array(["ACGTN".index(letter.upper()) + 8 * letter.islower() for letter in text], np.uint8)


@pytest.mark.parametrize("k", [1, 2, 3, 6])
def test_kmers_are_the_substrings_without_n(k):
    expected = np.zeros(4**k, int)
    for start in range(len(TEXT) - k + 1):
        kmer = TEXT[start : start + k].upper()
        if "N" not in kmer:
            expected[int("".join(str("ACGT".index(base)) for base in kmer), 4)] += 1
    np.testing.assert_array_equal(composition.kmer_counts(dna(TEXT), k), expected)


def test_kmers_do_not_cross_rows():
    rows = np.stack([dna("AC"), dna("GT")])
    assert composition.kmer_counts(rows, 2)[1 * 4 + 2] == 0
    assert composition.kmer_counts(rows, 2).sum() == 2
    assert composition.kmer_counts(rows, 3).sum() == 0
    with pytest.raises(ValueError, match="1 to 12"):
        composition.kmer_counts(rows, 0)


def test_cpg_by_hand():
    """CGAACG: 2 of 5 neighbours are CG, C and G are 1/3 each: (2/5) * 9 = 3.6. Independent bases give 1; without a C it is undefined."""
    assert composition.cpg_observed_expected(dna("CGAACG")) == pytest.approx(3.6)
    assert composition.cpg_observed_expected(dna("CGnAACG")) == pytest.approx(2 / 4 * 9)
    independent = np.random.default_rng(0).integers(0, 4, (1000, 64)).astype(np.uint8)
    assert composition.cpg_observed_expected(independent) == pytest.approx(1, abs=0.06)  # about 4 standard errors: 4 / sqrt(63000 / 16)
    assert math.isnan(composition.cpg_observed_expected(dna("AAGG")))
    assert math.isnan(composition.cpg_observed_expected(dna("NNN")))


def test_jensen_shannon_by_hand():
    """Disjoint spectra: 1 bit. (1, 0) against (1/2, 1/2): (log2(4/3) + log2(2/3)/2 + log2(2)/2) / 2 bits."""
    assert composition.jensen_shannon_bits([3, 0], [0, 9]) == pytest.approx(1)
    assert composition.jensen_shannon_bits([2, 4, 6], [1, 2, 3]) == 0
    expected = (math.log2(4 / 3) + math.log2(2 / 3) / 2 + math.log2(2) / 2) / 2
    assert composition.jensen_shannon_bits([5, 0], [7, 7]) == pytest.approx(expected)
    assert composition.jensen_shannon_bits([7, 7], [5, 0]) == pytest.approx(expected)
    with pytest.raises(ValueError, match="counts above 0"):
        composition.jensen_shannon_bits([0, 0], [1, 1])


def test_the_floor_shrinks_with_more_sequence_and_tells_a_generator_apart():
    """Two samples of n counts over m cells differ by about (m - 1) / (4 n ln 2) bits each n: 63 cells, n = 8000 and 32000."""
    rng = np.random.default_rng(1)
    real = rng.choice(4, (1032, 66), p=[0.3, 0.2, 0.2, 0.3]).astype(np.uint8)
    for rows in (250, 1000):
        expected = 63 / (4 * rows / 2 * 64 * math.log(2))
        assert composition.spectrum_floor(real[:rows], 3) == pytest.approx(expected, rel=0.4)
    generated = rng.choice(4, (1000, 66)).astype(np.uint8)
    away = composition.jensen_shannon_bits(composition.kmer_counts(generated, 3), composition.kmer_counts(real, 3))
    assert away > 10 * composition.spectrum_floor(real, 3)
    with pytest.raises(ValueError, match="two rows"):
        composition.spectrum_floor(real[0], 3)


def test_the_longest_run_by_regular_expression():
    runs = [len(found.group()) for found in re.finditer(r"A+|C+|G+|T+", TEXT.upper())]
    assert composition.longest_homopolymer(dna(TEXT)) == max(runs) == 5
    assert composition.longest_homopolymer(np.stack([dna("CAAA"), dna("AATT")])) == 3  # not 5: rows are apart
    assert composition.longest_homopolymer(dna("NNNNN")) == 0
    assert composition.longest_homopolymer(dna("")) == 0

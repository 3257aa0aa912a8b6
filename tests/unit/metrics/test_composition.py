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


@pytest.mark.parametrize(("k", "tolerance"), [(3, 0.5), (6, 0.1)])
def test_the_floor_is_what_a_perfect_generator_gets(k, tolerance):
    """Two samples of n counts over m cells differ by about (m - 1) / (4 n ln 2) bits each n: the tolerances are 3 of its deviations."""
    rng, p = np.random.default_rng(1), [0.3, 0.2, 0.2, 0.3]
    real, perfect = (rng.choice(4, shape, p=p).astype(np.uint8) for shape in ((200, 128), (200, 8, 128)))
    floor = composition.spectrum_divergence(real[:, None], real, k)
    assert composition.spectrum_divergence(perfect, real, k) == pytest.approx(floor, rel=tolerance)
    assert floor < composition.spectrum_divergence(rng.choice(4, perfect.shape).astype(np.uint8), real, k) * (1 - tolerance)
    if k == 3:
        assert floor == pytest.approx(2 * 63 / (4 * 100 * 126 * math.log(2)), rel=tolerance)


def test_every_half_and_sample_counts_once():
    """Places A and C: a sample of A at both is 0 from the first place and 1 from the second; a sample as real is 1, A and C apart."""
    real = np.stack([dna("AAAA"), dna("CCCC")])
    generated = np.stack([np.stack([dna("AAAA"), dna("AAAA")]), np.stack([dna("AAAA"), dna("CCCC")])])  # [place, sample, base]
    assert composition.spectrum_divergence(generated, real, 1) == pytest.approx((1 + 0 + 1 + 1) / 4)
    with pytest.raises(ValueError, match="2 or more places"):
        composition.spectrum_divergence(generated[:1], real[:1], 1)


def test_the_longest_run_by_regular_expression():
    runs = [len(found.group()) for found in re.finditer(r"A+|C+|G+|T+", TEXT.upper())]
    assert composition.longest_homopolymer(dna(TEXT)) == max(runs) == 5
    assert composition.longest_homopolymer(np.stack([dna("CAAA"), dna("AATT")])) == 3  # not 5: rows are apart
    assert composition.longest_homopolymer(dna("NNNNN")) == 0
    assert composition.longest_homopolymer(dna("")) == 0

"""Letters and codes: compared with a dictionary walked letter by letter, and with str.translate."""

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from made_up_genome import codes_of

from goatbench.data.genome.codes import decode, encode, letter_counts, n_runs, reverse_complement

IUPAC = "ACGTacgtNnRYSWKMBDHVUryswkmbdhvu*-."


@given(st.text(IUPAC, max_size=300))
def test_encoding_follows_the_specification(text):
    assert encode(text.encode()).tolist() == codes_of(text).tolist()


@given(st.text("ACGTNacgtn", max_size=300))
def test_decoding_gives_the_letters_back(text):
    assert decode(encode(text.encode())).decode() == text


@given(st.text(IUPAC, max_size=300))
def test_all_other_letters_come_back_as_n_in_their_case(text):
    expected = "".join(c if c in "ACGTacgt" else "n" if c.islower() else "N" for c in text)
    assert decode(encode(text.encode())).decode() == expected


@given(st.text("ACGTNacgtn", max_size=300))
def test_reverse_complement_is_that_of_the_letters(text):
    expected = text.translate(str.maketrans("ACGTacgt", "TGCAtgca"))[::-1]
    codes = encode(text.encode())
    assert decode(reverse_complement(codes)).decode() == expected
    assert np.array_equal(reverse_complement(reverse_complement(codes)), codes)


@given(st.text(IUPAC, max_size=300))
def test_counts(text):
    upper = Counter(text.upper())
    expected = {letter: upper[letter] for letter in "ACGTN"}
    expected |= {"other": len(text) - sum(expected.values()), "masked": sum(c.islower() for c in text)}
    assert letter_counts(text.encode()) == expected


def test_runs_of_n():
    assert n_runs(encode(b"NNACnGTR")).tolist() == [[0, 2], [4, 5], [7, 8]]
    assert n_runs(encode(b"ACGT")).tolist() == [] and n_runs(encode(b"")).tolist() == []
    assert n_runs(encode(b"NRn")).tolist() == [[0, 3]]

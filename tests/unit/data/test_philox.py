"""The counter-based generator against the published known answers, and what its numbers may depend on."""

from __future__ import annotations

import numpy as np
import pytest

from goatbench.data.philox import AUGMENTATION, ORDER, permutation, philox4x32, uniforms

# Random123 1.14, tests/kat_vectors, "philox4x32 10": counter, key, answer
KNOWN = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    ((0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0), (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1)),
]


@pytest.mark.parametrize(("counter", "key", "answer"), KNOWN)
def test_known_answers(counter, key, answer):
    words = philox4x32(tuple(np.array([word]) for word in counter), key)
    assert tuple(int(word[0]) for word in words) == answer


def test_uniforms_are_the_words_of_the_counter_for_id_block_and_stream():
    found = uniforms(7, 3, np.array([5, 2**62 + 9]), 8, AUGMENTATION)
    for row, sample in enumerate((5, 2**62 + 9)):
        for block in (0, 1):
            counter = (sample & 0xFFFFFFFF, sample >> 32, block, AUGMENTATION)
            words = philox4x32(tuple(np.array([word]) for word in counter), (7, 3))
            assert found[row, 4 * block : 4 * block + 4].tolist() == [int(word[0]) / 2**32 for word in words]


def test_a_row_depends_on_its_own_id_only():
    alone = uniforms(1, 2, np.array([17]), 16, AUGMENTATION)
    among = uniforms(1, 2, np.array([4, 17, 99]), 16, AUGMENTATION)
    assert np.array_equal(alone[0], among[1])
    for other in (uniforms(2, 2, [17], 16, AUGMENTATION), uniforms(1, 3, [17], 16, AUGMENTATION), uniforms(1, 2, [17], 16, ORDER)):
        assert not np.intersect1d(alone, other).size


def test_uniforms_are_uniform():
    numbers = uniforms(0, 0, np.arange(20_000), 4, AUGMENTATION)
    assert numbers.min() >= 0 and numbers.max() < 1
    counts = np.histogram(numbers, bins=20, range=(0, 1))[0]
    assert ((counts - 4000) ** 2 / 4000).sum() < 43.8  # chi-squared, 19 degrees of freedom, p = 0.001
    assert abs(np.corrcoef(numbers[:-1, 0], numbers[1:, 0])[0, 1]) < 4 / np.sqrt(20_000)  # neighbouring ids


def test_permutation_is_one_and_changes_with_seed_and_epoch():
    order = permutation(0, 0, 1000)
    assert np.array_equal(np.sort(order), np.arange(1000))
    assert np.array_equal(order, permutation(0, 0, 1000))
    for other in (permutation(0, 1, 1000), permutation(1, 0, 1000)):
        assert (order == other).sum() < 10  # 1 expected

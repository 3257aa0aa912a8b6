"""Image files for `bench image_loader`: made up or of the user's own, and the same ones in every layout that is read."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import numpy as np
from PIL import Image

from ..data.folder import ImageFolderSource
from ..data.split import balanced_order
from ..errors import UsageError

MADE_UP = "made up: 500 x 375 px, smooth random colours of seven scales, JPEG quality 95; no photographs"
ROWS = 100  # of a parquet row group, as on the Hugging Face hub


def made_up(seed: int) -> bytes:
    """A JPEG file as large as ImageNet's usually are, another one for each seed."""
    draws, total = np.random.default_rng(seed), np.zeros((375, 500, 3), np.float32)
    for octave in range(7):
        coarse = draws.integers(0, 256, (3 * 2**octave, 4 * 2**octave, 3), dtype=np.uint8)
        total += 0.85**octave * np.asarray(Image.fromarray(coarse).resize((500, 375), Image.Resampling.BICUBIC), np.float32)
    total = 255 * (total - total.min()) / np.ptp(total)
    file = io.BytesIO()
    Image.fromarray(total.astype(np.uint8)).save(file, "JPEG", quality=95)
    return file.getvalue()


def of_folder(root: Path, count: int) -> list[bytes]:
    """The first `count` validation files of an image folder (all, if there are fewer), its classes in turn. UsageError if it is none."""
    split = ImageFolderSource(str(root)).split("test")
    return [split.path(index).read_bytes() for index in balanced_order(split.labels)[:count]]


def write_layouts(folder: Path, contents: list[bytes]) -> None:
    """folder/{folder,parquet,tar}: the files as the test images of two classes, in this order; for training, the first and the last."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise UsageError("bench image_loader needs pyarrow: pip install 'goatbench[parquet]'") from error
    samples = [(f"{k:06}", int(2 * k >= len(contents)), content) for k, content in enumerate(contents)]
    for name in ("parquet", "tar"):
        (folder / name).mkdir()
    for part, chosen in (("train", [samples[0], samples[-1]]), ("validation", samples)):
        columns = {"image": [{"bytes": content, "path": key} for key, _, content in chosen], "label": [label for _, label, _ in chosen]}
        parquet.write_table(pyarrow.table(columns), folder / f"parquet/{part}-0.parquet", row_group_size=ROWS)
        with tarfile.open(folder / f"tar/{part}-0.tar", "w") as tar:
            for key, label, content in chosen:
                path = folder / f"folder/{part}/class{label}/{key}.jpg"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
                for name, member in ((f"{key}.jpg", content), (f"{key}.cls", str(label).encode())):
                    header = tarfile.TarInfo(name)
                    header.size = len(member)
                    tar.addfile(header, io.BytesIO(member))

"""An ImageNet-like tree of made-up pictures: JPEGs of many sizes, a CMYK one, a PNG named .JPEG."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

WNIDS = ("n01440764", "n02105855", "n03000134")
SIZES = ((40, 30), (30, 40), (64, 64), (91, 33), (25, 77), (50, 37), (33, 33))  # (width, height)


def picture(seed: int, width: int, height: int) -> Image.Image:
    """Smooth random colours: survives JPEG, differs everywhere."""
    coarse = np.random.default_rng(seed).integers(0, 256, (6, 6, 3), dtype=np.uint8)
    return Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)


def write_tree(root: Path, folders: tuple[str, ...], per_class: dict[str, int]) -> Path:
    """root/{train,val}/<folder>/<k>.JPEG; the first class's training folder holds a CMYK JPEG and a PNG named .JPEG."""
    for part, count in per_class.items():
        for c, folder in enumerate(folders):
            (root / part / folder).mkdir(parents=True)
            for k in range(count):
                width, height = SIZES[(k + c) % len(SIZES)]
                image = picture(1000 * c + k + 500 * (part == "val"), width, height)
                image.save(root / part / folder / f"{k:03d}.JPEG", "JPEG", quality=95)
    first = root / "train" / folders[0]
    picture(1, 48, 36).convert("CMYK").save(first / "cmyk.JPEG", "JPEG")
    picture(2, 36, 48).save(first / "really_png.JPEG", "PNG")
    return root

"""Bytes -> image, as the reference loaders do it: format by content, EXIF orientation ignored, RGB (or L where asked for)."""

from __future__ import annotations

import struct
import warnings
import zlib
from pathlib import Path
from typing import BinaryIO

from PIL import Image

# What Pillow's decoders raise on bad content. DecompressionBombError: Pillow's own limit on pixels, kept.
_DECODE_ERRORS = (OSError, SyntaxError, ValueError, EOFError, struct.error, zlib.error, Image.DecompressionBombError)


class UnreadableImageError(Exception):
    """An image that cannot be decoded. `where` names it; evaluation stops at it, training counts it and leaves it out."""

    def __init__(self, where: str, reason: str) -> None:
        super().__init__(where, reason)
        self.where, self.reason = where, reason

    def __str__(self) -> str:
        return f"{self.where}: cannot be decoded ({self.reason})"


def decode(file: Path | BinaryIO, where: str) -> Image.Image:
    """The image as RGB, whatever its mode (CMYK, palette, alpha, grey) and its name say; UnreadableImageError, naming `where`."""
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "", UserWarning, r"PIL\.TiffImagePlugin")  # which reads EXIF: it is not used
            warnings.filterwarnings("ignore", "Palette images with Transparency", UserWarning)  # alpha is dropped, as convert says
            with Image.open(file) as image:
                return image.convert("RGB")
    except _DECODE_ERRORS as error:
        raise UnreadableImageError(where, f"{type(error).__name__}: {error}".replace(str(file), where)) from error

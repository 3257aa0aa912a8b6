"""One thread a process (the suite runs in parallel); tests may import the test modules of the core and `attention_cases`."""

import os
import sys
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # read when torch is first imported
os.environ.pop("COLUMNS", None)  # tables are compared whole, whatever terminal the tests were started from

_HERE = Path(__file__).parent
for _folder in (_HERE, _HERE / "unit" / "attention", _HERE / "property"):
    if str(_folder) not in sys.path:
        sys.path.append(str(_folder))

"""The command `goatbench`, and `python -m goatbench`, which a sweep starts its children with."""

from __future__ import annotations

import atexit
import os
import sys
import threading


def console() -> None:
    """The command line as a process of its own, which ends at once: the interpreter would take two CPU-seconds to destroy what PyTorch
    and Lightning are made of. A stream that it was started without (`>&-`) is the null device."""
    sys.stdout, sys.stderr = (open(os.devnull, "w") if stream is None else stream for stream in (sys.stdout, sys.stderr))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")  # a terminal of another encoding shows ? for ±
    try:
        main()
    except SystemExit as end:
        if isinstance(end.code, int) and not _is_needed():
            _leave(end.code)
        raise


def main() -> None:
    """cli.main, whose own modules take a fifth of a second: Ctrl-C in it is one line too."""
    try:
        from . import cli
    except KeyboardInterrupt:
        print("goatbench: interrupted", file=sys.stderr)
        sys.exit(130)
    cli.main()


def _is_needed() -> bool:
    """Whether something waits for the interpreter to end in its own way: a thread, or what traces this process (coverage, a profiler)."""
    monitoring = getattr(sys, "monitoring", None)  # Python 3.12
    is_traced = sys.gettrace() or sys.getprofile() or (monitoring and any(monitoring.get_tool(number) for number in range(6)))
    return bool(is_traced) or any(not one.daemon and one is not threading.main_thread() for one in threading.enumerate())


def _leave(code: int) -> None:
    """All that the end of a process promises: exit handlers, then whole output. Returns where output fails, which the interpreter says."""
    atexit._run_exitfuncs()
    try:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
    except (OSError, ValueError):
        return
    os._exit(code)


if __name__ == "__main__":
    console()

"""What every worker process of a data loader does first."""

from __future__ import annotations

import signal


def leave_interrupts_to_the_trainer(worker: int) -> None:
    """A terminal sends Ctrl-C to all processes: a worker that died of it would take the last steps before the checkpoint with it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

"""A stop by a signal is recognised behind whatever a library has made of it; the chains are those of torch.compile."""

from __future__ import annotations

import signal
import subprocess

import pytest

from goatbench.errors import REQUEUES, PreemptedError
from goatbench.interruption import plain_stop


class WrappedError(RuntimeError):
    """As torch's: raised `from None`, the error that was wrapped is an attribute."""

    def __init__(self, inner: BaseException) -> None:
        super().__init__(f"backend='inductor' raised: {inner}")
        self.inner_exception = inner


def killed(number: int) -> WrappedError:
    """What Inductor raises when its g++ dies by a signal."""
    compile_error = RuntimeError("C++ compile error")
    compile_error.__cause__ = subprocess.CalledProcessError(-number, ["g++"])
    return WrappedError(compile_error)


def of_context() -> RuntimeError:
    try:
        try:
            raise KeyboardInterrupt("stopped after 3 steps")
        finally:
            raise RuntimeError("a cleaning up that failed")
    except RuntimeError as error:
        return error


CASES = [
    (killed(signal.SIGINT), KeyboardInterrupt, "^$"),
    (killed(signal.SIGTERM), KeyboardInterrupt, "^$"),
    (killed(signal.SIGUSR1), PreemptedError, "stopped by SIGUSR1"),
    (WrappedError(PreemptedError("stopped by SIGUSR1")), PreemptedError, "stopped by SIGUSR1"),
    (of_context(), KeyboardInterrupt, "stopped after 3 steps"),
]


@pytest.mark.parametrize(("failure", "kind", "said"), CASES)
def test_a_stop_comes_out_as_itself(failure, kind, said):
    with pytest.raises(kind, match=said), plain_stop():
        raise failure


def test_in_a_job_that_comes_back_sigterm_asks_for_that(monkeypatch):
    monkeypatch.setenv(REQUEUES, "1")
    with pytest.raises(PreemptedError, match="stopped by SIGTERM"), plain_stop():
        raise killed(signal.SIGTERM)


@pytest.mark.parametrize("failure", [killed(signal.SIGKILL), WrappedError(ValueError("no")), subprocess.CalledProcessError(1, ["g++"])])
def test_other_failures_stay_what_they_are(failure):
    failure.__context__ = failure.__cause__ = getattr(failure, "inner_exception", None)
    if failure.__context__ is not None:
        failure.__context__.__context__ = failure  # a ring ends the search all the same
    with pytest.raises(type(failure)) as caught, plain_stop():
        raise failure
    assert caught.value is failure

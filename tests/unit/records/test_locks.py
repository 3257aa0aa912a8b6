"""One lock for jobs, weights and the cache: it shuts others out where the file system has locks, and stops nobody where it has none."""

from __future__ import annotations

import contextlib
import errno
import os

import pytest

from goatbench import weights
from goatbench.data import cache_files
from goatbench.elsewhere import lock_job
from goatbench.records.files import lock

HOLDERS = {
    "job": lambda folder: contextlib.closing(lock_job(str(folder), ("c" * 64, 1, "d", "s"))),
    "weights": weights._locked,
    "cache": cache_files.locked,
}


@pytest.fixture
def refused(monkeypatch):
    """refused(number): flock fails with this errno."""

    def of(number):
        def refuse(*arguments):
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr("fcntl.flock", refuse)

    return of


@pytest.mark.parametrize("holder", HOLDERS)
@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS])
def test_a_file_system_without_locks_stops_nobody(tmp_path, refused, holder, number):
    refused(number)
    with HOLDERS[holder](tmp_path), HOLDERS[holder](tmp_path):
        pass


@pytest.mark.parametrize("holder", HOLDERS)
def test_another_failure_is_not_taken_for_that(tmp_path, refused, holder):
    refused(errno.EIO)
    with pytest.raises(OSError, match=os.strerror(errno.EIO)), HOLDERS[holder](tmp_path):
        pass


def test_what_is_locked_stays_so_until_it_is_closed(tmp_path):
    with open(tmp_path / "lock", "w") as one, open(tmp_path / "lock", "w") as other:
        assert lock(one) and not lock(other, wait=False)
        one.close()
        assert lock(other, wait=False)

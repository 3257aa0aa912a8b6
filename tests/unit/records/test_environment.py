"""The description of the machine: right where another source tells, and silent about whose machine it is."""

from __future__ import annotations

import getpass
import json
import os
import platform

import numpy
import pytest

from goatbench.records.environment import cpu_name, describe_environment, package_version, visible_cores


def test_it_names_versions_and_the_caller_s_devices(make_record):
    described = describe_environment(threads=3, gpu_name="a GPU", gpu_count=2)
    assert described["numpy"] == numpy.__version__ and described["python"] == platform.python_version()
    assert (described["threads"], described["gpu"], described["gpu_count"]) == (3, "a GPU", 2)
    assert make_record(environment=described).environment == described


def test_it_names_no_host_and_no_user():
    text = json.dumps(describe_environment(threads=1))
    assert platform.node() not in text and os.path.expanduser("~") not in text
    assert f'"{getpass.getuser()}"' not in text and platform.release() not in text


def test_an_absent_package_is_none():
    assert package_version("no-such-package-anywhere") is None


@pytest.mark.skipif(platform.system() != "Linux", reason="reads /proc/cpuinfo")
def test_the_processor_s_name_is_read_from_cpuinfo(tmp_path):
    path = tmp_path / "cpuinfo"
    path.write_text("processor\t: 0\nmodel\t\t: 17\nmodel name\t: Some CPU: fast @ 3 GHz\n\nprocessor\t: 1\nmodel name\t: Other\n")
    assert cpu_name(path) == "Some CPU: fast @ 3 GHz"
    assert cpu_name(tmp_path / "absent") == (platform.processor() or None)


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs affinity")
def test_cores_are_those_the_process_may_use():
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(before)})
        assert visible_cores() == 1
    finally:
        os.sched_setaffinity(0, before)
    assert visible_cores() == len(before)

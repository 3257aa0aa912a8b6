"""Doctor: each check says what is wrong when it is wrong."""

import os

import pytest

from goatbench import doctor
from goatbench.cli import main


def versions(**known):
    return lambda package: known.get(package.replace("-", "_"))


@pytest.mark.parametrize("version", ["2.6.2", "2.6.3"])
@pytest.mark.parametrize("package", ["lightning", "pytorch_lightning"])
def test_malicious_lightning_is_broken(package, version):
    finding = doctor.check_lightning(versions(**{"lightning": "2.6.6", package: version}))
    assert finding.level == "broken" and version in finding.text and "malicious" in finding.text


def test_lightning_levels():
    assert doctor.check_lightning(versions(lightning="2.6.6")).level == "ok"
    assert doctor.check_lightning(versions()).level == "broken"


def test_old_python_is_broken():
    assert doctor.check_python((3, 10, 9)).level == "broken"
    assert doctor.check_python((3, 11, 0)).level == "ok"


def test_the_pair_is_tried_not_read():
    tested, other = versions(torch="2.14.1", torchvision="0.29.1"), versions(torch="2.14.1+cpu", torchvision="0.28.0")
    assert doctor.check_pair(tested, script="pass").level == "ok"
    assert doctor.check_pair(other, script="pass").level == "warning"
    broken = doctor.check_pair(other, script="raise RuntimeError('operator torchvision::nms does not exist')")
    assert broken.level == "broken" and "torchvision::nms does not exist" in broken.text and "0.28.0" in broken.text
    assert doctor.check_pair(tested, script="import os; os.abort()").level == "broken"
    assert doctor.check_pair(versions(torch="2.14.1"), script="pass").level == "broken"


def test_a_backend_that_fails_is_one_line():
    def fails():
        raise RuntimeError("No available kernel.\nAborting execution.")

    finding = doctor._tried("kernel sdpa", "broken", fails)
    assert finding == doctor.Finding("broken", "kernel sdpa", "fails here: RuntimeError: No available kernel.")


def test_embedded_data_counts():
    finding = doctor.check_data()
    assert finding.level == "ok" and "12000 train, 2000 validation, 4000 test" in finding.text


def test_embedded_dna_is_whole():
    finding = doctor.check_genome()
    assert finding.level == "ok" and "8,710,155 bases in 8 pieces" in finding.text


def test_embedded_text_is_whole():
    finding = doctor.check_text()
    assert finding.level == "ok" and "10,761,413 bytes in 233 documents" in finding.text


def test_write_access(tmp_path):
    assert doctor.check_writable("runs_dir", tmp_path).level == "ok"
    assert doctor.check_writable("runs_dir", tmp_path / "new" / "deep").level == "ok"
    assert not (tmp_path / "new").exists()
    (tmp_path / "file").write_text("")
    assert doctor.check_writable("runs_dir", tmp_path / "file").level == "broken"
    if os.getuid() != 0:  # root writes anywhere
        tmp_path.chmod(0o500)
        assert doctor.check_writable("runs_dir", tmp_path).level == "broken"


def test_threads():
    assert doctor.check_threads({}).level == "ok"
    assert doctor.check_threads({"OMP_NUM_THREADS": "9999"}).level == "warning"


@pytest.mark.parametrize(("levels", "code"), [(["ok", "absent", "warning"], 0), (["ok", "broken"], 3)])
def test_only_what_is_broken_fails(monkeypatch, capsys, levels, code):
    monkeypatch.setattr(doctor, "diagnose", lambda runs_dir: [doctor.Finding(level, "topic", "text") for level in levels])
    with pytest.raises(SystemExit) as ended:
        main(["doctor"])
    assert ended.value.code == code
    assert ("1 broken" in capsys.readouterr().out) is bool(code)


def test_nothing_is_imported_after_a_malicious_version(monkeypatch):
    monkeypatch.setattr(doctor, "check_lightning", lambda: doctor.Finding("broken", "lightning", "malicious"))
    monkeypatch.setattr(doctor, "BACKENDS", (("kernel sdpa", "broken", pytest.fail),))
    monkeypatch.setattr(doctor, "check_pair", lambda: doctor.Finding("ok", "torch", ""))
    assert any(finding.topic == "embedded data" for finding in doctor.diagnose())

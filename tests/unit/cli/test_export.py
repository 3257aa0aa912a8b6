"""`goatbench export`: a fresh model from the folder computes the same logits, through timm's factory and through ours."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import timm
import torch
from safetensors.torch import load_file

from goatbench import cli
from goatbench.compose import compose
from goatbench.errors import UsageError
from goatbench.models import build_decoder, build_vit
from goatbench.models.exported import load_exported
from goatbench.training.checkpoint import save_checkpoint

RESULTS = Path(__file__).resolve().parents[3] / "results"


def call(capsys, *arguments):
    with pytest.raises(SystemExit) as ended:
        cli.main(list(arguments))
    out, err = capsys.readouterr()
    return ended.value.code, out, err


def a_run(tmp_path, task, attention, overrides=()):
    """(run id, its net): a committed record as if it had run here, with weights drawn anew."""
    spec = compose([f"task={task}", f"attention={attention}", *overrides]).spec
    torch.manual_seed(1)
    net = (build_vit if spec.domain == "vision" else build_decoder)(spec.model, spec.attention).eval()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(0.02 * torch.randn_like(parameter))
    path = next(iter(sorted((RESULTS / f"{task}@v1" / "embedded" / attention).glob("*.json"))))
    record = json.loads(path.read_text())
    record["config"]["model"], record["config"]["attention"] = (part.model_dump(mode="json") for part in (spec.model, spec.attention))
    folder = tmp_path / "runs" / record["run_id"]
    folder.mkdir(parents=True)
    (folder / "record.json").write_text(json.dumps(record))
    save_checkpoint(tmp_path / "runs" / "checkpoints" / record["training"]["training_hash"] / "weights.pt", net.state_dict(), {})
    return record["run_id"], net


@pytest.mark.parametrize("attention", [pytest.param("goat", marks=pytest.mark.slow), "learned_absolute"])
def test_timm_loads_an_exported_vit(tmp_path, capsys, attention):
    """learned_absolute: one table under the names of all blocks, which safetensors would refuse."""
    run, net = a_run(tmp_path, "vit_resolution", attention)
    code, out, _ = call(capsys, "export", run, "--out", str(tmp_path / "out"), "--runs-dir", str(tmp_path / "runs"))
    assert code == 0 and "timm.create_model" in out
    images = torch.randn(2, 1, 20, 20)
    wanted = net(images)
    again = timm.create_model(f"local-dir:{tmp_path / 'out'}", pretrained=True).eval()
    assert torch.equal(again(images), wanted)
    assert torch.equal(load_exported(tmp_path / "out")(images), wanted)
    assert again.pretrained_cfg["mean"] == [0.2860] and again.pretrained_cfg["input_size"] == (1, 12, 12)


def test_an_oblong_vit_keeps_its_training_grid(tmp_path, capsys):
    """learned_absolute: its table has the shape of the training grid, and is stretched over any other."""
    sizes = ["model.image_size=[12,16]", "evaluation.pixels.224=[12,16]"]
    run, net = a_run(tmp_path, "vit_resolution", "learned_absolute", sizes)
    assert call(capsys, "export", run, "--out", str(tmp_path / "out"), "--runs-dir", str(tmp_path / "runs"))[0] == 0
    again = timm.create_model(f"local-dir:{tmp_path / 'out'}", pretrained=True).eval()
    assert again.pretrained_cfg["input_size"] == (1, 12, 16) and again.rope.train_grid == (6, 8)
    for size in ((12, 16), (20, 28)):
        images = torch.randn(2, 1, *size)
        assert torch.equal(again(images), net(images))


def test_a_decoder_is_loaded_again_and_by_plain_torch(tmp_path, capsys):
    run, net = a_run(tmp_path, "genome_nll", "goat", ["model.tie_embeddings=true"])
    assert call(capsys, "export", run, "--out", str(tmp_path / "out"), "--runs-dir", str(tmp_path / "runs"))[0] == 0
    tokens = torch.randint(5, (2, 40))
    assert torch.equal(load_exported(tmp_path / "out")(tokens), net(tokens))
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    plain = type(net)(**config["model_args"])
    plain.load_state_dict(load_file(tmp_path / "out" / "model.safetensors"))
    assert torch.equal(plain.eval()(tokens), net(tokens))
    assert config["goatbench"]["run_id"] == run
    assert str(tmp_path) not in json.dumps(config)


def test_refusals_are_one_line_and_leave_nothing(tmp_path, capsys):
    run, _ = a_run(tmp_path, "genome_nll", "rope")
    runs, out = ["--runs-dir", str(tmp_path / "runs")], tmp_path / "out"
    out.mkdir()
    published = str(next((RESULTS / "genome_nll@v1" / "embedded" / "alibi").glob("*.json")))
    cases = [
        ([run, "--out", str(out), *runs], "exists and is not overwritten"),
        ([run, "--out", str(tmp_path / "n o" / "where"), *runs], "n o' does not exist; make it first"),
        (["20991129t202833-0d61a9b3-ffffff", "--out", str(tmp_path / "new"), *runs], "no finished run"),
        ([published, "--out", str(tmp_path / "new"), *runs], "holds none"),
    ]
    for arguments, expected in cases:
        code, printed, err = call(capsys, "export", *arguments)
        assert (code, printed, err.count("\n")) == (2, "", 1) and expected in err, err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "runs"] and not any(out.iterdir())


def test_what_is_refused_needs_no_torch(tmp_path):
    arguments = [["20991129t202833-0d61a9b3-ffffff", "--out", "new"], ["20991129t202833-0d61a9b3-ffffff", "--out", "no/where"]]
    script = (
        "import sys\nfrom goatbench import cli\n"
        f"for arguments in {arguments}:\n"
        "    try:\n        cli.main(['export', *arguments])\n    except SystemExit as ended:\n        assert ended.code == 2\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=True)


def test_weights_of_another_model_are_refused(tmp_path, capsys):
    run, _ = a_run(tmp_path, "genome_nll", "rope")
    record = tmp_path / "runs" / run / "record.json"
    changed = json.loads(record.read_text())
    changed["config"]["model"]["depth"] = 3
    record.write_text(json.dumps(changed))
    code, _, err = call(capsys, "export", run, "--out", str(tmp_path / "new"), "--runs-dir", str(tmp_path / "runs"))
    assert code == 2 and "does not fit the model" in err and not (tmp_path / "new").exists()


def test_a_damaged_folder_is_one_line(tmp_path, capsys):
    run, _ = a_run(tmp_path, "genome_nll", "rope")
    call(capsys, "export", run, "--out", str(tmp_path / "whole"), "--runs-dir", str(tmp_path / "runs"))
    config = json.loads((tmp_path / "whole" / "config.json").read_text())
    other = {"model_args": config["model_args"] | {"position": "rop"}}, {"goatbench": {"model_class": "os.system"}}, {"model_args": []}
    damages = [
        shutil.rmtree,
        lambda out: (out / "config.json").unlink(),
        lambda out: (out / "config.json").write_text("[" * 100_000),
        lambda out: (out / "model.safetensors").write_bytes((out / "model.safetensors").read_bytes()[:1000]),
        *(lambda out, change=change: (out / "config.json").write_text(json.dumps(config | change)) for change in other),
    ]
    for number, damage in enumerate(damages):
        out = shutil.copytree(tmp_path / "whole", tmp_path / str(number))
        damage(out)
        with pytest.raises(UsageError) as error:
            load_exported(out)
        assert "\n" not in str(error.value)

"""Every row in every family of models, at scale smoke: two training steps, its task's measurement, one evaluation beyond the training
size; and the two generated files about rows (goatbench/capabilities.json, results/MATRIX.md) say what the code says."""

from __future__ import annotations

import math
import time
import zlib
from pathlib import Path

import pytest
import torch

from goatbench.capabilities import read_capabilities
from goatbench.config_tree import ConfigTree
from goatbench.errors import UsageError
from goatbench.matrix import Pairs, facts_of, matrix_markdown
from goatbench.registry import tasks
from goatbench.tasks.causal import out_of_range
from goatbench.training.causal_lm import CausalLM
from goatbench.training.classifier import Classifier

VIT, GENOME, TEXT = FAMILIES = "vit_resolution", "genome_length", "lm_length"
ROWS = ConfigTree.find().options("attention")
SEQUENCES_ONLY = {
    "alibi", "alibi_learned", "alibi_sink_scalar", "bam", "cable", "cope", "diff_v1", "diff_v2", "fire", "fope", "fox", "gated_elementwise",
    "gated_headwise", "goat_no_slope", "goat_rope", "kerple_log", "kerple_power", "mta", "mta_conv", "rope", "rope_randomised",
    "rope_sink_scalar", "rope_xpos", "sink_token", "t5", "talking_heads",
}  # fmt: skip
IMAGES_ONLY = {"alibi_2d", "fire_2d", "goat_mixed", "lookhere", "rope_axial", "rope_axial_ape", "rope_mixed", "rope_mixed_ape", "rpb"}
REFUSED = {  # family -> rows, and what they are told
    VIT: (SEQUENCES_ONLY, "is not defined for task=vit_resolution (vision: 2 axes)"),
    GENOME: (IMAGES_ONLY, "is not defined for task=genome_length (genome: 1 axis)"),
    TEXT: (IMAGES_ONLY, "is not defined for task=lm_length (text: 1 axis)"),
}
LIMITED = {"learned_absolute"}  # decoders: no position beyond the training length
BUILT = [(family, row) for family in FAMILIES for row in ROWS if row not in REFUSED[family][0]]
MATRIX = Path(__file__).resolve().parents[2] / "results" / "MATRIX.md"
BATCH = 2
CPU_SECONDS = 240  # of the whole file
SMALLEST = {  # family -> fields of the specification: the shortest and the longest column of the headline, on the least data
    VIT: {"task": {"resolutions": [224, 512]}, "data": {"num_test": 32}},
    GENOME: {"task": {"multiples": [1, 4]}, "evaluation": {"num_blocks": 2, "markov_interpolated": 2}},
    TEXT: {"task": {"multiples": [1, 4]}, "evaluation": {"num_blocks": 2, "num_spans": 1}},
}


@pytest.fixture(scope="module", autouse=True)
def all_of_it_takes_minutes():
    """Who adds a row pays for it in every test here."""
    start = time.process_time()
    yield
    assert time.process_time() - start < CPU_SECONDS


@pytest.fixture(scope="module")
def pairs():
    return Pairs()


@pytest.fixture(scope="module")
def data_of(pairs):
    """Family -> its data, of which no row changes anything; made once."""
    made = {}

    def data(family):
        if family not in made:
            made[family] = tasks.get(family).data(smallest(pairs.spec("nope", family)))
        return made[family]

    return data


def smallest(spec):
    changed = SMALLEST[spec.task.name]
    return spec.model_copy(update={part: getattr(spec, part).model_copy(update=values) for part, values in changed.items()})


@pytest.mark.parametrize("family", FAMILIES)
def test_refusals_are_those_of_the_table(pairs, family):
    told = {}
    for row in ROWS:
        if row in SEQUENCES_ONLY | IMAGES_ONLY:  # no other row is refused: the next test runs it
            try:
                pairs.spec(row, family)
            except UsageError as error:
                told[row] = str(error)
    rows, message = REFUSED[family]
    assert set(told) == rows
    assert all(f"attention={row} {message}" in text and "\n" not in text for row, text in told.items())


def module_of(spec, net):
    if spec.domain == "vision":
        return Classifier(net, spec.training, spec.data.augmentation, spec.learning_rate, 2, spec.model.num_classes)
    return CausalLM(net, spec.training, spec.learning_rate, 2, spec.model.num_scored)


def batch_of(spec):
    ids, generator = torch.arange(BATCH), torch.Generator().manual_seed(1)
    if spec.domain == "vision":
        side = spec.model.image_size
        return torch.randn(BATCH, spec.model.in_chans, side, side, generator=generator), ids, ids
    return torch.randint(spec.model.num_scored, (BATCH, spec.model.seq_len + 1), generator=generator), ids


@pytest.mark.parametrize(("family", "row"), BUILT)
def test_it_trains_is_measured_and_goes_beyond_its_training_size(pairs, data_of, family, row):
    spec = smallest(pairs.spec(row, family))
    torch.manual_seed(0)
    net = tasks.get(family).model(spec)
    module = module_of(spec, net)
    before = {name: p.detach().clone() for name, p in net.named_parameters()}
    two_training_steps(module, batch_of(spec))
    # A ViT's last block is read at CLS alone, which has no coordinate: what it does with offsets cannot matter there.
    last = f"blocks.{spec.model.depth - 1}.attn.scheme." if spec.domain == "vision" else None
    trained = [(name, p) for name, p in net.named_parameters() if p.requires_grad and not (last and name.startswith(last))]
    assert not [name for name, p in trained if torch.equal(p, before[name])]
    measured(spec, net.eval(), data_of(family), row)
    with torch.inference_mode():
        evaluated_beyond(spec, net, row)


def two_training_steps(module, batch):
    """With the run's own loss, optimizer and schedule."""
    made = module.configure_optimizers()
    for step in range(2):
        loss = module.training_step(batch, step)
        assert torch.isfinite(loss)
        loss.backward()
        trained = {name: p for name, p in module.net.named_parameters() if p.requires_grad}  # FoPE's coefficients are drawn once
        assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in trained.values())
        made["optimizer"].step()
        made["lr_scheduler"]["scheduler"].step()
        made["optimizer"].zero_grad(set_to_none=True)


def measured(spec, net, data, row):
    """The headline has every column that was asked for: a number within its bounds, or why it does not apply."""
    task = tasks.get(spec.task.name)
    card = task.card
    found = task.measure(spec, net, data, None).measurements
    headline = [m for m in found if m.metric == card.primary_metric and "reference" not in m.conditions]
    asked = spec.task.resolutions if spec.domain == "vision" else spec.task.multiples
    assert {m.conditions[card.column_condition] for m in headline} == set(asked)
    low, high = next(metric.bounds for metric in card.metrics if metric.name == card.primary_metric)
    for m in headline:
        if row in LIMITED and spec.domain != "vision" and m.conditions["multiple"] > 1:
            assert m.value is None and m.reason.startswith(f"not applicable: positions beyond {spec.model.seq_len} ")
        else:
            assert math.isfinite(m.value) and low <= m.value <= (high or math.inf) and m.n > 0
    assert list(task.contradictions(found)) == []


def evaluated_beyond(spec, net, row):
    if spec.domain == "vision":
        side = max(spec.evaluation.pixels.values())
        assert side > 2 * spec.model.image_size
        logits = net(torch.randn(1, spec.model.in_chans, side, side))
    else:
        length = 2 * spec.model.seq_len
        is_limited = net.max_positions is not None and length > net.max_positions
        assert is_limited == (row in LIMITED)
        if is_limited:
            assert out_of_range(net).startswith(f"not applicable: positions beyond {spec.model.seq_len} ")
            length = net.max_positions
        logits = net(torch.randint(spec.model.num_scored, (1, length)))
        assert logits.shape == (1, length, spec.model.vocab_size)
    assert torch.isfinite(logits).all()


def perturbed(spec, family):
    """The row's model with every parameter moved by numbers that belong to its name."""
    torch.manual_seed(0)
    net = tasks.get(family).model(spec)
    with torch.no_grad():
        for name, parameter in net.named_parameters():
            generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))
    return net.train(spec.domain != "vision")  # randomised positions are those of training


@pytest.mark.parametrize("family", FAMILIES)
def test_no_row_computes_what_another_does(pairs, family):
    """From the files as they stand: a row that lost what makes it one (its scheme, gate, inner attention) is another of them."""
    rows, logits = [row for of, row in BUILT if of == family], {}
    for row in rows:
        spec = pairs.spec(row, family)
        batch, net = batch_of(spec)[0], perturbed(spec, family)
        with torch.no_grad():
            logits[row] = net(batch if spec.domain == "vision" else batch[:, :-1])
        assert torch.isfinite(logits[row]).all()
    same = [(a, b) for i, a in enumerate(rows) for b in rows[:i] if float((logits[a] - logits[b]).abs().max()) < 1e-3]
    assert same == []


@pytest.mark.parametrize("row", [row for row in ROWS if row not in IMAGES_ONLY])
def test_precision_is_measured_of_every_row_for_sequences(pairs, row):
    spec = pairs.spec(row, "precision")
    spec = spec.model_copy(update={"task": spec.task.model_copy(update={"multiples": [4]})})  # 128 tokens
    task = tasks.get("precision")
    torch.manual_seed(0)
    found = task.measure(spec, task.model(spec), task.data(spec), None).measurements
    plain = {(m.metric, m.conditions["dtype"]): m for m in found if "positions" not in m.conditions}
    assert set(plain) == {(metric.name, dtype) for metric in task.card.metrics for dtype in ("bf16", "fp16")}
    for (metric, _), m in plain.items():
        assert (m.value is None) == bool(m.reason)
        if row in LIMITED:
            assert m.reason.startswith("not applicable: positions beyond 32 ")
        elif metric == "output_error":
            assert 0 < m.value < 0.05


@pytest.mark.parametrize("row", ROWS)
def test_capabilities_are_what_the_models_answer(pairs, row):
    assert read_capabilities()[row] == facts_of(pairs, row), "run: python -m goatbench.matrix"


def test_generated_files_know_every_row_and_every_cell(pairs):
    assert list(read_capabilities()) == pairs.rows, "run: python -m goatbench.matrix"
    assert MATRIX.read_text(encoding="utf-8") == matrix_markdown(pairs), "run: python -m goatbench.matrix"

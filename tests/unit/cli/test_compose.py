"""Composition: every config composes, mistakes are one line, sweeps expand, variants name what differs."""

import itertools
import json
import re
from importlib.resources import files
from pathlib import Path

import pytest
import yaml

from goatbench.compose import Composer, known_keys
from goatbench.config_tree import ConfigTree
from goatbench.errors import UsageError
from goatbench.spec import RUN_SPECS, VisionRunSpec
from goatbench.spec.run import SWEEPS

COMPOSER = Composer()
TREE = COMPOSER.tree
RESULTS = Path(__file__).parents[3] / "results"
FILES = {file.stem: yaml.safe_load(file.read_text())["axes"] for file in files("goatbench.configs").joinpath("attention").glob("*.yaml")}
ONE_DIMENSIONAL, TWO_DIMENSIONAL = ({name for name, axes in FILES.items() if number in axes} for number in (1, 2))


def test_axes_of_every_attention():
    assert set(TREE.attentions_for(1)) == ONE_DIMENSIONAL
    assert set(TREE.attentions_for(2)) == TWO_DIMENSIONAL
    assert {"goat", "nope", "sink_scalar"} <= ONE_DIMENSIONAL & TWO_DIMENSIONAL
    assert {"rope", "alibi", "fox", "sink_token"} <= ONE_DIMENSIONAL - TWO_DIMENSIONAL
    assert {"rope_axial", "alibi_2d", "goat_mixed"} <= TWO_DIMENSIONAL - ONE_DIMENSIONAL


@pytest.mark.parametrize("scale", ["embedded", "smoke", "paper"])
@pytest.mark.parametrize("attention", sorted(ONE_DIMENSIONAL))
def test_every_sequence_attention_composes_at_every_scale(scale, attention):
    spec = COMPOSER.compose(["task=genome_nll", f"attention={attention}", f"scale={scale}"]).spec
    assert (spec.attention.name, spec.scale, spec.domain) == (attention, scale, "genome")
    assert spec.attention.lanes == "carve"  # one axis: lanes fit beside the content


@pytest.mark.parametrize("scale", ["embedded", "smoke", "paper"])
@pytest.mark.parametrize("attention", sorted(TWO_DIMENSIONAL))
def test_every_attention_composes_at_every_scale(scale, attention):
    spec = COMPOSER.compose([f"attention={attention}", f"scale={scale}"]).spec
    assert (spec.attention.name, spec.scale, spec.domain) == (attention, scale, "vision")


@pytest.mark.parametrize(("task", "scale"), list(itertools.product(TREE.options("task"), ["embedded", "paper"])))
def test_every_task_composes_at_every_scale(task, scale):
    spec = COMPOSER.compose([f"task={task}", f"scale={scale}"]).spec
    assert spec.task.name == task
    if spec.domain == "vision":
        assert set(spec.task.resolutions) <= set(spec.evaluation.pixels)


CHOICES = [f"{group}={name}" for group in ("model", "data", "evaluation", "trainer") for name in TREE.options(group)]


@pytest.mark.parametrize("choice", CHOICES)
def test_every_choice_composes(choice):
    of_paper = ("patch16", "imagenet", "deit3", "lookhere", "timm", "gpu", "ddp", "25m", "85m", "paper")
    scale = "paper" if any(word in choice for word in of_paper) else "smoke" if "nano" in choice else "embedded"
    group, _, name = choice.partition("=")
    kind = TREE.read(group, name).get("kind", "vit")
    tokens = ["data.tokenizer=gpt2", "data.tokenizer_file=folder"] if name in ("decoder_c4_125m", "decoder_fineweb_1b") else []
    words = ("text", "toy", "stories", "blocks", "mta")
    kind = next((word for word in words if word in name), "text" if tokens else "genome") if kind == "decoder" else kind
    tasks = {"images": "vit_res512", "genome": "genome_nll", "text": "lm_length", "toy": "needle", "stories": "babilong"}
    tasks |= {"blocks": "toy_blocks", "mta": "lm_length"}
    task = tasks.get(kind, "vit_res512")
    assert COMPOSER.compose([f"task={task}", f"scale={scale}", choice, *tokens]).spec.scale == scale


@pytest.mark.parametrize(
    ("choice", "says"),
    [("model=decoder_micro", "vit_micro"), ("data=genome_embedded", "fashion_mnist"), ("evaluation=genome_smoke", "deit3")],
)
def test_a_choice_of_another_domain_is_one_line_with_those_that_fit(choice, says):
    with pytest.raises(UsageError, match=f"{choice} does not fit task=vit_res512 .vision.; these do: .*{says}"):
        COMPOSER.compose([choice])


@pytest.mark.parametrize(
    ("task", "model", "has", "needs", "fit"),
    [
        ("lm_length", "decoder_c4_125m", (50257, 50256),
         "data.tokenizer=bytes (gpt2 and file read other tokens) needs vocab_size 257 and num_scored 256",
         "decoder_text_85m, decoder_mta_300m, "),
        ("genome_nll", "decoder_toy", (32, 24), "DNA (A C G T N) needs vocab_size 5 and num_scored 4", "decoder_micro, decoder_nano, "),
    ],
)  # fmt: skip
def test_a_model_of_another_vocabulary_is_one_line_with_both_and_those_that_fit(task, model, has, needs, fit):
    """12 layers of 768 are nearest to 12 of 768, then to 20 of 1024."""
    with pytest.raises(UsageError) as caught:
        COMPOSER.compose([f"task={task}", f"model={model}"])
    said = f"model {model} has vocab_size {has[0]} and num_scored {has[1]}; {needs}; models that fit, the nearest in size first: {fit}"
    assert str(caught.value).startswith(said) and "\n" not in str(caught.value)
    fitting = str(caught.value).rpartition(": ")[2].split(", ")
    assert set(fitting) == {name for name in TREE.options("model") if f"vocab_size {TREE.read('model', name).get('vocab_size')} " in needs}


def test_rates_of_other_domains_and_scales_do_not_change_a_run(tmp_path):
    spec = COMPOSER.compose(["attention=goat"]).spec
    more = {**spec.attention.tuned, "text": {"paper": 0.5}, "vision": {**spec.attention.tuned["vision"], "paper": 0.5}}
    other = spec.model_copy(update={"attention": spec.attention.model_copy(update={"tuned": more})})
    assert other.config_hash == spec.config_hash
    more["vision"] = {"embedded": 0.5}
    changed = spec.model_copy(update={"attention": spec.attention.model_copy(update={"tuned": more})})
    assert changed.config_hash != spec.config_hash


def test_a_tuned_rate_names_the_committed_sweep_that_it_was_chosen_from():
    """For every rate of every attention there are runs of that attention in the sweep of its domain."""
    tuned = {name: TREE.read("attention", name).get("tuned", {}) for name in TREE.options("attention")}
    found = {(domain, scale, name) for name, rates in tuned.items() for domain in rates for scale in rates[domain]}
    assert len(found) > 20
    for domain, scale, name in found:
        rows = [row.name for row in (RESULTS.parent / SWEEPS[domain] / scale).iterdir()]
        assert any(re.fullmatch(rf"{name}(-[0-9a-f]{{8}})?", row) for row in rows), (domain, scale, name)
    sources = {task: COMPOSER.compose([f"task={task}", "attention=goat"]).spec.learning_rate_source for task in ("needle", "lm_length")}
    assert sources == {"needle": "tuned: results/needle_tuning@v1", "lm_length": "tuned: results/lm_tuning@v1"}
    other = [["attention=goat", "training.learning_rate=1e-3"], ["attention=rope_xpos", "scale=paper"]]
    assert [COMPOSER.compose(["task=needle", *more]).spec.learning_rate_source for more in other] == ["given", "default"]


def test_the_scale_picks_the_rest():
    embedded, paper = COMPOSER.compose([]).spec, COMPOSER.compose(["scale=paper"]).spec
    assert (embedded.model.name, embedded.data.name, embedded.trainer.accelerator) == ("vit_micro", "fashion_mnist", "cpu")
    assert (paper.model.name, paper.data.name, paper.trainer.accelerator) == ("vit_small_patch16", "image_folder", "gpu")
    assert (paper.training.optimizer, paper.training.batch_size, paper.training.epochs) == ("lamb", 2048, 400)
    assert embedded.evaluation.pixels == {224: 12, 288: 14, 320: 16, 384: 20, 448: 24, 512: 28}
    assert all(nominal == pixels for nominal, pixels in paper.evaluation.pixels.items())


def test_files_are_short_and_hold_values_only():
    root = TREE.roots[0].path
    for path in sorted(Path(root).rglob("*.yaml")):
        text = path.read_text()
        assert len(text.splitlines()) <= 40, path
        assert "_target_" not in text and "${" not in text, path
        assert text.startswith("#"), path


def test_every_task_and_attention_opens_with_its_command_and_expectation():
    for group in ("task", "attention"):
        for name in TREE.options(group):
            comment = "\n".join(TREE.comment(group, name))
            says_what_to_expect = any(word in comment for word in ("Expected", "Published", "No published figure"))
            assert "goatbench " in comment and says_what_to_expect, (group, name)
            is_sourced = re.search(r"arXiv \d{4}\.\d{5}|NeurIPS 2024|microsoft/unilm|package goat-attention", comment)
            assert group == "task" or is_sourced, (group, name)


MISTAKES = [  # overrides, what the one line must hold
    (["task=needle", "evaluation.preset=/home/me"], "a name, of small letters, digits, '.', '_' and '-', at most 64"),
    (["task=vit_res51"], "unknown task 'vit_res51'; did you mean 'vit_res512'?"),
    (["attention=gaot"], "unknown attention 'gaot'; did you mean 'goat'?"),
    (["attention=alibi", "task=vit_res512"], "did you mean attention=alibi_2d?"),
    (["attention=rope"], "did you mean attention=rope_axial?"),
    (["attention=rope_axial", "task=lm_length"], "did you mean attention=rope?"),
    (["attention=goat_mixed", "task=genome_nll"], "did you mean attention=goat?"),
    (["attention=fire"], "did you mean attention=fire_2d?"),
    (["scale=smok"], "did you mean 'smoke'?"),
    (["trainer=gpus"], "did you mean 'gpu'?"),
    (["atention=goat"], "unknown key 'atention'; did you mean 'attention'?"),
    (["epochs=3"], "did you mean 'training.epochs'?"),
    (["trainer.devces=3"], "did you mean 'trainer.devices'?"),
    (["+trainer.devces=3"], "did you mean 'trainer.devices'?"),
    (["data.augmentation.color_jiter=1"], "did you mean 'data.augmentation.color_jitter'?"),
    (["task.version=2"], "unknown key 'task.version'"),
    (["seed=-1"], "seed=-1: should be greater than or equal to 0"),
    (["seed=abc"], 'seed="abc": should be a valid integer'),
    (["seed=1.5"], "seed=1.5: should be a valid integer"),
    (["seed=true"], "seed=true: should be a valid integer"),
    (["seed=1,2"], "run them all with: goatbench run -m seed=1,2"),
    (["seed"], "write key=value"),
    (["seed=[1"], "cannot read 'seed=[1'"),
    (["seed=???"], "seed: Missing mandatory value"),
    (["kernel=flsh"], "unknown kernel 'flsh'; did you mean 'flash'? known: auto, reference, sdpa, flash, flex"),
    (["training.learning_rate=-1"], "training.learning_rate=-1: should be greater than 0"),
    (["training.learning_rate=fast"], "or should be 'tuned'"),
    (["training.epochs=0"], "training.epochs=0: should be greater than 0"),
    (["data.augmentation.crop_min_scale=2"], "should be less than or equal to 1"),
    (["task.resolutions=[225]"], "resolution 225 is not one of [224, 288, 320, 384, 448, 512]"),
    (["task.resolutions=225"], "should be a valid array"),
    (["task=[a,b]"], "task is one name"),
    (["model=vit_small_patch16"], "not a multiple of patch_size 16"),
    (["evaluation=deit3"], "the model trains at 12"),
    (["model.image_size=${foo}"], "Interpolation key 'foo' not found"),
    (["~model"], "cannot be removed"),
    (["task.name=x"], "write task=NAME"),
    (["task.domain=text"], "task.domain belongs to the task"),
    (["domain=text"], "domain belongs to the task"),
    (["attention.options_2d.num_freq=1"], "did you mean 'num_frequencies'?"),
    (["hydra.verbose=true"], "nothing else"),
    (["trainer@model=cpu"], "nothing else"),
    (["attention.lanes=crave"], "did you mean 'carve'?"),
    (["foo=bar"], "unknown key 'foo' (goatbench run --cfg job prints all keys)"),
    (["data.foo=bar"], "unknown key 'data.foo'; data has:"),
    (["data.root="], "write data.root=PATH, or data.root=null for none"),
    (["evaluation.pixels.512=[21,28]"], "height 21 of 21x28 px (nominal 512) is not a multiple of patch_size 2"),
    (["model.image_size=[12,15]"], "image_size: width 15 of 12x15 px is not a multiple of patch_size 2"),
    (["evaluation.pixels.512=27"], "27 px (nominal 512) is not a multiple of patch_size 2"),
    (["model.image_size=[12,16]"], "means 12 px, but the model trains at 12x16: set evaluation.pixels.224=[12,16]"),
    (["model.image_size=[12,16,3]"], "[12, 16, 3] is no size in pixels: write a side, such as 224, or [height,width]"),
    (["evaluation.pixels.512=20x28"], 'evaluation.pixels.512: "20x28" is no size in pixels'),
    (["evaluation.pixels.512=[20,true]"], "[20, true] is no size in pixels"),
    (["evaluation.pixels.512=0"], "evaluation.pixels.512: 0 is no size in pixels"),
    (["evaluation.pixels.512="], 'evaluation.pixels.512: "" is no size in pixels'),
    (["task=needle", "attention=goat", "attention.options.base=1e6"], "it has: nothing; attention.options_1d has: num_fr"),
    (["evaluation.pixels.521=28"], "evaluation.pixels has no '521'; it has: 224, 288, 320, 384, 448, 512; to add it write '+"),
    (
        ["data.augmentation.cutmix=1.0", "training.batch_size=12", "trainer.accumulate=4"],
        "training.batch_size 12: mixup and cutmix pair the images of a forward pass, of which devices * num_nodes * accumulate = 4 give",
    ),
    (["task=needle", "task.multiples=[]"], "task.multiples needs at least one, such as [1,16]"),
]


@pytest.mark.parametrize(("overrides", "expected"), MISTAKES, ids=[" ".join(mistake[0]) for mistake in MISTAKES])
def test_a_mistake_is_one_line_with_what_is_allowed(overrides, expected):
    with pytest.raises(UsageError) as caught:
        COMPOSER.compose(overrides)
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


def test_keys_at_their_default_are_set_without_a_plus():
    """color_jitter is in the model of a run but not in data/fashion_mnist.yaml."""
    assert COMPOSER.compose(["data.augmentation.color_jitter=0.1"]).spec.data.augmentation.color_jitter == 0.1
    keys = known_keys(VisionRunSpec)
    assert "data.augmentation.color_jitter" in keys and "domain" not in keys


@pytest.mark.parametrize("line", ["runs_dir=", "attention.options.extra=1"])
def test_no_advice_that_is_refused_in_turn(line):
    with pytest.raises(UsageError) as caught:
        COMPOSER.compose([line])
    assert "null" not in str(caught.value) and "+" not in str(caught.value)


def test_new_options_are_added_with_a_plus():
    with pytest.raises(UsageError, match=r"to add it write '\+evaluation.pixels.500=500'"):
        COMPOSER.compose(["evaluation.pixels.500=500"])
    assert COMPOSER.compose(["+attention.options.extra=1"]).spec.attention.options == {"extra": 1}


@pytest.mark.parametrize(
    ("overrides", "variant"),
    [
        ([], {}),
        (["seed=3", "trainer.num_workers=2", "trainer.num_threads=2", "runs_dir=elsewhere", "retrain=true", "kernel=auto"], {}),
        (["data.root=/somewhere", "scale=paper", "trainer=ddp"], {}),
        (["kernel=sdpa"], {"kernel": "sdpa"}),
        (["training.epochs=77", "seed=1"], {"training.epochs": 77}),
        (["attention=nope", "attention.lanes=append"], {"attention.lanes": "append"}),
        (["trainer.precision=bf16-mixed"], {"precision": "bf16-mixed"}),
        (["evaluation.coords=[raw]"], {"evaluation.coords": ["raw"]}),
        (["+attention.options.extra=1"], {"attention.options.extra": 1}),
        (
            ["data=fashion_mnist_full"],
            {"data.name": "fashion_mnist_full", "data.num_train": None, "data.num_validation": None, "data.num_test": None},
        ),
    ],
)
def test_variant(overrides, variant):
    assert COMPOSER.compose(overrides).variant == variant


@pytest.mark.parametrize(
    ("task", "attention"), [("vit_resolution@v1", "goat"), ("vit_resolution@v1", "rope_mixed"), ("genome_nll@v1", "sink_scalar")]
)
def test_records_from_before_a_field_existed_keep_their_hash(task, attention):
    """The name of the position scheme, the gate and the inner attention are no part of a run that leaves them alone."""
    found = sorted((RESULTS / task / "embedded" / attention).glob("*.json"))
    assert found
    record = json.loads(found[0].read_text())
    spec = RUN_SPECS[record["domain"]].model_validate(record["config"])
    assert record["config_hash"] in (spec.config_hash, spec.earlier_config_hash)
    for field, value in (("gate", "headwise"), ("position", "nope")):
        other = spec.model_copy(update={"attention": spec.attention.model_copy(update={field: value})})
        assert other.config_hash != spec.config_hash


SQUARE_HASH = "65086111b813bc8d"  # of this run while a size was one number


@pytest.mark.parametrize("more", [[], ["evaluation.pixels.512=28"], ["model.image_size=[12,12]", "evaluation.pixels.224=[12,12]"]])
def test_a_square_is_one_number_and_keeps_its_hash(more):
    composed = COMPOSER.compose(["task=vit_res512", "attention=nope", *more])
    identity = composed.spec.identity
    pixels = identity["evaluation"]["pixels"]
    assert (identity["model"]["image_size"], pixels["224"], pixels["512"]) == (12, 12, 28)
    assert composed.spec.config_hash == SQUARE_HASH and composed.variant == {}


@pytest.mark.parametrize(
    "pixels", [["evaluation.pixels.224=[12,16]", "evaluation.pixels.512=[20,28]"], ["evaluation.pixels={224:[12,16],512:[20,28]}"]]
)
def test_images_need_not_be_square(pixels):
    composed = COMPOSER.compose(["task=vit_res512", "model.image_size=[12,16]", *pixels])
    assert composed.spec.model.image_size == (12, 16)
    assert composed.spec.evaluation.pixels == {224: (12, 16), 288: 14, 320: 16, 384: 20, 448: 24, 512: (20, 28)}
    wanted = {"evaluation.pixels.224": [12, 16], "evaluation.pixels.512": [20, 28], "model.image_size": [12, 16]}
    assert composed.variant == wanted
    again = VisionRunSpec.model_validate_json(json.dumps(composed.spec.model_dump(mode="json")), strict=True)
    assert again == composed.spec and again.config_hash == composed.spec.config_hash


def test_a_sweep_over_sizes():
    line = "evaluation.pixels.512=28,[20,28]"
    assert COMPOSER.split_sweep([line]) == [["evaluation.pixels.512=28"], ["evaluation.pixels.512=[20,28]"]]


def test_machine_and_paths_do_not_change_the_hash():
    plain = COMPOSER.compose([]).spec.config_hash
    for override in ("runs_dir=x", "retrain=true", "data.root=/x", "trainer.num_workers=4", "trainer.num_threads=2"):
        assert COMPOSER.compose([override]).spec.config_hash == plain, override
    for override in ("seed=1", "training.epochs=5", "trainer.precision=bf16-mixed", "attention=nope", "task=vit_res448"):
        assert COMPOSER.compose([override]).spec.config_hash != plain, override


def test_recorded_overrides_hold_no_paths():
    assert COMPOSER.compose(["seed=1", "data.root=/home/me", "runs_dir=/tmp/x", "data.class_map=/a"]).overrides == ["seed=1"]


def test_split_sweep_is_the_product_last_one_fastest():
    assert COMPOSER.split_sweep(["attention=goat,nope", "scale=smoke", "seed=range(0,3)"]) == [
        ["attention=goat", "scale=smoke", "seed=0"],
        ["attention=goat", "scale=smoke", "seed=1"],
        ["attention=goat", "scale=smoke", "seed=2"],
        ["attention=nope", "scale=smoke", "seed=0"],
        ["attention=nope", "scale=smoke", "seed=1"],
        ["attention=nope", "scale=smoke", "seed=2"],
    ]


def test_split_sweep_of_lists_globs_and_numbers():
    assert COMPOSER.split_sweep(["task.resolutions=[224,512],[224]"]) == [["task.resolutions=[224,512]"], ["task.resolutions=[224]"]]
    assert COMPOSER.split_sweep(["task=glob(vit_res3*)"]) == [["task=vit_res320"], ["task=vit_res384"]]
    assert COMPOSER.split_sweep(["+attention.options.x=1,2"]) == [["+attention.options.x=1"], ["+attention.options.x=2"]]
    assert COMPOSER.split_sweep([]) == [[]]
    with pytest.raises(UsageError, match="matches none"):
        COMPOSER.split_sweep(["task=glob(nothing*)"])
    with pytest.raises(UsageError, match="works on task"):
        COMPOSER.split_sweep(["seed=glob(*)"])


def test_a_folder_of_ones_own(tmp_path):
    (tmp_path / "model").mkdir()
    text = (TREE.roots[0].path / "model" / "vit_nano.yaml").read_text()
    (tmp_path / "model" / "mine.yaml").write_text(text.replace("vit_nano", "mine").replace("embed_dim: 64", "embed_dim: 32"))
    composed = Composer(str(tmp_path)).compose(["model=mine"])
    assert composed.spec.model.embed_dim == 32
    assert composed.sources == {"model/mine": "--config-dir"}
    (tmp_path / "model" / "vit_micro.yaml").write_text(text)
    with pytest.raises(UsageError, match="model=vit_micro is provided by both goatbench and --config-dir"):
        Composer(str(tmp_path)).compose([])
    with pytest.raises(UsageError, match="is not a folder"):
        Composer(str(tmp_path / "nowhere"))


def test_an_attention_without_code_says_so(tmp_path):
    (tmp_path / "attention").mkdir()
    (tmp_path / "attention" / "orphan.yaml").write_text("name: orphan\naxes: [2]\n")
    with pytest.raises(UsageError, match=r"attention=orphan has values \(from --config-dir\) but no code"):
        Composer(str(tmp_path)).compose(["attention=orphan"])


@pytest.mark.parametrize("text", ["name: [", "- a\n b: c\n"])
def test_broken_yaml_names_its_file(tmp_path, text):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "bad.yaml").write_text(text)
    with pytest.raises(UsageError, match=r"bad\.yaml") as caught:
        Composer(str(tmp_path)).compose(["model=bad"])
    assert "\n" not in str(caught.value) and "YAML" in str(caught.value)


NO_CONFIGS = [
    (b"name: caf\xe9\n", "is not UTF-8"),
    (b"name: x\n- [[", "is not valid YAML: line 2: "),
    (b"- a\n", "holds a list; write 'key: value' lines"),
]


@pytest.mark.parametrize(("content", "says"), NO_CONFIGS)
@pytest.mark.parametrize("group", ["model", "data", "recipe"])
def test_a_file_that_is_no_text_is_named(tmp_path, group, content, says):
    """Found by damaging files at random (tests/property/test_fuzz.py)."""
    (tmp_path / group).mkdir()
    (tmp_path / group / "bad.yaml").write_bytes(content)
    with pytest.raises(UsageError, match=rf"bad\.yaml {says}") as caught:
        Composer(str(tmp_path)).compose([f"{group}=bad"])
    assert "\n" not in str(caught.value)


def test_a_recipe_that_names_no_model_is_one_line(tmp_path):
    (tmp_path / "recipe").mkdir()
    (tmp_path / "recipe" / "mine.yaml").write_text("defaults:\n  - override /model: vit_base_patch61\n")
    with pytest.raises(UsageError, match="unknown model 'vit_base_patch61'") as caught:
        Composer(str(tmp_path)).compose(["task=vit_res224", "recipe=mine"])
    assert "\n" not in str(caught.value)


def test_defaults_exist():
    for group, name in ConfigTree.find().defaults().items():
        assert name.partition("/")[0] in TREE.options(group)


@pytest.mark.parametrize(
    ("line", "says"),
    [("~seed", "cannot be removed"), ("~training.epochs", "cannot be removed")],
)
def test_keys_cannot_be_removed(line, says):
    with pytest.raises(UsageError, match=says):
        COMPOSER.compose([line])


def test_a_sweep_over_nothing_is_refused():
    with pytest.raises(UsageError, match="no value at all"):
        COMPOSER.split_sweep(["seed=range(0,0)"])


@pytest.mark.parametrize(("task", "fitting"), [("vit_res512", TWO_DIMENSIONAL), ("genome_nll", ONE_DIMENSIONAL)])
def test_a_glob_over_attentions_takes_those_that_fit_the_task(task, fitting):
    jobs = COMPOSER.split_sweep([f"task={task}", "attention=glob(*)"])
    assert {job[1].partition("=")[2] for job in jobs} == fitting
    both = COMPOSER.split_sweep(["task=vit_res512,genome_nll", "attention=glob(*)"])
    assert {job[1].partition("=")[2] for job in both} == ONE_DIMENSIONAL & TWO_DIMENSIONAL


def test_fields_that_came_later_keep_the_hash_of_committed_runs():
    """Position, gate and inner attention are no part of a run's identity until one of them is used."""
    found = 0
    for path in sorted((Path(__file__).parents[3] / "results").glob("*@v*/embedded/goat/*.json")):
        record = json.loads(path.read_text())
        spec = RUN_SPECS[record["domain"]].model_validate_json(json.dumps({**record["config"], "runs_dir": "runs"}))
        assert record["config_hash"] in (spec.config_hash, spec.earlier_config_hash), path.name
        found += 1
    assert found > 3
    attention = COMPOSER.compose(["attention=goat"]).spec.identity["attention"]
    assert not {"position", "gate", "inner", "inner_options"} & set(attention)
    attention = COMPOSER.compose(["task=needle", "attention=mta"]).spec.identity["attention"]
    assert attention["inner"] == "multi_token" and attention["position"] == "rope" and "gate" not in attention


def test_a_task_can_name_its_own_file_of_a_scale():
    spec = COMPOSER.compose(["task=toy_blocks8", "scale=embedded", "attention=rope"]).spec
    assert (spec.model.name, spec.model.seq_len, spec.scale, spec.domain) == ("decoder_blocks", 118, "embedded", "toy")
    assert COMPOSER.compose(["task=toy_blocks", "attention=rope"]).variant == {}
    with pytest.raises(UsageError, match=r"task\.setting belongs to the task"):
        COMPOSER.compose(["task=toy_blocks", "attention=rope", "task.setting=toy"])


def test_runs_that_train_or_choose_on_other_pixels_share_no_weights():
    """Training resizes, and the epoch is chosen, by the evaluation's interpolation and crop at base; the rest of it is for afterwards."""

    def hash_of(*more: str) -> str:
        return COMPOSER.compose(["task=vit_res512", "scale=paper", *more]).spec.training_hash("data", "source")

    presets = {name: hash_of(f"evaluation={name}") for name in ("deit3", "lookhere", "timm")}
    assert len(set(presets.values())) == 3
    assert hash_of("evaluation.interpolation=bilinear") != hash_of() == presets["deit3"]
    assert hash_of("evaluation.batch_tokens=999", "evaluation.coords=[raw]") == hash_of("evaluation.base_crop_pct=1.0") == hash_of()


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        (["task=copy", "data.num_distractors=1"], "data.num_distractors makes no difference to task=copy; it is for needle, passkey"),
        (["task=needle", "data.num_needles=3"], "data.num_needles makes no difference to task=needle; it is for multi_needle"),
        (["recipe=deit3_base"], "a recipe is for one kind of run: goatbench run scale=paper recipe=deit3_base"),
        (["recipe=goat_c4", "scale=paper", "task=needle"], "one kind of run: goatbench run scale=paper recipe=goat_c4 task=lm_length"),
        (["recipe=deit3_base", "scale=paper", "pretraining.trainng.epochs=1"], "did you mean 'pretraining.training.epochs'?"),
        (["data.augmentation.rand_augment=rand-m99"], "'rand-m99' is not written as timm does"),
        (["data.augmentation.rand_augment=rand-m9-n0"], "'rand-m9-n0' is not written as timm does"),
    ],
)
def test_what_would_be_ignored_or_cannot_go_together_is_said(overrides, says):
    with pytest.raises(UsageError) as caught:
        COMPOSER.compose(overrides)
    assert says in str(caught.value) and "\n" not in str(caught.value)

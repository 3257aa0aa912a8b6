"""`goatbench data prepare` and `data check`: what they say is there, and what damage they find."""

from __future__ import annotations

import io

import pytest
from PIL import Image

from goatbench import cli
from goatbench.checking_images import IMAGENET_CLASSES, imagenet_facts


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("GOATBENCH_CACHE", str(tmp_path / "cache"))
    from goatbench.data.genome.sources import _load as genome
    from goatbench.data.text.sources import _load as text

    for loader in (genome, text):
        loader.cache_clear()
    yield
    for loader in (genome, text):
        loader.cache_clear()


def call(capsys, *arguments):
    with pytest.raises(SystemExit) as ended:
        cli.main(list(arguments))
    out, err = capsys.readouterr()
    return ended.value.code, out, err


def documents(path, count=16):
    path.mkdir()
    for number in range(count):
        (path / f"{number:02}.txt").write_text(f"document {number}, ")
    return path


def test_text_is_encoded_once_and_checked_by_its_hash(tmp_path, capsys):
    text = f"data.path={documents(tmp_path / 'text')}"
    code, out, _ = call(capsys, "data", "prepare", "text_files", text)
    assert code == 0 and "train: 12 documents" in out and "test: 2 documents" in out
    (tokens,) = (tmp_path / "cache").rglob("train.tokens")
    made = tokens.stat().st_mtime_ns
    code, out, _ = call(capsys, "data", "check", "text_files", text)
    assert code == 0 and out.count("have the sha256") == 3 and tokens.stat().st_mtime_ns == made
    content = bytearray(tokens.read_bytes())
    content[4] ^= 1
    tokens.write_bytes(content)
    code, out, _ = call(capsys, "data", "check", "text_files", text)
    assert code == 1 and "broken   train: the tokens do not have the sha256" in out


def test_text_goes_on_where_a_call_was_interrupted(tmp_path, monkeypatch, capsys):
    from goatbench.data.text import writing

    text = f"data.path={documents(tmp_path / 'text')}"
    monkeypatch.setattr(writing, "BATCH_BYTES", 1)
    monkeypatch.setattr(writing, "STEP_BYTES", 1)
    with monkeypatch.context() as patch:
        patch.setattr(writing, "check_lossless", lambda tokenizer, name, *_: 1 // (name != "10"))
        with pytest.raises(ZeroDivisionError):
            cli.main(["data", "prepare", "text_files", text])
    capsys.readouterr()
    code, out, err = call(capsys, "data", "check", "text_files", text)
    assert code == 0 and "train: 12 documents" in out and out.count("have the sha256") == 3
    assert err.startswith("going on behind document 10 of files-") and err.count("\n") == 1


def test_what_takes_long_shows_how_far_it_is(tmp_path, monkeypatch, capsys):
    from goatbench.data.genome import source
    from goatbench.data.text import readers

    monkeypatch.setattr(readers, "QUIET_SECONDS", 0.0)
    monkeypatch.setattr(source, "LONG_BASES", 0)
    code, _, err = call(capsys, "data", "prepare", "text_files", f"data.path={documents(tmp_path / 'text')}")
    assert code == 0 and "reading text: " in err
    fasta, split = tmp_path / "x.fa", tmp_path / "split.tsv"
    fasta.write_text(">one\n" + "ACGTNacgtn" * 30 + "\n")
    split.write_text("contig\tstart\tend\tsplit\none\t0\t100\ttrain\none\t100\t200\tvalidation\none\t200\t300\ttest\n")
    code, _, err = call(capsys, "data", "prepare", "fasta", f"data.fasta={fasta}", "data.split=file", f"data.split_file={split}")
    assert code == 0 and "encoding x.fa: 300/300 bases" in err


def test_listing_many_images_shows_how_far_it_is(tmp_path, monkeypatch, capsys):
    from goatbench.data import folder, parquet

    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    for module in (folder, parquet):
        monkeypatch.setattr(module, "QUIET_SECONDS", 0.0)
    code, _, err = call(capsys, "data", "prepare", "imagenet_folder", f"data.root={image_tree(tmp_path / 'tree')}")
    assert code == 0 and "listing train: 2/2 folders" in err and "listing val: 2/2 folders" in err
    for part in ("train", "validation"):
        pq.write_table(pa.table({"image": [{"bytes": b"", "path": ""}] * 4, "label": [0, 0, 1, 1]}), tmp_path / f"{part}-0.parquet")
    code, _, err = call(capsys, "data", "prepare", "imagenet_parquet", f"data.root={tmp_path}")
    assert code == 0 and "reading the labels of train: 1/1 shards" in err


def test_dna_is_compared_with_its_fasta_letter_by_letter(tmp_path, capsys):
    fasta, split = tmp_path / "x.fa", tmp_path / "split.tsv"
    fasta.write_text(">one\n" + "ACGTNacgtn" * 30 + "\n")
    rows = [("one", 0, 100, "train"), ("one", 100, 200, "validation"), ("one", 200, 300, "test")]
    lines = ["\t".join(map(str, row)) for row in [("contig", "start", "end", "split"), *rows]]
    split.write_text("\n".join(lines) + "\n")
    asked = ["fasta", f"data.fasta={fasta}", "data.split=file", f"data.split_file={split}"]
    code, out, err = call(capsys, "data", "check", *asked)
    assert code == 0, err
    assert "one: 300 bases, 20.00 % N" in out and "have the M5 of the FASTA" in out and "train: 100 bases in 1 intervals" in out
    (codes,) = (tmp_path / "cache").rglob("*.codes")
    codes.write_bytes(bytes([1]) + codes.read_bytes()[1:])
    code, out, _ = call(capsys, "data", "check", *asked)
    assert code == 1 and "one: the encoded bases do not have the M5" in out


def test_dna_with_other_letters_is_compared_with_its_fasta(tmp_path, capsys):
    """R and Y become N, so that the MD5 of the FASTA's letters is not that of the codes."""
    fasta, split = tmp_path / "x.fa", tmp_path / "split.tsv"
    fasta.write_text(">one\n" + "ACGTRacgty" * 30 + "\n")
    split.write_text("contig\tstart\tend\tsplit\none\t0\t100\ttrain\none\t100\t200\tvalidation\none\t200\t300\ttest\n")
    asked = ["fasta", f"data.fasta={fasta}", "data.split=file", f"data.split_file={split}"]
    code, out, err = call(capsys, "data", "check", *asked)
    assert code == 0, err
    assert "warning  one: the encoded bases are as in the FASTA; 60 letters other than A C G T N are read as N" in out
    (codes,) = (tmp_path / "cache").rglob("*.codes")
    codes.write_bytes(bytes([1]) + codes.read_bytes()[1:])
    code, out, _ = call(capsys, "data", "check", *asked)
    assert code == 1 and "broken   one: the encoded bases are not as in the FASTA" in out


def image_tree(root, broken=False):
    for part, count in (("train", 3), ("val", 2)):
        for name in ("cat", "dog"):
            folder = root / part / name
            folder.mkdir(parents=True)
            for number in range(count):
                Image.new("RGB", (8, 8)).save(folder / f"{number}.png")
    if broken:
        (root / "val" / "dog" / "0.png").write_bytes(b"no image")
    return root


@pytest.mark.parametrize("broken", [False, True])
def test_images_are_counted_by_class_and_tried(tmp_path, capsys, broken):
    root = image_tree(tmp_path / "tree", broken)
    code, out, _ = call(capsys, "data", "check", "imagenet_folder", f"data.root={root}")
    assert "4 test images, 2 classes" in out and "test: 2 to 2 images a class" in out
    assert code == broken
    assert ("1 of 2 images tried cannot be read" in out) == broken


def test_contents_of_images_are_compared_with_those_of_the_first_check(tmp_path, capsys):
    asked = "data", "check", "imagenet_folder", f"data.root={image_tree(tmp_path / 'tree')}"
    code, out, _ = call(capsys, *asked)
    assert code == 0 and "ok       contents: 10 files, hash " in out and "noted; the next check compares" in out
    code, out, _ = call(capsys, *asked)
    assert code == 0 and "as at the first check" in out
    changed = tmp_path / "tree" / "train" / "dog" / "2.png"
    changed.write_bytes(changed.read_bytes()[:-1] + b"x")
    code, out, _ = call(capsys, *asked)
    assert code == 1 and f"broken   contents: 1 of 10 files are not what they were at the first check: {changed}; " in out
    (noted,) = (tmp_path / "cache" / "images").rglob("*.npy")
    assert f"remove {noted}" in out
    noted.unlink()
    assert call(capsys, *asked)[0] == 0
    changed.write_bytes(b"")
    code, out, _ = call(capsys, *asked)
    assert code == 1 and f"broken   contents: 1 of 10 files are empty: {changed}" in out
    assert "contents: all are in the fingerprint" in call(capsys, "data", "check", "fashion_mnist")[1]


PLACES = {0: "n01440764", 1: "n01443537", 207: "n02099601", 388: "n02510455", 999: "n15075141"}  # published, e.g. 207 golden retriever


@pytest.fixture(scope="module")
def wnids():
    from timm.data import ImageNetInfo

    return ImageNetInfo().label_names()


def test_label_order_of_imagenet_is_compared_at_every_place(wnids):
    assert len(wnids) == IMAGENET_CLASSES and all(wnids[index] == wnid for index, wnid in PLACES.items())
    whole = {"train": 1_281_167, "test": 50_000}
    facts = list(imagenet_facts(wnids, whole))
    assert {fact.level for fact in facts} == {"ok"}
    short = list(imagenet_facts(wnids, {**whole, "train": 1_281_166}))
    assert [fact.level for fact in short] == ["ok", "warning", "warning", "ok"]
    swapped = [*wnids[:500], wnids[501], wnids[500], *wnids[502:]]
    (fact,) = imagenet_facts(swapped, whole)
    assert fact.level == "warning" and f"class 500 is '{wnids[501]}', in ImageNet-1k it is {wnids[500]}" in fact.text
    (fact,) = imagenet_facts(tuple(map(str, range(1000))), whole)
    assert "numbers" in fact.text


@pytest.mark.parametrize("order", ["as published", "reversed", "unnamed"])
def test_numbered_classes_of_shards_are_told_by_the_names_of_their_images(tmp_path, capsys, wnids, order):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    picture = io.BytesIO()
    Image.new("RGB", (2, 2)).save(picture, "PNG")
    called = {"as published": wnids, "reversed": wnids[::-1], "unnamed": [""] * 1000}[order]
    for part, count in (("train", 2), ("validation", 1)):
        rows = [(k, f"{number}_{called[k]}.JPEG") for k in range(1000) for number in range(count)]
        table = {"image": [{"bytes": picture.getvalue(), "path": path} for _, path in rows], "label": [k for k, _ in rows]}
        pq.write_table(pa.table(table), tmp_path / f"{part}-00000-of-00001.parquet")
    code, out, _ = call(capsys, "data", "check", "imagenet_parquet", f"data.root={tmp_path}")
    said = {
        "as published": "ok       label order: that of ImageNet-1k, at each of 1,000 places",
        "reversed": f"warning  label order: class 0 is '{wnids[-1]}', in ImageNet-1k it is {wnids[0]}",
        "unnamed": "warning  label order: classes have numbers for names",
    }
    assert said[order] in out and code == 0


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["prepare", "text_embeded"], "did you mean 'text_embedded'?"),
        (["check", "imagenet_folder"], "data.root"),
        (["check", "synthetic", "seed=1"], "keys of the data only"),
        (["check", "text_files", "data.pth=x"], "did you mean 'data.path'?"),
    ],
)
def test_mistakes_are_one_line(capsys, arguments, expected):
    code, out, err = call(capsys, "data", *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1) and expected in err


def test_what_is_made_up_needs_nothing(capsys):
    code, out, _ = call(capsys, "data", "check", "synthetic")
    assert code == 0 and "made up" in out


def test_text_that_stands_in_train_and_test_is_broken(tmp_path, capsys):
    """All sixteen files are one text: whatever the split, each document of the other two is one of train's."""
    folder = documents(tmp_path / "text")
    for path in folder.iterdir():
        path.write_text("the same text")
    code, out, _ = call(capsys, "data", "check", "text_files", f"data.path={folder}")
    assert code == 1 and "broken   test: 1 of 1 different documents are in train as well" in out


def test_text_that_is_not_utf_8_is_broken(tmp_path, capsys):
    folder = documents(tmp_path / "text")
    for path in folder.iterdir():
        path.write_bytes(path.read_bytes() + "sch\u00f6n".encode("latin-1"))
    code, out, _ = call(capsys, "data", "check", "text_files", f"data.path={folder}")
    lines = [line for line in out.splitlines() if "are not UTF-8" in line]
    assert code == 1 and len(lines) == 3 and all("convert the files, or leave them out" in line for line in lines)

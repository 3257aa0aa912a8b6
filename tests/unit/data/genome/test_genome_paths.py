"""Paths on the command line: any file name as it is, whatever the grammar of overrides would make of it."""

import pytest

from goatbench.compose import Composer
from goatbench.errors import UsageError

COMPOSER = Composer()
NAMES = [
    *("hg38(1).fa", "a,b.fa", "38", "true", "my genome.fa", "\u00e4 \u65e5\u672c\u00a0.fa"),
    *("[x] {y}=z.fa", "a'b\"c\\.fa", "\\'", "glob(*)", "a#b:c@d.fa"),
]


@pytest.mark.parametrize("name", NAMES)
def test_a_path_is_taken_as_it_is(name):
    given = ["task=genome_nll", "data=fasta", "data.split=file", f"data.fasta={name}", f"++data.split_file={name}", f"runs_dir={name}"]
    (job,) = COMPOSER.split_sweep(given)
    composed = COMPOSER.compose(job)
    assert (composed.spec.data.fasta, composed.spec.data.split_file, composed.spec.runs_dir) == (name, name, name)
    assert composed.overrides == given[:3]


def test_paths_of_other_domains_too():
    assert COMPOSER.compose(["data.root=a (b),c", "data.class_map=1"]).spec.data.root == "a (b),c"
    assert COMPOSER.compose(["task=lm_length", "data.path=a (b),c"]).spec.data.path == "a (b),c"


def test_null_quotes_and_variables_keep_their_meaning(monkeypatch):
    monkeypatch.setenv("WHERE", "/data")
    genome = ["task=genome_nll", "data=fasta"]
    for given, expected in (("null", None), ("'a b.fa'", "a b.fa"), ('"38"', "38"), ("${oc.env:WHERE}/a (b).fa", "/data/a (b).fa")):
        assert COMPOSER.compose([*genome, f"data.fasta={given}"]).spec.data.fasta == expected
    assert COMPOSER.split_sweep(["data.fasta='a.fa','b.fa'"]) == [["data.fasta='a.fa'"], ["data.fasta='b.fa'"]]


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("data.fasta=", "'data.fasta=' names no path: write data.fasta=PATH"),
        ("runs_dir= ", "names no path: write runs_dir=PATH"),
        ("data.fasta=caf\udce9.fa", "is not valid UTF-8"),
        ("data.name=a(b", "cannot read 'data.name=a(b': .*\"data.name='a(b'\""),
    ],
)
def test_what_is_no_path_is_one_line(override, expected):
    with pytest.raises(UsageError, match=expected.replace("(", "[(]")) as error:
        COMPOSER.compose(["task=genome_nll", "data=fasta", override])
    assert "\n" not in str(error.value) and len(str(error.value)) < 300

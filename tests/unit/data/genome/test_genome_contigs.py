"""Names of one chromosome: values from NCBI's assembly reports."""

import pytest

from goatbench.data.genome.contigs import canonical, resolve
from goatbench.errors import UsageError


@pytest.mark.parametrize(
    ("names", "chromosome"),
    [
        (("1", "chr1", "Chr1", "NC_000001.11", "NC_000001.10", "CM000663.2", "CM000663.1"), "chr1"),
        (("20", "chr20", "NC_000020.11", "NC_000020.10", "CM000682.2", "CM000682.1", "NC_060944.1"), "chr20"),
        (("22", "chr22", "NC_000022.11", "NC_000022.10", "CM000684.2"), "chr22"),
        (("X", "chrX", "x", "NC_000023.11", "NC_000023.10", "CM000685.2"), "chrX"),
        (("Y", "chrY", "NC_000024.10", "NC_000024.9", "CM000686.2"), "chrY"),
        (("M", "MT", "chrM", "chrMT", "NC_012920.1"), "chrM"),
    ],
)
def test_all_names_of_a_chromosome(names, chromosome):
    assert {canonical(name) for name in names} == {chromosome}


def test_what_is_no_chromosome_stays_as_it_is():
    for name in ("chr23", "chr20_alt", "0", "chrUn_KI270302v1", "NC_000020.12", "chr"):
        assert canonical(name) == name


def test_a_name_stands_for_the_same_chromosome_of_the_file():
    assert resolve("chr20", ["19", "20", "20_alt"], "f") == "20"
    assert resolve("20", ["chr20"], "f") == "chr20"
    assert resolve("NC_000020.11", ["chr20"], "f") == "chr20"
    assert resolve("chr20", ["NC_000020.10"], "f") == "NC_000020.10"
    assert resolve("MT", ["chrM"], "f") == "chrM"
    assert resolve("20", ["chr20", "20"], "f") == "20"  # itself first


def test_accessions_of_two_assemblies_are_two_sequences():
    with pytest.raises(UsageError, match=r"no contig 'NC_000020.11'"):
        resolve("NC_000020.11", ["NC_000020.10"], "f")
    assert resolve("CM000682.2", ["NC_000020.11", "NC_000020.10"], "f") == "NC_000020.11"


def test_errors_name_the_nearest_and_the_ambiguous():
    with pytest.raises(UsageError, match=r"my\.fa: no contig 'chr2O'; did you mean 'chr20'\?"):
        resolve("chr2O", ["chr20", "chrX"], "my.fa")
    with pytest.raises(UsageError, match=r"could be 20 or NC_000020\.11"):
        resolve("chr20", ["20", "NC_000020.11"], "f")

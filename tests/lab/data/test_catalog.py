"""The table of official data sets."""

from learnpool.lab.data.catalog import SOURCES


def test_the_table_is_what_is_published():
    assert {name: dict(source.counts) for name, source in SOURCES.items()}.keys() == {
        "mnist", "fashion-mnist", "cifar10", "cifar100", "svhn",
    }  # fmt: skip
    for source in SOURCES.values():
        assert len(set(source.classes)) == len(source.classes)
        sums = [remote.md5 for remote in source.remotes] + list(source.md5.values())
        assert len(set(sums)) == len(sums)
        assert all(len(value) == 32 and int(value, 16) for value in sums)
    assert SOURCES["cifar100"].classes == tuple(sorted(SOURCES["cifar100"].classes))
    assert len(SOURCES["cifar100"].classes) == 100

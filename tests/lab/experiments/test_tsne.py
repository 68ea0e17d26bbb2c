"""How separable classes are, worked out by hand."""

import numpy as np
import pytest

from learnpool.lab.experiments import tsne


def test_separation_of_two_clusters_and_one_stray(monkeypatch):
    monkeypatch.setattr(tsne, "NEIGHBOURS", 1)
    points = np.array([[0.0], [1.0], [10.0], [11.0], [10.4]])
    labels = np.array([0, 0, 1, 1, 0])  # the last lies among the others
    found = tsne.measure_separation(points, labels)
    # nearest neighbours: 1, 0, the stray, the stray, 10.0
    assert found["purity_by_class"] == {"0": pytest.approx(2 / 3), "1": 0.0}
    assert found["purity"] == pytest.approx(2 / 5)
    apart = tsne.measure_separation(points[:4], labels[:4])
    own, other = 1.0, np.array([10.5, 9.5, 9.5, 10.5])  # distances to the own and to the other cluster
    assert apart["silhouette"] == pytest.approx(float(((other - own) / other).mean()))
    assert apart["purity"] == 1.0


def make_record(purity: float) -> dict:
    """The given purity behind the second pool, among all features; others elsewhere."""
    record = {}
    for layer, less in zip(tsne.LAYERS, (0.1, 0.0), strict=True):
        record[layer] = {}
        for space, more in (("features", 0.0), ("plane", 0.3)):
            value = purity - less + more
            by_class = {str(kind): value + kind / 100 for kind in range(10)}
            record[layer][space] = {"purity": value, "silhouette": 0.5, "purity_by_class": by_class}
    return record


def test_the_classes_of_the_claim_are_answered_by_name():
    measured = {"max": [make_record(0.2), make_record(0.4)], "gated": [make_record(0.5)]}
    text = tsne._describe_classes(measured, [0, 2, 9])
    assert text == "The same for airplane, bird, truck: max 0.30, 0.32, 0.39; gated 0.50, 0.52, 0.59."


def test_the_answer_says_whether_the_second_pool_separates_more():
    measured = {"max": [make_record(0.2), make_record(0.4)], "gated": [make_record(0.5)]}
    text = tsne._describe(measured, "cifar10")
    assert text.endswith("is higher than behind the first: max 0.30 ± 0.14, gated 0.50.")
    worse = make_record(0.2)
    worse["pool1"], worse["pool2"] = worse["pool2"], worse["pool1"]
    text = tsne._describe(measured | {"tree": [worse]}, "cifar10")
    assert "is not higher than behind the first with tree: max 0.30" in text

"""The supplement's t-SNE figures: what comes out of the first and the second pool, for four kinds of pooling.

One seed is drawn, all are measured.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import torch

from ...formatting import format_count, format_mean, format_number
from ..comparison.comparison import FinishedRun
from ..data.split import sample_balanced
from . import figures
from .experiment import LABELS, Cell, Figure, Page, Scale, Table
from .figure_networks import DATA, FigureNetwork, list_networks, plan
from .notes import describe_differences
from .results import Results

TITLE = "What the pools see: t-SNE"
SOURCE = "Supplement, t-SNE figures"
CLAIM = (
    "With learned pools classes are more separated, above all airplane, bird and truck, and the second pool separates "
    "more than the first."
)
LAYERS = {"pool1": "first pool", "pool2": "second pool"}
NAMED = ("airplane", "bird", "truck")  # in the claim
IMAGES, SEED, COMPONENTS, PERPLEXITY, NEIGHBOURS = 800, 0, 50, 30, 10


def measure(results: Results, entry: FinishedRun) -> dict[str, Any]:
    """Both pools' outputs in two dimensions, and how separable classes are there and before."""
    network = FigureNetwork(entry, results.data_dir)
    index = sample_balanced(network.test.labels, min(IMAGES, len(network.test)), SEED)
    labels = network.test.labels[index].numpy()
    record: dict[str, Any] = {"labels": labels.tolist(), "classes": list(network.classes)}
    for name, features in network.compute_features([*LAYERS], index).items():
        reduced = reduce_dimensions(features)
        points = embed(reduced)
        record[name] = {
            "points": np.round(points, 3).tolist(),
            "features": measure_separation(reduced, labels),
            "plane": measure_separation(points, labels),
        }
    return record


def reduce_dimensions(features: torch.Tensor) -> np.ndarray[Any, Any]:
    """The leading principal components, ``[images, 50]``."""
    from sklearn.decomposition import PCA

    components = min(COMPONENTS, *features.shape)
    reduced: np.ndarray[Any, Any] = PCA(components, random_state=SEED).fit_transform(features.numpy())
    return reduced


def embed(reduced: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """``[images, 2]``."""
    from sklearn.manifold import TSNE

    perplexity = min(PERPLEXITY, (len(reduced) - 1) / 3)
    points: np.ndarray[Any, Any] = TSNE(
        2, perplexity=perplexity, random_state=SEED, init="pca", learning_rate="auto"
    ).fit_transform(reduced)
    return points


def measure_separation(x: np.ndarray[Any, Any], labels: np.ndarray[Any, Any]) -> dict[str, Any]:
    """Silhouette, and the part of each image's 10 nearest neighbours that are of its class: in all, and by class."""
    from sklearn.metrics import silhouette_score
    from sklearn.neighbors import NearestNeighbors

    near = NearestNeighbors(n_neighbors=min(NEIGHBOURS, len(x) - 1)).fit(x).kneighbors(return_distance=False)
    pure = (labels[near] == labels[:, None]).mean(1)
    return {
        "silhouette": float(silhouette_score(x, labels)),
        "purity": float(pure.mean()),
        "purity_by_class": {str(int(kind)): float(pure[labels == kind].mean()) for kind in np.unique(labels)},
    }


def build_page(scale: Scale, results: Results) -> Page:
    """A picture of both pools of each network, and a table of how separable classes are."""
    parts: list[Table | Figure] = []
    answer, record = [], {}
    for data in scale.choose(DATA):
        groups = list_networks(scale, data)
        measured = results.measure_groups(groups, "tsne", partial(measure, results))
        if not measured:
            answer.append(f"{LABELS[data]}: no seed is finished with all pools yet.")
            continue
        measurements = {label: list(seeds.values()) for label, seeds in measured.items()}
        panels = {
            f"{label}, {LAYERS[layer]}": (seeds[0][layer]["points"], seeds[0]["labels"])
            for layer in LAYERS
            for label, seeds in measurements.items()
        }
        by_seed = measured[next(iter(measured))]
        seed, first = next(iter(by_seed.items()))
        classes = first["classes"]
        svg = figures.draw_scatter(panels, classes, columns=len(measurements))
        images = f"the same {len(first['labels'])} test images, as many of each class, through each network"
        parts.append(Figure(svg, f"{LABELS[data]}: {images}, seed {seed}", wide=True))
        parts += [_build_overall_table(measurements, data), _build_class_table(measurements, classes)]
        answer.append(_describe(measurements, data))
        if set(NAMED) <= set(classes):
            answer.append(_describe_classes(measurements, [classes.index(name) for name in NAMED]))
        record[data] = {
            label: [{layer: one[layer]["features"] for layer in LAYERS} for one in seeds]
            for label, seeds in measurements.items()
        }
    return Page(answer, parts, describe_differences(plan(scale)), record)


def _list_values(seeds: list[Mapping[str, Any]], layer: str, space: str, what: str) -> list[float]:
    return [one[layer][space][what] for one in seeds]


def _compute_mean(seeds: list[Mapping[str, Any]], layer: str, space: str, what: str) -> float:
    return statistics.fmean(_list_values(seeds, layer, space, what))


def _list_purities(seeds: list[Mapping[str, Any]], kind: int) -> list[float]:
    """The purity of one class behind the second pool, by seed."""
    return [one["pool2"]["features"]["purity_by_class"][str(kind)] for one in seeds]


def _build_overall_table(measurements: Mapping[str, list[Mapping[str, Any]]], data: str) -> Table:
    titles = {"features": f"{COMPONENTS} dimensions", "plane": "2 dimensions"}
    rows = [
        [
            Cell(f"{LAYERS[layer]}, {what} in {title}"),
            *(Cell(format_mean(_list_values(seeds, layer, space, what))) for seeds in measurements.values()),
        ]
        for layer in LAYERS
        for space, title in titles.items()
        for what in ("purity", "silhouette")
    ]
    seeds = format_count(len(next(iter(measurements.values()))), "seed")
    caption = (
        f"Purity: the part of an image's {NEIGHBOURS} nearest neighbours that are of its class. Mean ± standard "
        f"deviation over {seeds}; the principal components say more than the picture, which t-SNE may distort."
    )
    return Table([LABELS[data], *measurements], rows, caption)


def _build_class_table(measurements: Mapping[str, list[Mapping[str, Any]]], classes: list[str]) -> Table:
    rows = [
        [Cell(name), *(Cell(format_mean(_list_purities(seeds, kind))) for seeds in measurements.values())]
        for kind, name in enumerate(classes)
    ]
    return Table(
        ["Purity behind the second pool", *measurements], rows, f"Among the {COMPONENTS} principal components."
    )


def _describe(measurements: Mapping[str, list[Mapping[str, Any]]], data: str) -> str:
    purity = [
        f"{label} {format_mean(_list_values(seeds, 'pool2', 'features', 'purity'))}"
        for label, seeds in measurements.items()
    ]
    behind = [
        label
        for label, seeds in measurements.items()
        if _compute_mean(seeds, "pool2", "features", "purity") <= _compute_mean(seeds, "pool1", "features", "purity")
    ]
    order = f"not higher than behind the first with {', '.join(behind)}" if behind else "higher than behind the first"
    return (
        f"{LABELS[data]}: the part of an image's {NEIGHBOURS} nearest neighbours behind the second pool that are of "
        f"its class is {order}: {', '.join(purity)}."
    )


def _describe_classes(measurements: Mapping[str, list[Mapping[str, Any]]], kinds: list[int]) -> str:
    """The purity of the classes the paper names."""
    purities = {
        label: ", ".join(format_number(statistics.fmean(_list_purities(seeds, kind))) for kind in kinds)
        for label, seeds in measurements.items()
    }
    of_pools = "; ".join(f"{label} {numbers}" for label, numbers in purities.items())
    return f"The same for {', '.join(NAMED)}: {of_pools}."

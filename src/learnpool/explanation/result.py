"""``Explanation``: what ``explain`` returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from .pools import PoolExplanation
from .tables import format_pools, format_pools_as_html


@dataclass(frozen=True)
class Explanation:
    """The learned pools of a network in the order of its modules; shown as a table, drawn on request."""

    pools: tuple[PoolExplanation, ...]
    images: int = 0  # in the batch
    image: Tensor | None = None  # the first of them, [channels, height, width]

    def __getitem__(self, name: str) -> PoolExplanation:
        for pool in self.pools:
            if pool.name == name:
                return pool
        raise KeyError(f"no learned pool {name!r}; there are: {', '.join(pool.name for pool in self.pools)}")

    def __repr__(self) -> str:
        return format_pools(self.pools, self.images)

    def _repr_html_(self) -> str:
        return format_pools_as_html(self.pools, self.images)

    def statistics(self) -> dict[str, float]:
        """The numbers that change in training, by flat names such as ``pool1.gate0.entropy``."""
        numbers: dict[str, float] = {}
        for pool in self.pools:
            for mix in (mix for mix in pool.mixes if mix.learned):
                numbers[f"{pool.name}.{mix.name}.mean"] = mix.mean
                if mix.a.numel() > 1:
                    numbers |= {f"{pool.name}.{mix.name}.min": mix.min, f"{pool.name}.{mix.name}.max": mix.max}
            for scalar in pool.scalars:
                numbers[f"{pool.name}.{scalar.name}.mean"] = scalar.mean
            for gate in pool.gates:
                for name in ("mean", "near_0", "near_1", "entropy"):
                    if (value := getattr(gate, name)) is not None:
                        numbers[f"{pool.name}.{gate.name}.{name}"] = value
        return numbers

    def draw(self) -> Any:
        """A matplotlib figure: masks, filters and proportions, and what gates chose over the batch's first image."""
        from .pictures import draw

        return draw(self.pools, self.image)

"""``Explanation``: what ``explain`` returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from .pools import NumberExplanation, PoolExplanation
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
            learned: list[NumberExplanation] = [mix for mix in pool.mixes if mix.learned]
            for item in [*learned, *pool.scalars, *(number for gate in pool.gates for number in gate.numbers)]:
                name = f"{pool.name}.{item.name}"
                numbers[f"{name}.mean"] = item.mean
                if item.count > 1:
                    numbers |= {f"{name}.min": item.min, f"{name}.max": item.max}
            for gate in pool.gates:
                for name in ("mean", "near_0", "near_1", "entropy"):
                    if (value := getattr(gate, name)) is not None:
                        numbers[f"{pool.name}.{gate.name}.{name}"] = value
        return numbers

    def draw(self) -> Any:
        """A matplotlib figure: masks, filters and proportions, and what gates chose over the batch's first image."""
        try:
            from .pictures import draw
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] != "matplotlib":
                raise
            raise ModuleNotFoundError("draw needs matplotlib: pip install matplotlib", name=error.name) from None

        return draw(self.pools, self.image)

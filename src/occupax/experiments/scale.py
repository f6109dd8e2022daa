"""Scale of the experiments."""

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

Item = TypeVar("Item")


class Scale(NamedTuple):
    """Fraction of the experiments that is run."""

    name: str
    fraction: float
    """Fraction of the episodes."""
    min_episodes: int
    """Lower bound of the episodes."""
    max_seeds: int
    networks: bool
    """Whether CartPole and Acrobot are run, which take the most time."""
    roots: tuple[int, ...]
    """Square roots of N for the rate where the theorem applies."""
    lake_roots: tuple[int, ...]
    """Square roots of N for the paper's curve on the lake."""
    whole: bool
    """Whether all readings, rounds and sizes are run, or the first few only."""

    def episodes(self, episodes: int) -> int:
        """Return the episodes of a budget at this scale."""
        return max(int(self.fraction * episodes), min(episodes, self.min_episodes))

    def some(self, items: Sequence[Item], count: int) -> Sequence[Item]:
        """Return all items, or the first few at a small scale."""
        if self.whole:
            return items
        return items[:count]

    def seeds(self, seeds: int) -> int:
        """Return the number of seeds at this scale."""
        return min(seeds, self.max_seeds)


SCALES = {
    "quick": Scale(
        name="quick",
        fraction=0.02,
        min_episodes=2_000,
        max_seeds=3,
        networks=False,
        roots=(4, 8, 16),
        lake_roots=(4, 8, 16),
        whole=False,
    ),
    "full": Scale(
        name="full",
        fraction=1.0,
        min_episodes=1,
        max_seeds=50,
        networks=True,
        roots=(4, 8, 16, 32, 64, 128, 256),
        lake_roots=(4, 8, 16, 32, 64),
        whole=True,
    ),
}

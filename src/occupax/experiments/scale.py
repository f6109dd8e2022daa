"""The size of the experiments."""

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

Item = TypeVar("Item")


class Scale(NamedTuple):
    """How much of everything is run."""

    name: str
    share: float
    """The share of the episodes that are run."""
    least: int
    """How many episodes are run even if that share is smaller."""
    most_seeds: int
    networks: bool
    """Whether CartPole and Acrobot are run, which take the most time."""
    roots: tuple[int, ...]
    """The square roots of the snapshots N of the rate where the theorem applies."""
    lake_roots: tuple[int, ...]
    """The same for the paper's curve on the lake."""
    whole: bool
    """Whether all readings, rounds and sizes are run, or the first few of each only."""

    def episodes(self, episodes: int) -> int:
        """How many of some episodes are run."""
        return max(int(self.share * episodes), min(episodes, self.least))

    def some(self, items: Sequence[Item], count: int) -> Sequence[Item]:
        """All of some items, or the first few at a small scale."""
        return items if self.whole else items[:count]

    def seeds(self, seeds: int) -> int:
        """How many of some seeds are run."""
        return min(seeds, self.most_seeds)


SCALES = {
    "quick": Scale("quick", 0.02, 2_000, 3, False, (4, 8, 16), (4, 8, 16), False),
    "full": Scale("full", 1.0, 1, 50, True, (4, 8, 16, 32, 64, 128, 256), (4, 8, 16, 32, 64), True),
}

"""OccupancyBench: problems with known optima, a protocol, and a leaderboard.

Problems and runs:

- `families`: the problems of `families.toml`. `generators` draws the environments, `objectives`
  makes the utilities.
- `references`: the best value of each problem, certified where possible. `references.json` has
  those of the problems that are the same for everybody.
- `measure`: training with exact or estimated utilities along the way.
- `cells`: one algorithm on one problem in one track. `search` tunes the hyperparameters.

Results:

- `protocol`: all cells one after the other.
- `leaderboard`: scores, tables, charts and pages.
"""

from occupax.bench.families import BenchProblem, problems
from occupax.bench.leaderboard import DEFAULT, Leaderboard
from occupax.bench.protocol import run

__all__ = ["DEFAULT", "BenchProblem", "Leaderboard", "problems", "run"]

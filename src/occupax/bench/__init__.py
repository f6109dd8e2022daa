"""OccupancyBench: problems with known optima, and who gets how far on the way to them.

What is run:

- `families`: the problems, in families that are drawn from a seed; `tables` draws their
  environments, and `objectives` what is maximised in them.
- `references`: the best value of each problem, certified where that is possible; those of the
  problems that are the same for everybody are in `references.json`.
- `measure`: training, and the exact or estimated utility of the policies meanwhile.
- `cells`: one algorithm on one problem in one track, the search for tuned settings, and the file
  that keeps it.
- `protocol`: all of it, one after the other.

What is made of it:

- `summary`: statistics over problems and seeds.
- `leaderboard`: the scores, the page, and the same as Markdown and CSV.
"""

from occupax.bench.families import BenchProblem, problems
from occupax.bench.leaderboard import Leaderboard
from occupax.bench.protocol import DEFAULT, run

__all__ = ["DEFAULT", "BenchProblem", "Leaderboard", "problems", "run"]

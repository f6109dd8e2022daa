"""Frequency and kind of diagnostics that the default triggers on the problems of `occupax bench`.

python benchmarks/alarms.py              the quick suite, a few minutes
python benchmarks/alarms.py full         all problems
"""

import sys
from collections import Counter

import occupax as ox
from tables import Table, show

SEEDS = 5


def measure(suite: str) -> Table:
    """Train on each problem, print every finding, and count them."""
    rows, counts = [], Counter[str]()
    for it in ox.bench.problems("full" if suite == "full" else "quick"):
        result = ox.train(it.problem, episodes=it.entry.episodes, seeds=SEEDS, progress=False)
        kinds = [finding.kind for finding in result.diagnosis]
        counts.update(kinds)
        rows.append([it.name, str(len(kinds)), ", ".join(kinds) or "-", result.headline])
        print(f"{it.name}: {result.summary()}", flush=True)
    said = ", ".join(f"{kind} {count}" for kind, count in counts.most_common()) or "none"
    title = f"Findings about the default of occupax.train, {SEEDS} seeds a problem"
    return Table(
        title, ["problem", "findings", "kinds", "headline"], rows, remarks=[f"in all: {said}"]
    )


if __name__ == "__main__":
    show([measure(sys.argv[1] if len(sys.argv) > 1 else "quick")])

"""A training run that other processes interrupt."""

import occupax as ox


def trained(folder, **options):
    """Train in a folder, or go on there."""
    problem = ox.Problem(
        ox.TabularMDP.chain(3), ox.utilities.LogCoverage(0.1), discount=0.9, horizon=4
    )
    algorithm = ox.TSIVRPG(snapshot_batch=4, batch=2, epoch_length=3, output="uniform")
    options |= {"seeds": 2, "progress": False, "record_every": 7}
    ox.train(problem, algorithm, 8_000, out=folder, resume=True, **options)

"""Pieces for tests of algorithms against their pseudocode."""

import jax
import jax.numpy as jnp
import numpy as np

import enumeration as enum
import occupax as ox

KEY = jax.random.key(0)

COVERAGE = ox.utilities.LogCoverage(0.1)


def problem(utility=COVERAGE, termination="absorbing"):
    return enum.tiny(11, (2,)).problem(termination, utility=utility)


def first_policy(seed=0):
    return ox.policies.Tabular(jnp.asarray(np.random.default_rng(seed).normal(size=(3, 2))))


def draw(task, policy, n, number):
    key = jax.random.fold_in(jax.random.key(5), number)
    return ox.SampledBatch(task, ox.sample(task, policy, n, key), policy)


class Transcript:
    """Estimators of a batch of episodes, by explicit sums over trajectories and steps."""

    def __init__(self, batch):
        self.batch = jax.tree.map(np.asarray, batch.trajectories)

    def steps(self, target):
        """Yield (trajectory, state, action, gamma^t w_t, sum of scores) for each live step."""
        log_probs = np.log(enum.softmax(target))
        data = self.batch
        for i in range(len(data.actions)):
            log_weight, score = 0.0, np.zeros((3, 2))
            for t in np.flatnonzero(data.live[i]):
                s, a = data.observations[i, t], data.actions[i, t]
                log_weight += log_probs[s, a] - data.log_probs[i, t]
                score[s] -= np.exp(log_probs[s])
                score[s, a] += 1
                yield s, a, enum.DISCOUNT**t * np.exp(log_weight), score.copy()

    def u(self, target):
        total = np.zeros(3)
        for s, _, weight, _ in self.steps(target):
            total[s] += weight / len(self.batch.actions)
        return total

    def g(self, target, r):
        return sum(weight * r[s] * score for s, _, weight, score in self.steps(target)) / len(
            self.batch.actions
        )


def grad_coverage(u):
    return 1 / (np.maximum(u, 0) + 0.1)


def over_all_batches_of_one(update, state, termination):
    """Return the expectation of `update` over all trajectories under the state's policy."""
    process = enum.tiny(11, (2,))
    batch, chances = enum.trajectories(process, np.asarray(state.policy.table))
    alone = jax.tree.map(lambda leaf: leaf[:, None], batch)
    task = problem(termination=termination)
    results = jax.vmap(lambda one: update(state, ox.SampledBatch(task, one, state.policy)))(alone)
    return jax.tree.map(lambda leaf: np.tensordot(chances, leaf, 1), results)


def exact(table, termination):
    """The state occupancy [S] and its Jacobian [S, S, A] at a table of logits."""
    process = enum.tiny(11, (2,))
    lam, slopes = (
        enum.occupancy(process, table, termination),
        enum.jacobian(process, table, termination),
    )
    return lam.sum(1), slopes.sum(1)

"""All trajectories of a tiny process in NumPy, as the ground truth of estimators."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

import occupax as ox

HORIZON, DISCOUNT, S, A = 4, 0.9, 3, 2


class Tiny(NamedTuple):
    """A process of three states and two actions, with rewards that depend on the next state."""

    transition: np.ndarray
    reward: np.ndarray
    initial: np.ndarray
    terminal: np.ndarray

    def problem(self, termination, **options):
        env = ox.TabularMDP(self.transition, self.reward, self.initial, self.terminal)
        return ox.Problem(
            env, discount=DISCOUNT, horizon=HORIZON, termination=termination, **options
        )


def tiny(seed, terminal):
    random = np.random.default_rng(seed)
    mask = np.zeros(S, bool)
    mask[list(terminal)] = True
    return Tiny(
        random.dirichlet(np.ones(S), (S, A)),
        random.normal(size=(S, A, S)),
        random.dirichlet(np.ones(S)),
        mask,
    )


def softmax(logits):
    shifted = np.exp(logits - logits.real.max(1, keepdims=True))
    return shifted / shifted.sum(1, keepdims=True)


def occupancy(process, logits, termination):
    """Return the occupancy [S, A] by forward recursion. `logits` may be complex."""
    probs = softmax(logits)
    arriving, total = process.initial.astype(logits.dtype), np.zeros((S, A), logits.dtype)
    for t in range(HORIZON):
        following = np.zeros(S, logits.dtype)
        for s in range(S):
            if process.terminal[s] and termination == "episodic":
                continue
            for a in range(A):
                mass = arriving[s] * probs[s, a]
                total[s, a] += DISCOUNT**t * mass
                if process.terminal[s]:
                    following[s] += mass
                else:
                    following += mass * process.transition[s, a]
        arriving = following
    return total


def jacobian(process, logits, termination):
    """Return the derivative of the occupancy by each logit, [S, A, S, A], by complex steps."""
    step = 1e-30
    columns = np.zeros((S, A, S, A))
    for s in range(S):
        for a in range(A):
            moved = logits.astype(complex)
            moved[s, a] += 1j * step
            columns[:, :, s, a] = occupancy(process, moved, termination).imag / step
    return columns


def trajectories(process, logits):
    """Every trajectory under a behaviour policy, with its probability."""
    log_probs = np.log(softmax(logits))
    rows = []

    def extend(state, path, chance):
        if len(path) == HORIZON or process.terminal[state]:
            rows.append((state, path, chance))
            return
        for a in range(A):
            for following in range(S):
                p = np.exp(log_probs[state, a]) * process.transition[state, a, following]
                step = (state, a, log_probs[state, a], process.reward[state, a, following])
                extend(following, [*path, step], chance * p)

    for first in range(S):
        extend(first, [], process.initial[first])
    observations, actions, recorded, rewards, live = (
        np.zeros((len(rows), HORIZON)) for _ in range(5)
    )
    finals = np.array([final for final, _, _ in rows])
    for i, (final, path, _) in enumerate(rows):
        observations[i] = final
        for t, (s, a, b, r) in enumerate(path):
            observations[i, t], actions[i, t], recorded[i, t], rewards[i, t], live[i, t] = (
                s,
                a,
                b,
                r,
                1,
            )
    batch = ox.Trajectories(
        observations=jnp.asarray(observations, int),
        actions=jnp.asarray(actions, int),
        log_probs=jnp.asarray(recorded),
        rewards=jnp.asarray(rewards),
        live=jnp.asarray(live, bool),
        terminated=jnp.asarray(process.terminal[finals]),
        final_observations=jnp.asarray(finals),
    )
    return batch, np.array([chance for _, _, chance in rows])

"""Batches of the tabular kernel as plain trajectories."""

import jax.numpy as jnp
import numpy as np

import occupax as ox


def as_trajectories(batch):
    """The trajectories of a compiled batch in the plain form, by walking through its events."""
    env, horizon, part = batch.problem.env, batch.problem.horizon, 128
    A, K = env.num_actions, 1 << (env.successors.shape[2] - 1).bit_length()
    n = len(batch.lengths)
    columns = {name: np.zeros((n, horizon), int) for name in ("states", "actions", "outcomes")}
    lengths, all_events = np.asarray(batch.lengths), np.asarray(batch.events)
    live = np.arange(horizon) < lengths[:, None]
    for i in range(n):
        start = i // part * part * horizon + lengths[i // part * part : i].sum()
        events = all_events[start : start + lengths[i]]
        for name, values in zip(
            columns, (events // (A * K), events // K % A, events % K), strict=True
        ):
            columns[name][i, : len(events)] = values
    s, a, k = columns.values()
    finals = np.asarray(batch.finals)
    return ox.Trajectories(
        observations=jnp.asarray(s, jnp.int32),
        actions=jnp.asarray(a, jnp.int32),
        log_probs=jnp.asarray(np.log(np.asarray(batch.probs))[s, a]),
        rewards=jnp.asarray(np.where(live, env.outcome_rewards[s, a, k], 0.0)),
        live=jnp.asarray(live),
        terminated=jnp.asarray(env.terminal[finals]),
        final_observations=jnp.asarray(finals, jnp.int32),
    )

"""Batches: who answers what an algorithm asks.

* `block`: what all of them have in common, and batches that consist of parts.
* `sampled`: trajectories in memory, estimated from by `occupax.estimators`.
* `numbered`: more trajectories than memory holds, drawn again block by block, or spread over several devices.
* `shards`: trajectories that are drawn in shards outside of the compiled program, here or on a cluster.
"""

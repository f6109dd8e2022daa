"""Batches: who answers what an algorithm asks.

* `block`: what all of them have in common, and batches that consist of parts.
* `sampled`: trajectories in memory, estimated from by `occupax.estimators`.
* `streamed`: more trajectories than memory holds, drawn again block by block.
* `devices`: trajectories that are spread over several devices.
* `shards`: trajectories that are drawn in shards outside of the compiled program, here or on a cluster.
"""

"""One file for each command, by its name.

- `check_env`: whether a Gymnasium environment is fit for training.
- `evaluate`: trained policies, in Gymnasium.
- `list`: the names of environments, utilities, algorithms and policies.
- `report`: a page about training runs.
- `reproduce`: the experiments of the paper.
- `solve`: the exact optimum of a tabular problem.
- `sweep`: training with many settings.
- `theory`: what the theory prescribes for a problem.
- `train`: training.
"""

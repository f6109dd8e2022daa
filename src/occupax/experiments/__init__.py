"""The experiments of the paper's section 6, and the verdict on each of its claims."""

from occupax.experiments.reproduce import reproduce

__all__ = ["reproduce"]

"""Randomised robustness tests. `make attack` runs all, the test suite a small sample of each kind.

- `folders`: folders of runs, changed by someone who knows how checksums are made.
- `inputs`: bad input of the command line and of Python.
- `kills`: processes that are killed at random moments, and while they write.
- `simulators`: environments of Gymnasium that misbehave, with and without processes.
- `disk`: a disk that is full.
"""

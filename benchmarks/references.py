"""Compute the best values of the problems of `occupax bench`, and store them in the package.

python benchmarks/references.py                   all of them (slow: some need long runs)
python benchmarks/references.py lake-8/return     some of them
"""

import sys

from occupax.bench.references import store_references

if __name__ == "__main__":
    store_references(sys.argv[1:])

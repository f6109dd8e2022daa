PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: run test check bench docs reproduce clean

run: $(READY)  ## solve a small problem exactly, sample it, and compare
	$(BIN)/occupax solve FrozenLake8x8-v1 --utility log-coverage --discount 0.99

test: check  ## all checks and tests
	$(BIN)/python -m pytest -n 2

check: $(READY)  ## lint, format, types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

bench: $(READY)  ## speed, as ratios measured side by side
	$(BIN)/python benchmarks/sampling.py

docs: $(READY)  ## build the documentation into site/
	$(BIN)/mkdocs build --strict --quiet

reproduce: $(READY)  ## the figures of the paper that are exact
	$(BIN)/python examples/paper_optima.py

clean:  ## remove everything that was made
	rm -rf $(VENV) site dist .pytest_cache .ruff_cache .hypothesis .cache

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[exact,tensorboard,dev]'
	touch $(READY)

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: run test check lint types kernels pytest test-slow browser learn sanitize attack bench leaderboard docs reproduce release clean

run: $(READY)  ## train policies that cover a frozen lake, with a certificate and a report
	rm -rf runs/coverage
	$(BIN)/occupax train FrozenLake8x8-v1 --utility log-coverage --episodes 50000 --seeds 10 --out runs/coverage

test: lint browser  ## all checks and tests
	$(MAKE) --jobs 2 types kernels pytest

check: lint types kernels  ## lint, format, types, kernels

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/vulture
	$(BIN)/lint-imports --no-logo

types: $(READY)
	$(BIN)/pyright

KERNELS := $(wildcard src/occupax/kernels/*.cc src/occupax/kernels/*.h)

kernels: $(READY)
	$(BIN)/clang-format --dry-run --Werror $(KERNELS)
	$(BIN)/clang-tidy --quiet --warnings-as-errors='*' $(filter %.cc,$(KERNELS)) -- -std=c++17 \
		-isystem $$($(BIN)/python -c 'import jax; print(jax.ffi.include_dir())')

pytest: $(READY)
	$(BIN)/python -m pytest -n 2

test-slow: $(READY) browser  ## all tests as a user has the package: optimised, fsync, reports, every annotation checked
	OCCUPAX_TEST_AS_USERS=1 $(BIN)/python -m pytest -n 2

browser: $(READY)  ## a Chromium for the tests of pages, unless there is one; without it they fail
	-$(BIN)/python tests/helpers/browser.py

learn: $(READY)  ## what the default learns from fixed seeds, on nine problems
	$(BIN)/python examples/learning.py

SANITIZED := $(CURDIR)/.cache/libkernels-sanitized.so

sanitize: $(READY)  ## the kernels under AddressSanitizer and UBSan: their tests, and runs that go on from mutated folders
	mkdir -p .cache
	$(CXX) -std=c++17 -O1 -g -fPIC -shared -fsanitize=address,undefined -fno-sanitize-recover=undefined \
		-isystem $$($(BIN)/python -c 'import jax; print(jax.ffi.include_dir())') \
		-o $(SANITIZED) src/occupax/kernels/*.cc
	export OCCUPAX_KERNEL=$(SANITIZED) ASAN_OPTIONS=detect_leaks=0 \
		LD_PRELOAD="$$($(CXX) -print-file-name=libasan.so) $$($(CXX) -print-file-name=libstdc++.so.6)"; \
		$(BIN)/python -m pytest tests/samplers/test_tabular_kernel.py tests/samplers/test_network_kernel.py tests/io \
		-k 'kernel or network or mutated or table' && \
		cd tests && PYTHONPATH=.:helpers ../$(BIN)/python -m attacks.folders 100

attack: $(READY)  ## hundreds of bad inputs, mutated folders, kills and misbehaving simulators; an hour
	cd tests && PYTHONPATH=.:helpers ../$(BIN)/python -m attacks

bench: $(READY)  ## speed and memory, into benchmarks/RESULTS.md; with the extra `bench` against others too
	$(BIN)/python benchmarks

docs: $(READY)  ## build the documentation into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

reproduce: $(READY)  ## the paper's experiments with a verdict on each claim, into docs/reproduction-numbers.md; an hour
	$(BIN)/occupax reproduce --scale full --out runs/reproduction
	mkdir -p docs/figures
	cp runs/reproduction/report.md docs/reproduction-numbers.md
	cp runs/reproduction/numbers/search.csv docs/reproduction-search.csv
	cp runs/reproduction/figures/*.svg docs/figures/

ENTERED := $(addprefix --algorithm ,ox.train tsivr-pg reinforce svrpg srvr-pg hspga maxent storm page n-vr-pg n-harpg plug-in)
LEADERBOARD := $(BIN)/occupax bench --suite full $(ENTERED) --out runs/bench

leaderboard: $(READY)  ## OccupancyBench with all algorithms, tuned on its test half, into benchmarks/BENCH.md, in two processes; two hours
	$(LEADERBOARD) --half test --tuned --no-progress & $(LEADERBOARD) --half test --tuned && wait
	$(LEADERBOARD) --no-progress & $(LEADERBOARD) && wait
	mkdir -p docs/figures
	cp runs/bench/bench.md benchmarks/BENCH.md
	cp runs/bench/figures/*.svg docs/figures/
	$(BIN)/python examples/result_pages.py

RELEASE := .cache/release

release: $(READY)  ## sdist and wheel into dist/, and a training with the wheel in a new environment
	rm -rf dist $(RELEASE)
	$(BIN)/python -m build
	$(PYTHON) -m venv $(RELEASE)
	PIP_CONSTRAINT=constraints.txt $(RELEASE)/bin/python -m pip install --quiet --disable-pip-version-check dist/*.whl
	cd $(RELEASE) && bin/occupax --version && bin/occupax train FrozenLake-v1 --episodes 2000 --no-progress --out run
	$(RELEASE)/bin/python -c 'import occupax as ox; print(ox.load_result("$(RELEASE)/run").policy().predict(0, seed=0))'

clean:  ## remove everything that was made
	rm -rf $(VENV) site dist runs .pytest_cache .ruff_cache .hypothesis .cache src/occupax/kernels/libkernels.so

$(READY): pyproject.toml constraints.txt hatch_build.py $(wildcard src/occupax/kernels/*.cc src/occupax/kernels/*.h)
	$(PYTHON) -m venv $(VENV)
	PIP_CONSTRAINT=constraints.txt $(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[exact,gymnax,mo,mujoco,ray,tensorboard,video,wandb,dev]'
	touch $(READY)

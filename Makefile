# `make demo` shows the library, `make quick` checks a change in a minute, `make test` checks everything. Each sets up
# .venv first; nothing else is needed.
#
# LOCKED=1 installs the versions in requirements/dev.lock, checked against their hashes; CI does. COVERAGE=1 prints
# which lines the unit tests ran.
PYTHON ?= python3
BIN := .venv/bin
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Many tests start the command: without bytecode on disk, each start compiles the library again.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test quick lint types docs unit coverage dist lock provisioned portable portable-short pythons lowest fuzz federation flower soak bench clean

demo: .venv/installed
	$(BIN)/evenhand demo

test: lint types docs unit portable-short provisioned

# Lint, types and the fast tests, in under a minute on two cores; slower tests are marked `slow` and left to `make test`.
quick: lint types
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/pytest -q -n 2 -m "not soak and not slow" $(QUICK:%=tests/%)

# What no whole run is needed for, and one small fit of each split. Collecting all tests alone would take the minute.
QUICK := architecture constraints docs estimators/test_smoke.py metrics models privacy programs protocol

lint: .venv/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python docs/generate.py --check

types: .venv/installed-dev
	$(BIN)/mypy

# Build the documentation into site/. Any warning, such as a broken link, is an error; the theme's own announcement is
# turned off because it would be one.
docs: .venv/installed-dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

# One numerical thread per worker: the workers already fill the cores. A file stays with one worker, which makes its
# fixtures once.
unit: .venv/installed-dev
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist loadfile -m "not soak" $(if $(COVERAGE),--cov --cov-report=term)

# Print the lines that no unit test runs; takes longer than `make unit`.
coverage: .venv/installed-dev
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/pytest -q -n 2 -m "not soak" --cov --cov-report=term-missing

# Build the source archive and the wheel into dist/, and check them. TAG=v1.2.3 must be the version of this tree.
dist: .venv/installed-dev
	rm -rf dist
	$(BIN)/pip install --quiet build twine
	$(BIN)/python -m build --quiet
	$(BIN)/twine check --strict dist/*
	@test -z "$(TAG)" || test -f "dist/evenhand-$(TAG:v%=%).tar.gz" || { echo "TAG is $(TAG), but dist/ holds" dist/*; exit 1; }

# Resolve the lock files again, for Python 3.11 and newer. torch is in none: which build fits depends on the machine.
lock: .venv/installed-dev
	$(BIN)/pip install --quiet uv
	$(COMPILE) --extra browser --extra docs --extra lint --extra mlflow --extra onnx --extra test --output-file requirements/dev.lock
	$(COMPILE) --extra nvflare --extra privacy --extra sql --extra trees --output-file requirements/image.lock
	echo "hatchling>=1.24" | $(COMPILE:pyproject.toml=-) --output-file requirements/build.lock

COMPILE = $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate \
	--custom-compile-command "make lock" pyproject.toml

# Run the contracts under other processors' kernels, and list what could not be tried here. The short version takes half
# a minute.
portable: .venv/installed-dev
	$(BIN)/python tests/portable.py

portable-short: .venv/installed-dev
	$(BIN)/python tests/portable.py --short

# Run the unit tests under other Pythons, or with the oldest dependencies that pyproject.toml allows; without torch.
pythons lowest: .venv/installed-dev
	$(BIN)/python tests/environments.py $@

# Feed more than 100,000 random inputs to everything that parses messages, files and settings; takes a few minutes.
fuzz: .venv/installed-dev
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python tests/fuzz/run.py

# Run one job on a provisioned federation: certificates, a server process and three party processes; under a minute.
provisioned: .venv-nvflare/installed
	.venv-nvflare/bin/pytest -q tests/engines/test_federation.py::test_the_run_is_that_of_one_process_and_each_side_keeps_its_own

# Run the demo on a federation of seven processes on this machine, then the tests that need a federation. NVIDIA FLARE
# pins its dependencies, so it has its own environment.
federation: .venv-nvflare/installed-torch
	.venv-nvflare/bin/evenhand demo --federation
	.venv-nvflare/bin/pytest -m "not soak" tests/engines

# Run the role contract on Flower's simulation, then jobs on a SuperLink with TLS and node keys; in its own environment.
flower: .venv-flower/installed
	.venv-flower/bin/pytest tests/engines/test_flower.py tests/engines/test_flower_relay.py
	.venv-flower/bin/pytest -m soak -o faulthandler_timeout=0 tests/engines/test_superlink.py

# Kill runs, damage run folders and try more examples of each property; takes more than an hour.
soak: .venv/installed-dev .venv-nvflare/installed
	$(BIN)/pytest -m soak -o faulthandler_timeout=0
	.venv-nvflare/bin/pytest -m soak -s -o faulthandler_timeout=0 tests/engines

# problems.py is what the benchmarks share, engines_flower.py a part of engines.py; trees_peers.py needs others to compare with.
bench: .venv/installed-dev
	for file in $(filter-out %/problems.py %/engines_flower.py %/trees_peers.py,$(wildcard benchmarks/*.py)); do $(BIN)/python $$file || exit 1; done

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/installed: pyproject.toml | .venv/bin/python
	$(BIN)/pip install --quiet --editable .
	touch $@

.venv/installed-dev: pyproject.toml reproductions/pyproject.toml | .venv/bin/python
	$(if $(LOCKED),$(BIN)/pip install --quiet --require-hashes --requirement requirements/dev.lock)
	$(BIN)/pip install --quiet --editable '.[dev]' --editable 'reproductions[torch]'
	touch $@ .venv/installed

.venv-nvflare/installed: pyproject.toml reproductions/pyproject.toml
	$(PYTHON) -m venv .venv-nvflare
	.venv-nvflare/bin/pip install --quiet --editable '.[test,nvflare]' --editable reproductions \
		|| { echo "NVIDIA FLARE (Linux only) cannot be installed here, so no federation can be tested; make unit tests all else" >&2; exit 1; }
	touch $@

# With torch, for neural networks.
.venv-nvflare/installed-torch: .venv-nvflare/installed
	.venv-nvflare/bin/pip install --quiet --editable '.[test,torch,nvflare]'
	touch $@

.venv-flower/installed: pyproject.toml reproductions/pyproject.toml
	$(PYTHON) -m venv .venv-flower
	.venv-flower/bin/pip install --quiet --editable '.[test,torch,flower]' --editable reproductions
	touch $@

clean:
	rm -rf .venv .venv-* .mypy_cache .ruff_cache .pytest_cache dist site .coverage*

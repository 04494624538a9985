# Two commands matter: `make demo` and `make test`. Both set up .venv first; nothing else is needed.
PYTHON ?= python3
BIN := .venv/bin
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: demo test lint types docs unit provisioned portable portable-short pythons lowest fuzz federation flower soak bench clean

demo: .venv/installed
	$(BIN)/evenhand demo

test: lint types docs unit portable-short provisioned

lint: .venv/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python docs/generate.py --check

types: .venv/installed-dev
	$(BIN)/mypy

# The documentation as a site, in site/; any warning, such as a link that leads nowhere, is an error. Its theme has news of
# its own, which would be one.
docs: .venv/installed-dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

# One numerical thread per worker: the workers already fill the cores.
unit: .venv/installed-dev
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/pytest -n 2 -m "not soak"

# The contracts under other processors' kernels, and what could not be tried here; the short slice takes half a minute.
portable: .venv/installed-dev
	$(BIN)/python tests/portable.py

portable-short: .venv/installed-dev
	$(BIN)/python tests/portable.py --short

# The unit tests, but for those that need torch, under other Pythons and under the oldest libraries that we allow.
pythons lowest: .venv/installed-dev
	$(BIN)/python tests/environments.py $@

# Inputs of every kind for whatever reads what others wrote: more than 100,000, in a few minutes.
fuzz: .venv/installed-dev
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python tests/fuzz/run.py

# One job on a provisioned federation: certificates, a server and three parties as processes of their own; under a minute.
provisioned: .venv-nvflare/installed
	.venv-nvflare/bin/pytest -q tests/engines/test_federation.py::test_the_run_is_that_of_one_process_and_each_side_keeps_its_own

# The demo on a federation of seven processes on this machine, then the tests that need one. NVIDIA FLARE has pins of its
# own, so it gets an environment of its own.
federation: .venv-nvflare/installed-torch
	.venv-nvflare/bin/evenhand demo --federation
	.venv-nvflare/bin/pytest -m "not soak" tests/engines

# The contract of roles on Flower's simulation, then jobs on a SuperLink with TLS and node keys; its own environment too.
flower: .venv-flower/installed
	.venv-flower/bin/pytest tests/engines/test_flower.py
	.venv-flower/bin/pytest -m soak -o faulthandler_timeout=0 tests/engines/test_superlink.py

# Kills, damaged folders and more examples of the properties; an hour and more, so slowness is no news.
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

.venv/installed-dev: pyproject.toml | .venv/bin/python
	$(BIN)/pip install --quiet --editable '.[dev]'
	touch $@ .venv/installed

.venv-nvflare/installed: pyproject.toml
	$(PYTHON) -m venv .venv-nvflare
	.venv-nvflare/bin/pip install --quiet --editable '.[test,nvflare]' \
		|| { echo "NVIDIA FLARE (Linux only) cannot be installed here, so no federation can be tested; make unit tests all else" >&2; exit 1; }
	touch $@

# Solvers of neural networks run there too.
.venv-nvflare/installed-torch: .venv-nvflare/installed
	.venv-nvflare/bin/pip install --quiet --editable '.[test,torch,nvflare]'
	touch $@

.venv-flower/installed: pyproject.toml
	$(PYTHON) -m venv .venv-flower
	.venv-flower/bin/pip install --quiet --editable '.[test,torch,flower]'
	touch $@

clean:
	rm -rf .venv .venv-* .mypy_cache .ruff_cache .pytest_cache

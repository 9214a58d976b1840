# make demo   sets everything up, trains on a real graph, prints a leaderboard
# make test   sets everything up, runs the tests; what fails runs once more, alone, and is FLAKY if it passes (STRICT=1: fails)
# make test-slow   the long forms of tests, each with what it alone covers
# make adversary MINUTES=60   attacks the store, the steps and the command line, and prints what became of it
# make ui     opens the web UI on this machine (prints the address)
PYTHON ?= python3.11
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
# The same with what tests, checks and benchmarks need besides: a demo downloads none of it.
READY_DEV := $(VENV)/.ready-dev
TOOLS := $(VENV)/.tools
BUILT := $(VENV)/.built
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
SOURCES := pyproject.toml constraints.txt setup.py
NATIVE := setup.py $(wildcard kernels/native/*/*.cpp kernels/native/*/*.h)
# A few processes, each of which takes whole files of tests: tests of a file share what they prepare.
PYTEST_ARGS ?= --numprocesses auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder --max-worker-restart 4

# Packages are installed while C++ compiles.
PREPARE = $(MAKE) --no-print-directory --jobs 2

.PHONY: setup demo ui test test-slow check docs bench adversary clean
setup: $(READY_DEV) $(BUILT)

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# What builds the native module; an environment of pip's own for it would be downloaded anew at every build.
$(TOOLS): $(BIN)/python
	$(INSTALL) "setuptools>=77" "pybind11>=3"
	touch $@

# From objects in build/: what has not changed is not compiled again.
$(BUILT): $(TOOLS) $(NATIVE)
	$(BIN)/python setup.py --quiet build_ext --inplace
	touch $@

# The native module is left to the rule above.
$(READY): $(TOOLS) $(SOURCES)
	GRAPHMILL_NATIVE=apart $(INSTALL) --no-build-isolation -e .
	touch $@

$(READY_DEV): $(TOOLS) $(SOURCES)
	GRAPHMILL_NATIVE=apart $(INSTALL) --no-build-isolation -e ".[dev,dgl,pyg,postgres,ray,object-store]"
	touch $(READY) $@

demo:
	$(PREPARE) $(READY) $(BUILT)
	$(BIN)/graphmill demo

ui: $(READY) $(BUILT)
	$(BIN)/graphmill ui

STRICT ?=
RUN_TESTS = $(BIN)/python -m tests.rerun $(if $(filter-out 0,$(STRICT)),--strict) --
test:
	$(PREPARE) setup
	$(RUN_TESTS) $(PYTEST_ARGS)

test-slow:
	$(PREPARE) setup
	$(RUN_TESTS) $(PYTEST_ARGS) -m slow

check: $(READY_DEV) $(BUILT)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

docs: $(READY_DEV) $(BUILT)
	$(BIN)/python -m tests.docs.cli_page
	$(BIN)/python -m tests.docs.stage_pages
	$(BIN)/python -m tests.docs.options_page
	$(BIN)/python -m tests.docs.measured

MINUTES ?= 60
KINDS ?=
SEED ?= 1
adversary: $(READY_DEV) $(BUILT)
	$(BIN)/python -m tests.adversary --minutes $(MINUTES) --seed $(SEED) $(KINDS)

bench: $(READY_DEV) $(BUILT)
	$(BIN)/python -m benchmarks --quick --dirty

clean:
	rm -rf $(VENV) build *.egg-info kernels/_native*.so

# make demo   sets everything up, trains on a real graph, prints a leaderboard
# make test   sets everything up, runs the tests
# make adversary MINUTES=60   attacks the store, the steps and the command line, and prints what became of it
# make ui     opens the web UI on this machine (prints the address)
PYTHON ?= python3.11
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
# The same with what tests, checks and benchmarks need besides: a demo downloads none of it.
READY_DEV := $(VENV)/.ready-dev
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
SOURCES := pyproject.toml constraints.txt setup.py
NATIVE := $(wildcard kernels/native/*/*.cpp kernels/native/*/*.h)
# A process a core, which takes whole files of tests: tests of a file share what they prepare.
PYTEST_ARGS ?= --numprocesses auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder --max-worker-restart 0

.PHONY: setup demo ui test check docs bench adversary clean
setup: $(READY_DEV)

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(READY): $(BIN)/python $(SOURCES) $(NATIVE)
	$(INSTALL) -e .
	touch $(READY)

$(READY_DEV): $(BIN)/python $(SOURCES) $(NATIVE)
	$(INSTALL) -e ".[dev,dgl]"
	touch $(READY) $(READY_DEV)

demo: $(READY)
	$(BIN)/graphmill demo

ui: $(READY)
	$(BIN)/graphmill ui

test: $(READY_DEV)
	$(BIN)/python -m pytest $(PYTEST_ARGS)

check: $(READY_DEV)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

docs: $(READY_DEV)
	$(BIN)/python -m tests.docs.cli_page

MINUTES ?= 60
KINDS ?=
SEED ?= 1
adversary: $(READY_DEV)
	$(BIN)/python -m tests.adversary --minutes $(MINUTES) --seed $(SEED) $(KINDS)

bench: $(READY_DEV)
	$(BIN)/python -m benchmarks --quick

clean:
	rm -rf $(VENV) build *.egg-info kernels/_native*.so

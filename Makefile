# make demo   sets everything up, trains on a real graph, prints a leaderboard
# make test   sets everything up, runs the tests
# make ui     opens the web UI on this machine (prints the address)
PYTHON ?= python3.11
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
NATIVE := $(wildcard kernels/native/*/*.cpp kernels/native/*/*.h)
# A process a core, which takes whole files of tests: tests of a file share what they prepare.
PYTEST_ARGS ?= --numprocesses auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder

.PHONY: setup demo ui test check bench clean
setup: $(READY)

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(READY): $(BIN)/python pyproject.toml constraints.txt setup.py $(NATIVE)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev,dgl]"
	touch $(READY)

demo: $(READY)
	$(BIN)/graphmill demo

ui: $(READY)
	$(BIN)/graphmill ui

test: $(READY)
	$(BIN)/python -m pytest $(PYTEST_ARGS)

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

bench: $(READY)
	$(BIN)/python -m benchmarks --quick

clean:
	rm -rf $(VENV) build *.egg-info kernels/_native*.so

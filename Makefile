# make demo   sets everything up, trains on a real graph, prints a leaderboard
# make test   sets everything up, runs the tests; what fails runs once more, alone, and is FLAKY if it passes (STRICT=1: fails)
# make test-slow   the long forms of tests, each with what it alone covers
# make test-wheel   builds the wheel and tries it in an environment of its own, without a compiler
# make adversary MINUTES=60   attacks the store, the steps and the command line, and prints what became of it
# make ui     opens the web UI on this machine (prints the address)
PYTHON ?= python3.11
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
# The same with what tests, checks and benchmarks need besides: a demo downloads none of it.
READY_DEV := $(VENV)/.ready-dev
TOOLS  := $(VENV)/.tools
# Modules are compiled to bytecode when they are first imported: most of what the packages hold never is. It is kept in any case, since
# every command would compile for two seconds.
unexport PYTHONDONTWRITEBYTECODE
INSTALL := $(BIN)/python -m pip install --disable-pip-version-check --no-compile -c constraints.txt
SOURCES := pyproject.toml constraints.txt
# The native module has a rule of its own. Of an editable install the path of the tree is enough: a finder would be loaded by every process,
# and come before PYTHONPATH.
EDITABLE := --no-build-isolation -C wheel.cmake=false -C editable.mode=inplace -e
BY_PATH := sed -i '/^import /d' $(VENV)/lib/python3*/site-packages/_editable_skbc_graphmill.pth
EXTRAS := dev,dgl,pyg,postgres,ray,object-store
# One folder for each version of Python: CMake keeps what it has found.
NATIVE = build/native-$$($(BIN)/python -c "import sys; print(sys.implementation.cache_tag)")
# A few processes, each of which takes whole files of tests: tests of a file share what they prepare.
PYTEST_ARGS ?= --numprocesses auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder --max-worker-restart 4

# Packages are installed while C++ compiles.
PREPARE = $(MAKE) --no-print-directory --jobs 2

# $(call step,WHAT IT DOES,NAME OF ITS LOG,COMMANDS): says what begins and how long it took; what commands print is shown if they fail.
step = @mkdir -p build && echo "$(1) ..." && begun=$$(date +%s) && \
	{ { $(3); } > build/$(2).log 2>&1 || { cat build/$(2).log; false; }; } && \
	echo "$(1): $$(($$(date +%s) - begun)) s"

.PHONY: setup native wheel demo ui test test-slow test-wheel check docs bench adversary clean
setup: $(READY_DEV) native

$(BIN)/python:
	$(call step,making an environment in $(VENV),venv,$(PYTHON) -m venv $(VENV))

# What builds the native module; an environment of pip's own for it would be downloaded anew at every build.
$(TOOLS): $(BIN)/python pyproject.toml
	$(call step,installing build tools,tools,$(INSTALL) scikit-build-core nanobind ninja $(if $(shell command -v cmake),,cmake))
	@touch $@

# Ninja compiles what has changed, and CMake notices new files: no list of sources here.
native: $(TOOLS)
	$(call step,compiling the kernels,native,PATH="$(CURDIR)/$(BIN):$$PATH" && build="$(NATIVE)" && \
	  { [ -f "$$build/build.ninja" ] || cmake -S . -B "$$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DPython_EXECUTABLE="$(CURDIR)/$(BIN)/python"; } && \
	  cmake --build "$$build")

$(READY): $(TOOLS) $(SOURCES)
	$(call step,installing packages,packages,$(INSTALL) $(EDITABLE) . && $(BY_PATH))
	@touch $@

$(READY_DEV): $(TOOLS) $(SOURCES)
	$(call step,installing packages,packages,$(INSTALL) $(EDITABLE) ".[$(EXTRAS)]" && $(BY_PATH))
	@touch $(READY) $@

# A file that installs on machines with another processor and without a compiler: docs/deployment.md.
wheel: $(TOOLS)
	@rm -rf dist
	$(call step,building a wheel in dist,wheel,PATH="$(CURDIR)/$(BIN):$$PATH" && $(BIN)/python -m pip wheel --disable-pip-version-check --no-deps --no-build-isolation -w dist .)

demo:
	@$(PREPARE) $(READY) native
	$(BIN)/graphmill demo

ui: $(READY) native
	$(BIN)/graphmill ui

STRICT ?=
RUN_TESTS = $(BIN)/python -m tests.rerun $(if $(filter-out 0,$(STRICT)),--strict) --
test:
	@$(PREPARE) setup
	$(RUN_TESTS) $(PYTEST_ARGS)

test-slow:
	@$(PREPARE) setup
	$(RUN_TESTS) $(PYTEST_ARGS) -m slow

# The wheel by itself: a new environment, no clone and no compiler on the path, and the tests that are marked `smoke`.
APART := build/apart
test-wheel: wheel
	@rm -rf $(APART) && mkdir -p $(APART)/bin && cp -r tests pyproject.toml $(APART)/
	@for tool in sh bash env uname cat ls rm; do ln -s "$$(command -v $$tool)" $(APART)/bin/; done
	$(call step,installing the wheel,apart,$(PYTHON) -m venv $(APART)/venv && $(APART)/venv/bin/python -m pip install --disable-pip-version-check --no-compile -c constraints.txt dist/*.whl pytest hypothesis)
	cd $(APART) && env -u PYTHONPATH PATH="$(CURDIR)/$(APART)/venv/bin:$(CURDIR)/$(APART)/bin" GRAPHMILL_HOME=home sh -c "graphmill demo && python -m pytest -m smoke -q tests/kernels tests/graphmill"

check: $(READY_DEV) native
	@mkdir -p build/typed/graphmill && ln -sfn $(addprefix $(CURDIR)/,assets jobs kernels trainers $(wildcard graphmill/*.py)) build/typed/graphmill/
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

docs: $(READY_DEV) native
	$(BIN)/python -m tests.docs.cli_page
	$(BIN)/python -m tests.docs.stage_pages
	$(BIN)/python -m tests.docs.options_page
	$(BIN)/python -m tests.docs.environment_page
	$(BIN)/python -m tests.docs.own_data_page
	$(BIN)/python -m tests.docs.measured

MINUTES ?= 60
KINDS ?=
SEED ?= 1
adversary: $(READY_DEV) native
	$(BIN)/python -m tests.adversary --minutes $(MINUTES) --seed $(SEED) $(KINDS)

bench: $(READY_DEV) native
	$(BIN)/python -m benchmarks --quick --dirty

clean:
	rm -rf $(VENV) build dist kernels/_native/*.so

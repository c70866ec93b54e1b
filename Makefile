# Everything a fresh checkout needs. `make` alone says what there is.
PYTHON  ?= python3
VENV    := .venv
BIN     := $(VENV)/bin
STAMP   := $(VENV)/.ready
# Twice as many processes as there are cores: most tests wait for a broker, not for a core.
WORKERS ?= $(shell echo $$(( $$(nproc) * 2 )))
ARGS    ?=
# Packages of more than a gigabyte come in: somebody at a terminal sees how far they are.
QUIET   := $(shell test -t 2 || echo --quiet)
export PIP_DISABLE_PIP_VERSION_CHECK = 1
export UV_LINK_MODE = copy
# Compiled modules are kept: brokers that tests start are ready in half the time.
export PYTHONDONTWRITEBYTECODE =

.DEFAULT_GOAL := help
.PHONY: help setup system java run test check collect fmt unit long bench chaos mutants docs proto clean

help: ## this list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-8s %s\n", $$1, $$2}'

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Tidemill needs Python 3.11 or newer: make PYTHON=python3.12 setup"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@test -x $(BIN)/uv || $(BIN)/pip install --quiet 'uv>=0.8,<1'
	$(BIN)/uv pip install $(QUIET) --compile-bytecode --python $(BIN)/python --editable '.[all]' --group dev
	@touch $@

# An installed package comes with its bytecode; a checkout whose Python may not write any would be compiled at every start.
setup: $(STAMP) ## .venv with the package, all extras and the development tools
	@$(BIN)/python -m compileall -q src

system: ## Debian packages that the tests use (kcat, Java, postgresql)
	@.ci/system tests

# Without Java the demo runs all the same, without its Spark pipeline.
java: ## Java, for the demo's Spark pipeline
	@.ci/system java || echo "continuing without Java: the demo leaves out its Spark pipeline" >&2

run: setup java ## the demo: a broker, orders, reminders and a Spark pipeline at work
	@$(BIN)/tidemill demo $(ARGS)

test: setup system ## format, lint, types, imports, tests: what CI runs
	@$(MAKE) --no-print-directory -j2 --output-sync=target check collect
	@$(MAKE) --no-print-directory unit

check: setup
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check --quiet .
	$(BIN)/lint-imports --no-logo
	$(BIN)/mypy

# Each process of `unit` would compile every test for itself; mypy leaves a core free to do it once. What is wrong is
# told by `unit`.
collect: setup
	@$(BIN)/pytest -qq --collect-only >/dev/null 2>&1 || true

# A test that fails beside others on a busy machine runs once more by itself, and so does one whose process ended before
# it had a result (tests/unreported.py); one that fails twice fails the run. Status 1 alone says that pytest has written
# down which they are; 5 of the second try says that none is left: the process that took a dead one's place has passed it.
unit: setup
	$(BIN)/pytest -q -n $(WORKERS) --dist loadfile --no-loadscope-reorder $(ARGS) || { \
	  test $$? -eq 1 || exit 1; \
	  echo "second try, one at a time: what failed"; $(BIN)/pytest -q --last-failed --last-failed-no-failures none --second-try || test $$? -eq 5; }

long: setup ## the tests that `make test` leaves out for their time: Spark clusters, killed drivers, more of ClickHouse, Apache Kafka beside us
	$(BIN)/pytest -q -m long

fmt: setup ## format and mend what can be mended
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: setup ## every benchmark, with the machine and the ratios
	$(BIN)/python -m benchmarks $(ARGS)

# In network namespaces when we are root; otherwise without cuts.
chaos: setup system ## 15 minutes of faults on three brokers and etcd: acknowledged, lost, duplicated (ARGS="minutes seed")
	$(BIN)/python -m tests.chaos.run $(ARGS)

mutants: setup ## mutation tests of the cores, records, wire and the parallel client (ARGS="--seed 1 --count 40")
	$(BIN)/python -m tests.mutants.run $(ARGS)

docs: setup ## the documentation site, into site/; a broken link fails
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo "site/index.html"

proto: setup ## generate the gRPC code from its schema
	$(BIN)/python -m tidemill.wire.grpc.generate

clean: ## remove what the build made
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis data site

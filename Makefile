# Builds and tests a fresh checkout. `make` alone lists the targets.
PYTHON  ?= python3
VENV    := .venv
BIN     := $(VENV)/bin
STAMP   := $(VENV)/.ready
# Two processes per core, because most tests wait for a broker and not for the CPU.
WORKERS ?= $(shell echo $$(( $$(nproc) * 2 )))
ARGS    ?=
# More than a gigabyte of packages is downloaded: show the progress on a terminal.
QUIET   := $(shell test -t 2 || echo --quiet)
export PIP_DISABLE_PIP_VERSION_CHECK = 1
export UV_LINK_MODE = copy
# Keep the bytecode: brokers that tests start are ready in half the time.
export PYTHONDONTWRITEBYTECODE =

.DEFAULT_GOAL := help
.PHONY: help setup system java run test check collect fmt unit long lowest bench chaos mutants fuzz docs screenshots proto clean

help: ## list the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-11s %s\n", $$1, $$2}'

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Tidemill needs Python 3.11 or newer: make PYTHON=python3.12 setup"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@test -x $(BIN)/uv || $(BIN)/pip install --quiet 'uv>=0.8,<1'
	$(BIN)/uv pip install $(QUIET) --compile-bytecode --python $(BIN)/python --editable '.[all]' --group dev
	@touch $@

# Compile the checkout now: a Python that may not write bytecode would compile it at every start.
setup: $(STAMP) ## .venv with the package, all extras and the development tools
	@$(BIN)/python -m compileall -q src

system: ## Debian packages that the tests use (kcat, Java, postgresql)
	@.ci/system tests

# Without Java the demo still runs, without its Spark pipeline.
java: ## Java, for the demo's Spark pipeline
	@.ci/system java || echo "continuing without Java: the demo leaves out its Spark pipeline" >&2

run: setup java ## run the demo: a broker, orders, reminders and a Spark pipeline
	@$(BIN)/tidemill demo $(ARGS)

test: setup system ## format, lint, types, imports, tests: what CI runs
	@$(MAKE) --no-print-directory -j2 --output-sync=target check collect
	@$(MAKE) --no-print-directory unit

check: setup
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check --quiet .
	$(BIN)/lint-imports --no-logo
	$(BIN)/mypy

# Compiles the tests once, on the core that mypy leaves free, instead of once per process of `unit`. Errors are ignored
# here because `unit` reports them.
collect: setup
	@$(BIN)/pytest -qq --collect-only >/dev/null 2>&1 || true

# A test that fails while others run is run once more, alone. So is a test whose process ended without a result
# (tests/support/unreported.py). A test that fails twice fails the run. Only status 1 means that pytest has recorded the
# failed tests. Status 5 of the second try means that none is left: a replacement process has already passed the test.
unit: setup
	$(BIN)/pytest -q -n $(WORKERS) --dist loadfile --no-loadscope-reorder $(ARGS) || { \
	  test $$? -eq 1 || exit 1; \
	  echo "second try of the failed tests, one at a time"; $(BIN)/pytest -q --last-failed --last-failed-no-failures none --second-try || test $$? -eq 5; }

long: setup ## the slow tests that `make test` skips: Spark clusters, killed drivers, more ClickHouse, Apache Kafka, an OpenTelemetry collector
	$(BIN)/pytest -q -m long

# The environment is temporary. Old versions of typer warn about new versions of click, so warnings do not fail this run.
LOWEST_TESTS := tests/unit/servers tests/unit/client tests/unit/timelines tests/unit/wire \
  tests/fuzz/test_rpc.py tests/hostile/test_grpc_attacks.py $(wildcard tests/integration/test_timeline_*.py) tests/integration/test_topics_client.py
# They need PyArrow, PyYAML or grpcio-tools.
LOWEST_WITHOUT := --ignore tests/unit/client/kafka --ignore tests/unit/servers/grpc/test_partition_reads.py --ignore tests/unit/wire/grpc/test_generate.py \
  --deselect tests/integration/test_timeline_cli.py::test_a_pipeline_says_which_timeline_is_missing_before_it_starts_spark
lowest: setup ## the gRPC and timeline tests with the lowest supported version of every dependency
	@folder=$$(mktemp -d) && trap 'rm -rf "$$folder"' EXIT && $(PYTHON) -m venv "$$folder" && \
	$(BIN)/uv pip install $(QUIET) --python "$$folder/bin/python" --resolution lowest-direct '.[postgres]' --group test && \
	$(BIN)/uv pip list --python "$$folder/bin/python" | grep -E '^(grpcio|protobuf) ' && \
	PATH="$$folder/bin:$$PATH" "$$folder/bin/python" -m pytest -q -p no:cacheprovider -n $(WORKERS) --dist loadfile -W ignore::DeprecationWarning \
	  $(LOWEST_TESTS) $(LOWEST_WITHOUT) $(ARGS)

fmt: setup ## format, and fix what ruff can fix
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: setup ## run every benchmark and print the machine and the ratios
	$(BIN)/python -m benchmarks $(ARGS)

# Root runs it in network namespaces. Other users run it without network partitions.
chaos: setup system ## 15 minutes of faults on three brokers and etcd; counts lost and duplicated records (ARGS="minutes seed")
	$(BIN)/python -m tests.chaos.run $(ARGS)

# A crash is kept as a file in tests/fuzz/found, and `python -m tests.fuzz.run TARGET FILE` runs it again.
fuzz: setup ## hours of coverage-guided fuzzing (ARGS="--seconds 3600 [TARGET ...]")
	$(BIN)/python -m tests.fuzz.run $(ARGS)

mutants: setup ## mutation tests of the cores, records, wire and the parallel client (ARGS="--seed 1 --count 40")
	$(BIN)/python -m tests.mutants.run $(ARGS)

docs: setup ## build the documentation site in site/; a broken link fails
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo "site/index.html"

screenshots: setup system ## photograph every page of the console for docs/pictures/console
	$(BIN)/python docs/pictures/make_screenshots.py $(ARGS)

proto: setup ## generate the gRPC code from its schema
	$(BIN)/python -m tidemill.wire.grpc.generate

clean: ## delete build products
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis data site

# One way in and home: a person and CI type the same line, `make test`.
# Needs Python 3.11 or newer; the rest is installed into .venv, a Java for the Kafka of the tests included.

PYTHON ?= python3
SEEDS  ?= 10000
FAMILY ?= plain timed sleepy loose deployed failing slow refusing growing hostile lists
KILLS  ?= 200
ONLY   ?=
PEERS  ?=

BIN   := .venv/bin
READY := .venv/.ready

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup check test test-fast demo bench simulate chaos format clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' Makefile

setup: $(READY) ## Create .venv and install everything into it (PYTHON=python3.12 to choose)
	@echo '.venv is ready'

# Installed again whenever pyproject.toml changes. A .venv that is missing, broken or without pip is made anew.
$(READY): pyproject.toml
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || { \
		$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
			echo 'error: "$(PYTHON)" is not Python 3.11 or newer; run `make setup PYTHON=/path/to/python3.11`' >&2; exit 1; }; \
		$(PYTHON) -m venv .venv; }
	@echo 'installing streamkit and its tools into .venv; the first time takes a minute or two'
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

check: $(READY) ## Format, lint, types, imports and style: no broker, a few seconds
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo
	@$(BIN)/pytest -q tests/test_tidy.py tests/test_import_cycles.py

# What needs no broker runs on all cores; what kills processes on a real Kafka has the machine to itself.
test-fast: check ## The checks, and all tests that need no broker: for every change
	@$(BIN)/pytest -q -n auto --dist loadfile -m 'not kafka and not crash'

test: test-fast ## Everything CI runs: the same, then all tests with a real Kafka
	@$(BIN)/pytest -q -m 'kafka or crash'

demo: $(READY) ## Watch a pipeline survive a crash on a real Kafka
	@$(BIN)/python -m services.page_views.demo

bench: $(READY) ## Measure speed (ONLY=name for one benchmark, PEERS=names or AGAINST=checkout to compare with)
	@$(BIN)/python -m tests.benchmarks.run $(if $(ONLY),--only '$(ONLY)') $(if $(PEERS),--peers '$(PEERS)') $(if $(AGAINST),--against '$(AGAINST)')

simulate: $(READY) ## Run random histories on the in-memory broker (SEEDS=10000 of each FAMILY)
	@for family in $(FAMILY); do $(BIN)/python -m tests.simulation.run --seeds $(SEEDS) --family $$family || exit 1; done

chaos: $(READY) ## Kill workers on a real Kafka and audit the output (KILLS=200)
	@$(BIN)/python -m tests.crash.run --kills $(KILLS)

format: $(READY) ## Rewrite the code in the house format, fix what can be fixed
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

clean: ## Remove caches and build products; .venv and local state stay
	@rm -rf build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	@find . -path ./.venv -prune -o -type d -name __pycache__ -prune -exec rm -rf {} +

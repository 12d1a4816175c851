# `make` alone lists what there is. Everything happens in .venv/ and, for data, under .carbon/.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help demo dev test slow torture check golden lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(INSTALLED): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("carbon_pipeline needs Python 3.11 or newer, this is " + sys.version.split()[0]) if sys.version_info < (3, 11) else None'
	@echo "Setting up $(VENV) (about a minute, once)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $(INSTALLED)

demo: $(INSTALLED) ## sync a real database into Iceberg, verify it, query it
	@$(BIN)/carbon demo

dev: $(INSTALLED) ## open the Dagster UI on the same data, at http://127.0.0.1:3000
	@$(BIN)/dagster dev --host 127.0.0.1 --port 3000

test: $(INSTALLED) ## run the tests
	@$(BIN)/python -m pytest -q -n 2 --dist loadscope -m "not slow" carbon_pipeline_tests

slow: $(INSTALLED) ## run the tests that take long: the UI in a browser, every lie of a catalog, …
	@$(BIN)/python -m pytest -q -n 2 --dist loadscope -m slow carbon_pipeline_tests

TORTURE_MINUTES ?= 45
torture: $(INSTALLED) ## break it on purpose for TORTURE_MINUTES (default 45), real processes and simulated ones
	@$(BIN)/python -m carbon_pipeline_tests.torture --minutes $(TORTURE_MINUTES)

check: $(INSTALLED) ## lint, types and import rules
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache

golden: $(INSTALLED) ## write the golden files anew; read the diff before committing it
	@$(BIN)/python -m pytest -q carbon_pipeline_tests --write-golden -m golden

lock: ## resolve pyproject.toml into requirements.lock (needs uv)
	@uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --python-version 3.11 --extra dev \
		--custom-compile-command "make lock" pyproject.toml -o requirements.lock

clean: ## stop the embedded server and remove .venv, .carbon and caches
	@if [ -x $(BIN)/carbon ]; then $(BIN)/carbon down || true; fi
	@rm -rf $(VENV) .carbon .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis *.egg-info build .tmp_dagster_home_*

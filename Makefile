# Set-up, demo and tests from two commands: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
DEMO_ARGS ?=
BENCH_ARGS ?=

.PHONY: demo test check format bench clean

demo: $(READY)
	@$(BIN)/decaf demo $(DEMO_ARGS)

test: check
	@$(BIN)/pytest -n auto

check: $(READY)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

format: $(READY)
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

bench: $(READY)
	@$(BIN)/python -m benchmarks $(BENCH_ARGS)

# Distributions that ship Python without its venv module still have pip: virtualenv does the same job.
$(READY): pyproject.toml
	@command -v $(PYTHON) >/dev/null || { echo "decaf needs Python 3.11 or newer; set PYTHON=/path/to/python"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "decaf needs Python 3.11 or newer; set PYTHON=/path/to/python"; exit 1; }
	@test -x $(BIN)/python || { echo "creating $(VENV)"; $(PYTHON) -m venv $(VENV) 2>/dev/null || \
	  { rm -rf $(VENV); $(PYTHON) -m pip install --quiet --target $(VENV)-tool virtualenv && \
	    PYTHONPATH=$(VENV)-tool $(PYTHON) -m virtualenv --quiet $(VENV); rm -rf $(VENV)-tool; }; }
	@echo "installing decaf and its tools into $(VENV) (a minute or two the first time)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis

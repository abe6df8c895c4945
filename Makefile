# Set-up, demo and tests from two commands: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
SCALE := $(VENV)/.scale
DEMO_ARGS ?=
BENCH_ARGS ?=
DATA ?= catalogue
EXPERIMENT_ARGS ?=

.PHONY: demo test check programs format bench experiments clean

demo: $(READY)
	@$(BIN)/decaf demo $(DEMO_ARGS)

test: check programs
	@$(BIN)/pytest -n auto --dist loadgroup

# The page is tried in a real browser, shared labels in a real PostgreSQL. Where these cannot be had, their tests say so
# and are left out.
programs: $(SCALE)
	@missing=""; \
	command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null || \
	  missing="chromium"; \
	ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || command -v initdb >/dev/null || missing="$$missing postgresql"; \
	test -z "$$missing" || { \
	  run=""; [ "$$(id -u)" = 0 ] || run="sudo -n"; \
	  command -v apt-get >/dev/null && echo "installing$${missing:+ }$$missing for the tests" && \
	  $$run apt-get update -qq >/dev/null 2>&1 && \
	  DEBIAN_FRONTEND=noninteractive $$run apt-get install -qq -y --no-install-recommends $$missing >/dev/null 2>&1; } || \
	  echo "not here and not to be installed (apt-get as root is needed): $$missing; what needs it is not tested"

check: $(SCALE)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

format: $(READY)
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

bench: $(READY)
	@$(BIN)/python -m benchmarks $(BENCH_ARGS)

experiments: $(READY)
	@$(BIN)/decaf-experiments '$(DATA)' $(EXPERIMENT_ARGS)

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

# Ray and the driver of PostgreSQL, for the tests alone.
$(SCALE): $(READY)
	@echo "installing Ray and psycopg into $(VENV) for the tests"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,scale]'
	@touch $@

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis

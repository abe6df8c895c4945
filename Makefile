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
FUZZ_ARGS ?=
CRASH_ARGS ?=
SOAK_ARGS ?=
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.PHONY: demo test check programs format bench experiments fuzz crash soak versions lock audit clean

demo: $(READY)
	@$(BIN)/decaf demo $(DEMO_ARGS)

# Each file of tests stays in one process: what its tests share (a server, a cluster, a trained model) is made once.
test: check programs
	@$(BIN)/pytest -n auto --dist loadfile

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

# Damaged and hostile files; kills, full disks and files that are cut short; a server under load and abuse.
fuzz: $(READY)
	@$(BIN)/python -m tools.fuzz $(FUZZ_ARGS)

crash: $(READY)
	@$(BIN)/python -m tools.crash $(CRASH_ARGS)

soak: $(READY)
	@$(BIN)/python -m tools.soak $(SOAK_ARGS)

# A part of the tests at the lowest and at the newest versions that pyproject.toml allows, in environments of their own.
versions: $(READY)
	@$(BIN)/python tools/versions.py lowest
	@$(BIN)/python tools/versions.py newest

# The lock anew, of the newest packages that are allowed, for every system. torch and what it brings for a GPU are not in
# it: which build is right depends on the machine.
lock:
	@$(VENV)-lock/bin/uv --version >/dev/null 2>&1 || { $(PYTHON) -m venv $(VENV)-lock && $(VENV)-lock/bin/pip install --quiet uv; }
	@$(VENV)-lock/bin/uv pip compile pyproject.toml --quiet --universal --python-version 3.11 --extra dev --extra scale \
	  --generate-hashes --no-header --no-annotate --output-file $(VENV)-lock/all.lock
	@awk '/^[a-z]/ { drop = /^(torch=|triton=|cuda-|nvidia-)/ } !drop' $(VENV)-lock/all.lock > requirements.lock

# Known weaknesses of the packages in the lock; asks PyPI, or a folder of advisories (--advisories FOLDER) and a
# registry that has no pages of versions (--registry ADDRESS).
audit:
	@$(VENV)-audit/bin/python -c "import pip_audit, yaml" 2>/dev/null || { $(PYTHON) -m venv $(VENV)-audit && $(VENV)-audit/bin/pip install --quiet pip-audit pyyaml; }
	@$(VENV)-audit/bin/python tools/audit.py $(AUDIT_ARGS)

# Distributions that ship Python without its venv module still have pip: virtualenv does the same job.
$(BIN)/python:
	@command -v $(PYTHON) >/dev/null || { echo "decaf needs Python 3.11 or newer; set PYTHON=/path/to/python"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "decaf needs Python 3.11 or newer; set PYTHON=/path/to/python"; exit 1; }
	@echo "creating $(VENV)"
	@$(PYTHON) -m venv $(VENV) 2>/dev/null || \
	  { rm -rf $(VENV); $(PYTHON) -m pip install --quiet --target $(VENV)-tool virtualenv && \
	    PYTHONPATH=$(VENV)-tool $(PYTHON) -m virtualenv --quiet $(VENV); rm -rf $(VENV)-tool; }

$(READY): pyproject.toml | $(BIN)/python
	@echo "installing decaf and its tools into $(VENV) (a minute or two the first time)"
	@$(PIP) --editable '.[dev]'
	@touch $@

# The tests have the packages of the lock, by their digests; where it does not apply, the newest that are allowed. torch
# is not in it: which build is right depends on the machine. Ray and the driver of PostgreSQL are for the tests alone.
$(SCALE): pyproject.toml requirements.lock | $(BIN)/python
	@echo "installing decaf, its tools, Ray and psycopg into $(VENV) for the tests (a few minutes the first time)"
	@if $(PIP) --require-hashes --no-deps --only-binary :all: --requirement requirements.lock; then \
	  $(PIP) --no-build-isolation --editable '.[dev,scale]'; \
	else echo "the lock does not apply here; the newest packages that are allowed do"; \
	  $(PIP) --editable '.[dev,scale]'; fi
	@touch $(READY) $@

clean:
	rm -rf $(VENV) $(VENV)-audit $(VENV)-lock build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis

# Everything from nothing: `make demo` and `make test` need only python3 (3.11 or newer), pip and make.
# Another interpreter: make test PYTHON=python3.12.  What pip says: make test PIP_FLAGS=.

PYTHON ?= python3
PIP_FLAGS ?= -qq
WORKERS ?= 2

# Tests run on WORKERS processes of one thread each: torch's own threads would only wait for each other. They start
# hundreds of commands, each of which would compile every source again where Python is told to write no bytecode.
# The same hypothesis examples on every run; HYPOTHESIS_PROFILE=dev looks for new ones.
HYPOTHESIS_PROFILE ?= ci
export HYPOTHESIS_PROFILE

TORCH := torch==2.13.0
BIN := .venv/bin
# Bytecode is written when a module is first imported: compiling all 17,000 would take longer than downloading them.
PIP := $(BIN)/python -m pip --disable-pip-version-check install --no-compile $(PIP_FLAGS) --constraint constraints.txt
READY := .venv/.ready
BENCH_READY := .venv/.ready-bench
# Present only while an installation is under way: a leftover means that it was interrupted.
UNFINISHED := .venv/.unfinished

# $(READY) holds the folder it was made in: a copied or moved tree would otherwise go on testing the old place.
ifneq ($(shell cat $(READY) 2>/dev/null),$(CURDIR))
.PHONY: $(READY)
endif

.DEFAULT_GOAL := help
.PHONY: help setup demo test pytest loops quick chaos fuzz lint style types format bench clean

help:
	@echo "make demo     set up if needed, a story of three minutes that ends in verdicts and a report"
	@echo "make test     set up if needed, then lint, type-check and run every test"
	@echo "make quick    lint and the tests that break most often, in a minute and a half"
	@echo "make chaos    an hour of kills, damaged files and clusters: before a release, and after a change of the store"
	@echo "make setup    only create .venv"
	@echo "make lint     ruff, mypy and the import contracts"
	@echo "make format   let ruff rewrite the sources"
	@echo "make fuzz     read randomly changed files for MINUTES=10, and keep those that are read badly"
	@echo "make bench    measure against the rivals (installs them)"
	@echo "make clean    back to a fresh clone: remove .venv, caches and build output"

setup: $(READY)

demo: $(READY)
	@$(BIN)/python -m flipscope.demo

# mypy takes a minute of one core, compiling the loops two: side by side. Tests that found no machine code would compile
# the same loops in several processes at the same time.
test: style
	@$(MAKE) --no-print-directory -j2 types pytest

pytest: loops
	@echo "==> pytest"
	@PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal

# Rooms whose tests are cheap for what they cover, and the most sensitive files of the expensive ones.
QUICK := src README.md $(addprefix tests/,test_package.py test_typechecking.py basics data cube/test_functions.py \
  cube/test_closed_forms.py models/test_transformer.py models/test_config.py native/test_walsh.py native/test_span.py \
  flips/test_golden.py flips/test_signs.py flips/test_choice.py probes/test_sensitivity.py \
  $(addprefix lab/,test_judges.py test_rows.py test_series.py test_store.py test_study.py test_verdict.py) \
  figures/test_vegalite.py report/test_figures.py)

quick: lint
	@echo "==> pytest, the quick part"
	@PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal -m "not slow" $(QUICK)

MINUTES ?= 10

fuzz: $(READY)
	@PYTHONPATH=tests OMP_NUM_THREADS=1 $(BIN)/python -m data.fuzz --minutes $(MINUTES)

# The suite has a short round of each; here are the long ones.
CLUSTER_ROUNDS ?= 50

chaos: loops
	@echo "==> kills and damage"
	@HYPOTHESIS_PROFILE=dev OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal \
	  $(addprefix tests/lab/,test_chaos.py test_store_death.py test_store_damage.py test_store_sharing.py test_packs.py)
	@for round in $$(seq $(CLUSTER_ROUNDS)); do echo "==> clusters, round $$round of $(CLUSTER_ROUNDS)"; \
	  OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -x tests/lab/test_cluster.py tests/lab/test_slurm.py || exit 1; done

loops: $(READY)
	@echo "==> compiling loops"
	@$(BIN)/python -m tests.compile_loops

lint: style types

style: $(READY)
	@echo "==> ruff"
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check

types: $(READY)
	@echo "==> mypy"
	@$(BIN)/mypy
	@echo "==> import contracts"
	@$(BIN)/lint-imports --no-logo

format: $(READY)
	@$(BIN)/ruff check --fix
	@$(BIN)/ruff format

bench: $(BENCH_READY)
	@set -e; for file in benchmarks/[!_]*.py; do echo "==> $$file"; $(BIN)/python "$$file"; done

clean:
	rm -rf .venv build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find src tests benchmarks examples -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

$(READY): pyproject.toml constraints.txt
	@"$(PYTHON)" -c "" 2>/dev/null || { echo "error: $(PYTHON) does not run;" \
	  "install Python 3.11 or newer, or say which one to use with PYTHON=/path/to/python3" >&2; exit 1; }
	@"$(PYTHON)" -c "import sys; sys.exit(sys.version_info < (3, 11))" || { echo "error: flipscope needs Python 3.11" \
	  "or newer, and $(PYTHON) is older; say which one to use with PYTHON=/path/to/python3" >&2; exit 1; }
	@"$(PYTHON)" -c "import venv, ensurepip" 2>/dev/null || { echo "error: $(PYTHON) cannot make virtual" \
	  "environments; install its venv module (on Debian and Ubuntu the package python3-venv)" >&2; exit 1; }
	@if [ -e $(UNFINISHED) ] || [ "$$(cat $(READY) 2>/dev/null || pwd -P)" != "$(CURDIR)" ] || \
	  ! $(BIN)/python -m pip --version >/dev/null 2>&1; then \
	  echo "==> Creating .venv"; rm -rf .venv; "$(PYTHON)" -m venv .venv; fi
	@rm -f $(READY) $(BENCH_READY)
	@touch $(UNFINISHED)
	@echo "==> Installing $(TORCH) (the largest download, alone)"
	@$(PIP) $(TORCH)
	@echo "==> Installing the other packages"
	@$(PIP) setuptools
	@$(PIP) --no-build-isolation --editable '.[dev,cluster,language,onnx,tables,vision]'
	@rm -f $(UNFINISHED)
	@echo "$(CURDIR)" > $@
	@echo "==> .venv is ready"

$(BENCH_READY): $(READY)
	@echo "==> Installing the packages to measure against"
	@$(PIP) --no-build-isolation --editable '.[bench]'
	@touch $@

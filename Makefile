# Verbs: setup, demo, test, docs, soak, format, clean. Everything goes into .venv; nothing else on the machine is touched.

PYTHON ?= $(firstword $(shell command -v python3.11) $(shell command -v python3))
JOBS ?= 2
BIN := .venv/bin
RUN := $(BIN)/.installed-run
TEST := $(BIN)/.installed-test
DOCS := $(BIN)/.installed-docs

.DEFAULT_GOAL := help
.PHONY: help setup demo test docs soak format clean
.DELETE_ON_ERROR:

help:
	@echo "make setup    make .venv and install klinepred with its test tools"
	@echo "make demo     the whole job offline: simulate, train, evaluate, predict (a few minutes on two cores)"
	@echo "make test     ruff, mypy --strict, import contracts, pytest in two processes (JOBS=n for another number)"
	@echo "make docs     build docs/ into site/, which opens without a network"
	@echo "make soak     hostile files, kills of every command, full disks, ingests at once, fifty clean pipelines audited,"
	@echo "              a million damaged inputs, mutants of the code, in full counts (many hours on two cores)"
	@echo "make format   let ruff rewrite what it can"
	@echo "make clean    remove .venv, caches and the demo's workspace"
	@echo
	@echo "PYTHON=/path/to/python3 chooses the interpreter (3.11 or newer)."

setup: $(TEST)

demo: $(RUN)
	$(BIN)/klinepred run -p demo -w demo-workspace --now 2026-06-30T22:00:00Z

test: $(TEST)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest -n $(JOBS) --dist loadfile

docs: $(DOCS)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "site/index.html"

# KLINEPRED_FUZZ, KLINEPRED_KILLS, KLINEPRED_ORDEALS, KLINEPRED_ROUNDS, KLINEPRED_MUTANTS: other counts; KLINEPRED_SEED: another seed.
soak: $(TEST)
	@$(BIN)/pip install --quiet -c constraints.txt -e ".[test,fuzz]"
	KLINEPRED_SOAK=1 $(BIN)/pytest tests/fuzz tests/bars/fuzz tests/bars/kills tests/ordeal tests/bars/test_disk.py \
	  tests/audit/test_clean.py --durations=0
	$(BIN)/python -m tests.mutation --seed $${KLINEPRED_SEED:-7} --mutants $${KLINEPRED_MUTANTS:-300}

format: $(TEST)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf .venv demo-workspace build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/pip:
	@test -n "$(PYTHON)" || { echo "make: no python3 found; install Python 3.11 or pass PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "make: $(PYTHON) is older than Python 3.11; pass PYTHON=/path/to/python3.11" >&2; exit 1; }
	$(PYTHON) -m venv .venv

# A stamp is newer than what it was installed from, so a second run installs nothing.
$(RUN): pyproject.toml constraints.txt | $(BIN)/pip
	@echo "installing klinepred into .venv (some minutes the first time: torch is large)"
	@$(BIN)/pip install --quiet -c constraints.txt -e .
	@touch $@

$(TEST): pyproject.toml constraints.txt | $(BIN)/pip
	@echo "installing klinepred and its test tools into .venv (some minutes the first time: torch is large)"
	@$(BIN)/pip install --quiet -c constraints.txt -e ".[test]"
	@touch $(RUN) $@

$(DOCS): pyproject.toml constraints.txt | $(BIN)/pip
	@echo "installing the tools that build docs/ into .venv"
	@$(BIN)/pip install --quiet -c constraints.txt -e ".[docs]"
	@touch $(RUN) $@

# Everything runs in .venv, made on first use. PYTHON chooses the interpreter it is made from.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Reaches pip's isolated build environments too.
export PIP_CONSTRAINT := $(CURDIR)/constraints.txt
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: demo test check clean

demo: $(VENV)/.installed
	$(BIN)/learnpool demo

test: $(VENV)/.installed
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/python -m pytest -n 2

check: $(VENV)/.installed
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/python -m pytest -n 2 -m "not slow"

clean:
	rm -rf $(VENV) build dist src/*.egg-info runs .pytest_cache .mypy_cache .ruff_cache .hypothesis

# The kernels are built against the torch that is installed first; a change of their source builds them anew.
$(VENV)/.installed: pyproject.toml setup.py constraints.txt $(wildcard src/learnpool/kernels/cpu/*)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet torch setuptools wheel ninja numpy
	$(BIN)/pip install --quiet --no-build-isolation --editable ".[lab,dev]"
	@touch $@

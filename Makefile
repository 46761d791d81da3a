# Everything from a bare machine: Python 3.11 or newer with venv, and make.
PYTHON ?= python3
BIN := .venv/bin
INSTALL := PIP_CONSTRAINT=constraints.txt $(BIN)/python -m pip install --quiet --disable-pip-version-check

.PHONY: demo test clean

demo: .venv/run
	$(BIN)/unblemish demo

test: .venv/dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/pytest

# Each stamp stands for what is installed; it is made again only when the settings or the pins change.
.venv/made:
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "unblemish needs Python 3.11 or newer: make PYTHON=python3.11")'
	$(PYTHON) -m venv .venv
	@touch $@

.venv/run: .venv/made pyproject.toml constraints.txt
	@echo "Installing into .venv (a minute or two, once) ..."
	$(INSTALL) --editable .
	@touch $@

.venv/dev: .venv/made pyproject.toml constraints.txt
	@echo "Installing into .venv (a minute or two, once) ..."
	$(INSTALL) --editable '.[dev,tables]'
	@touch $@ .venv/run

clean:
	rm -rf .venv

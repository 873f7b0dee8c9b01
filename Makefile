# Two commands do everything on a fresh machine with Python 3.11 to 3.13 and a C++ compiler:
#   make run     a first report          make test    the tests
#   make docs    the documentation, in build/docs
#   make test-full       the full-size models' too: before a release, and where a change touches them
#   make test-torch VENV=.venv-2.15 TORCH="torch==2.15.*"        the tests that touch torch, on another torch
#   make same-as COMMIT=main         does this checkout find what that commit finds?
# Other arguments:  make run ARGS="model=bert accel=strict16"
# Another torch:    make run TORCH="torch==2.11.0"     Another Python:  make run PYTHON=python3.12
PYTHON ?= python3
TORCH ?= torch==2.13.0
ARGS ?= model=resnet18 accel=warn16
VENV := .venv
BIN := $(VENV)/bin

.PHONY: run test test-full test-slow test-torch same-as lint format docs performance constraints clean

run: $(VENV)/.installed
	$(BIN)/inductor-debug run $(ARGS)

test: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -n 2 --dist loadfile

test-full: test test-slow

test-slow: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -m slow -n 2 --dist loadfile

test-torch: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -n 2 --dist loadfile tests/stages tests/models tests/operators

# Ten frozen jobs on another commit and on this checkout: verdicts, violations, figures and digests are equal.
same-as: $(VENV)/.installed-dev
	$(BIN)/python tests/trials/same_as.py $(COMMIT)

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy docs
	$(BIN)/lint-imports

format: $(VENV)/.installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# A link, an anchor or a name that leads nowhere is an error. The reference is made anew of schemas and docstrings.
docs: $(VENV)/.installed-dev
	$(BIN)/python -m sphinx -c docs -b html -W --keep-going -n -E -q -d build/docs-doctrees . build/docs
	@echo build/docs/index.html

# The pipeline's CPU time over the bare work's, both from an empty cache.
performance: $(VENV)/.installed
	$(BIN)/python tests/performance/ratio.py

# torch is named in the same resolution as the rest, so that nothing replaces the build that was chosen.
$(VENV)/.installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet "$(TORCH)"
	$(BIN)/python -m pip install --quiet "$(TORCH)" --editable . --constraint constraints.txt
	touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet "$(TORCH)" --editable ".[dev]" --constraint constraints.txt
	touch $@

# The versions that the tests use, from the newest of all; torch, its compilers and its libraries are chosen by TORCH.
constraints:
	$(PYTHON) -m venv .venv-newest
	.venv-newest/bin/python -m pip install --quiet "$(TORCH)" --editable ".[dev]"
	.venv-newest/bin/python -m pip freeze --exclude-editable | grep -vE '^(torch|torchvision|triton|nvidia|cuda)' > constraints.txt

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache build dist *.egg-info

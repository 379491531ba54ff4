# Every target sets up what it needs: only make, python3 (>= 3.10) and its venv module are expected.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: setup demo test builds coverage check format bench clean

setup: $(STAMP)

# torch first and by exact version. From PyPI it is a CUDA build of several GB; with PIP_FIND_LINKS or PIP_INDEX_URL set to
# where CPU builds are, it is one of those.
$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[capture,hta,dev]'
	@touch $@

demo: $(STAMP)
	scripts/demo.sh $(BIN)

# A file at a time on each of two workers: files share what is slow to make, such as captures.
test: $(STAMP)
	$(BIN)/python -m pytest --numprocesses 2 --dist loadfile

# The simulated device on other builds of torch: environments of their own, 6 GB each.
builds:
	scripts/torch_builds.sh

# Apart from the tests, because counting lines makes some of them take several times as long.
coverage: $(STAMP)
	$(BIN)/python -m pytest --numprocesses 2 --dist loadfile --cov --cov-report=term

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(STAMP)
	$(BIN)/python -m tests.benchmarks

clean:
	rm -rf $(VENV) build dist *.egg-info out

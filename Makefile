# Every target sets itself up; only Python 3.11 or later must be installed. The second time is fast.
#
#   PYTHON       the Python that makes the virtual environment
#   VENV         where it stands
#   TORCH_INDEX  a package index with CPU builds of torch, if the usual one has only CUDA builds
#   TESTS        arguments for pytest; by default, every test on all cores

PYTHON ?= python3
VENV ?= .venv
TORCH_INDEX ?=
TESTS ?= -rs --numprocesses auto --dist worksteal

EXTRAS := dev,docs,evaluate,local,postgres,studio,tables
BIN := $(VENV)/$(if $(filter Windows_NT,$(OS)),Scripts,bin)
INSTALLED := $(VENV)/.installed
TOOLS := build/tools
DEMO := out/demo
DEMO_LEDGER := out/demo-ledger.sqlite
DEMO_TABLE := out/hotel_reviews.csv

.PHONY: help install demo demo-fresh test lint docs dist sbom models bench clean

help:
	@echo "make demo        synthetic hotel reviews in $(DEMO)/release, and a report on them"
	@echo "make demo-fresh  the same from the beginning, with new noise"
	@echo "make test        every test"
	@echo "make lint        style, types and import contracts"
	@echo "make docs        this documentation as a site in build/docs, with search; needs no network"
	@echo "make dist        sdist and wheel in dist/, checked, and tests run from the unpacked sdist"
	@echo "make sbom        what is installed in $(VENV), as CycloneDX, in dist/sbom.json"
	@echo "make models      download the built-in models into the cache"
	@echo "make bench       what each method costs here, and benchmarks/performance.md made of it (an hour or two)"
	@echo "make clean       remove $(VENV), the demo's results and the caches of the tools"

install: $(INSTALLED)

$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11))" || \
		{ echo "understudy needs Python 3.11 or later: make PYTHON=/path/to/python3.11 ..."; exit 1; }
	@echo "Setting up $(VENV): installing understudy and what it needs (a few minutes the first time)."
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt \
		$(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)) --editable ".[$(EXTRAS)]"
	@touch $@

models: $(INSTALLED)
	@echo "Looking for the built-in models."
	@$(BIN)/understudy models pull builtin

demo: models
	@echo "Making synthetic hotel reviews from 4,000 invented ones (if interrupted, make demo resumes)."
	@$(BIN)/python examples/make_reviews.py $(DEMO_TABLE)
	@$(BIN)/understudy ledger create --ledger $(DEMO_LEDGER)
	@$(BIN)/understudy run --config examples/demo.yaml
	@$(BIN)/python examples/show.py $(DEMO)
	@echo
	@echo "Measuring them against the table they stand in for, and writing the reports."
	@$(BIN)/understudy baseline --config examples/floor.yaml
	@$(BIN)/understudy evaluate $(DEMO_TABLE) $(DEMO) --config examples/evaluation.yaml
	@$(BIN)/understudy report $(DEMO)

demo-fresh:
	@echo "Forgetting the last demo."
	@rm -rf $(DEMO) $(DEMO)-floor $(DEMO_LEDGER) $(DEMO_LEDGER)-journal $(DEMO_TABLE)
	@$(MAKE) demo

# Bytecode is written, or every process that a test starts would compile the package again.
test: $(INSTALLED)
	@echo "Looking for the built-in models."
	@$(BIN)/understudy models pull builtin || echo "Without them the tests that need them are skipped."
	@echo "Running the tests."
	@PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest $(TESTS)

lint: $(INSTALLED)
	@echo "Checking style (ruff), types (mypy) and imports (import-linter)."
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

# A link or heading that leads nowhere is an error.
docs: $(INSTALLED)
	@echo "Building the documentation."
	@rm -rf build/docs
	@$(BIN)/python -m sphinx -c docs -b html -d build/docs-cache --quiet --fail-on-warning --keep-going . build/docs
	@echo "Open build/docs/index.html."

$(TOOLS)/.installed: .ci/tools.txt
	@$(PYTHON) -m venv $(TOOLS)
	@$(TOOLS)/bin/python -m pip install --quiet --disable-pip-version-check --requirement .ci/tools.txt
	@touch $@

# The tests of the documentation and the command line, from the unpacked sdist, against its own sources.
dist: $(INSTALLED) $(TOOLS)/.installed
	@echo "Building sdist and wheel in dist/."
	@rm -rf dist build/sdist
	@$(TOOLS)/bin/python -m build --outdir dist . >/dev/null
	@$(TOOLS)/bin/twine check --strict dist/*
	@$(TOOLS)/bin/check-wheel-contents dist/*.whl
	@echo "Running tests from the unpacked sdist."
	@mkdir -p build/sdist && tar -xzf dist/*.tar.gz -C build/sdist --strip-components 1
	@cd build/sdist && PYTHONPATH=$$PWD/src $(abspath $(BIN))/python -m pytest -p no:cacheprovider \
		tests/test_site.py tests/test_source_distribution.py tests/test_docs.py tests/cli

sbom: $(INSTALLED) $(TOOLS)/.installed
	@mkdir -p dist
	@$(TOOLS)/bin/cyclonedx-py environment --pyproject pyproject.toml --output-reproducible \
		--output-file dist/sbom.json $(BIN)/python
	@echo "dist/sbom.json"

clean:
	@echo "Removing $(VENV), $(DEMO) and the caches of the tools."
	@rm -rf $(VENV) $(DEMO) $(DEMO)-floor $(DEMO_LEDGER) $(DEMO_LEDGER)-journal $(DEMO_TABLE) \
		.mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache build dist

bench: models
	@echo "Measuring what it costs, with the machine as busy as it is (an hour or two), and making benchmarks/performance.md of it."
	@for name in $$($(BIN)/python -m benchmarks --list | cut -d' ' -f1); do \
		$(BIN)/python -m benchmarks $$name >/dev/null || exit 1; done
	@$(BIN)/python -m benchmarks --page

# Two commands: `make demo` has models read, and trains and compares some; `make test` proves the package.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/$(if $(filter Windows_NT,$(OS)),Scripts,bin)
INSTALLED := $(VENV)/.installed
# Exact versions; CONSTRAINTS=constraints-lowest.txt for the lowest that are allowed, CONSTRAINTS= for the newest.
CONSTRAINTS ?= constraints.txt
# Build dependencies obey the same pins as everything else.
export PIP_CONSTRAINT := $(addprefix $(CURDIR)/,$(CONSTRAINTS))

# Each process takes modules that stand together, so that what a module's tests share is made once, and helps at the end.
SHARED := -n 2 --dist worksteal

# Tests start the package many times; it is compiled once, also where the environment asks Python to keep nothing.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo report test test-isa test-gpu test-triton quick test-fast doctor durations lint unit docs fuzz snapshots pretrained release try-wheel system-packages install clean
.DEFAULT_GOAL := demo

# three minutes on two cores; make demo FULL=1: twelve systems, in eleven
demo: install
	$(BIN)/treelm demo --open-report $(if $(FULL),--full)

# the page of docs/, of twelve systems: what is in runs/full is not trained again
report: install
	$(BIN)/treelm demo --full
	cp runs/full/report.html docs/example-report.html

test: lint unit
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.isa avx2 avx512

# after each edit, under a minute on two cores: style, and all tests but those of tests/slow.txt; the slowest are shown
quick: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(MAKE) test-fast

# all tests but those of tests/slow.txt
test-fast: install
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest $(SHARED) -m "not slow" --durations=5

doctor: install
	$(BIN)/treelm doctor

# the whole suite, which writes tests/slow.txt: on an idle machine
durations: install
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest $(SHARED) --write-slow

# the tests that could depend on a processor's last bits, as processors with fewer instructions would run them
test-isa: install
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.isa

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --num-workers 2
	$(BIN)/lint-imports
	$(BIN)/python scripts/line_ratchet.py
	$(BIN)/python scripts/wording.py
	$(BIN)/codespell

unit: install
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest $(SHARED)

# The pictures that explain, then the site of docs/ in build/site, strictly: a dead link, a page missing from the navigation
# or a public name without a docstring stops it
docs: install
	OMP_NUM_THREADS=1 $(BIN)/python scripts/gallery.py positions memory search levels
	NO_MKDOCS_2_WARNING=1 OMP_NUM_THREADS=1 $(BIN)/python -m mkdocs build --strict
	@echo "open build/site/index.html, or, to search too: $(BIN)/python -m http.server --bind 127.0.0.1 --directory build/site"

# The tests that compute on CUDA; without a GPU they are skipped, and the reason is shown.
test-gpu: install
	CUBLAS_WORKSPACE_CONFIG=:4096:8 $(BIN)/python -m pytest -n 0 -rs -m gpu --device cuda

# The kernels in Triton (286 MB) by its interpreter, which needs no GPU
test-triton: install
	$(BIN)/pip install --quiet --disable-pip-version-check -e ".[triton]"
	TRITON_INTERPRET=1 OMP_NUM_THREADS=1 $(BIN)/python -m pytest $(SHARED) tests/models/rnng/test_fused.py

# make fuzz CASES=10000: hostile files for every reader; make fuzz READERS=conllu: for one
fuzz: install
	OMP_NUM_THREADS=1 FUZZ_CASES=$(or $(CASES),10000) $(BIN)/python -m pytest --timeout 0 tests/fuzz/test_readers.py -k "$(READERS)"

# writes flags, exports, columns and keys down as they are now: read the diff
snapshots: install
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.surface

# The models that are shipped and not here: of gum-open 47 minutes, of open-english hours each; goes on where it was stopped
pretrained: install
	$(BIN)/python benchmarks/pretrain.py --processes 2

# Builds, checks and signs what is released, in dist/; uploads nothing
release: install
	$(BIN)/pip install --quiet --disable-pip-version-check -e ".[release]"
	$(BIN)/python scripts/release.py

# Both wheels under several Pythons: the pages for beginners run in empty folders; make try-wheel PYTHONS="python3.12 python3.13"
try-wheel: install
	$(BIN)/python scripts/try_wheel.py $(or $(PYTHONS),$(PYTHON))

# On Debian and Ubuntu, what tests are skipped without: R with packages (docs/r.md), and Chromium where no such browser is
SUDO := $(if $(filter-out 0,$(shell id -u)),sudo)
system-packages:
	$(SUDO) apt-get update
	$(SUDO) apt-get install --yes --no-install-recommends r-base-core r-cran-lme4 r-cran-reticulate
	command -v chromium chromium-browser google-chrome chrome || $(SUDO) apt-get install --yes --no-install-recommends chromium

install: $(INSTALLED)

$(INSTALLED): $(CONSTRAINTS) pyproject.toml packages/treelm-english/pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "treelm needs Python 3.11 or later: make PYTHON=python3.11 ..." >&2; exit 2; }
	$(PYTHON) -m venv $(VENV) || { echo "no venv module: on Debian, apt install python3-venv" >&2; exit 2; }
	$(BIN)/pip install --quiet --disable-pip-version-check -e ".[dev,docs]" -e packages/treelm-english
	@touch $@

clean:
	rm -rf $(VENV) runs build/site

# Two commands do everything: `make demo` and `make test`. Both make .venv first, and reuse it afterwards.
VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
WORKERS ?= 2
# Every annotated shape is checked at run time here. Left out: tests of bad input, whose errors the check would pre-empt,
# and of torch.compile, which cannot look into checked functions. The compiled kernels are beyond the checker.
CHECKED_OPS := urnn.ops.explicit,urnn.ops.layout,urnn.ops.nonlinearity,urnn.ops.reference,urnn.ops.segments,urnn.ops.cpu.launch
SHAPES := tests/linalg tests/ops tests/parametrizations \
	--jaxtyping-packages=urnn.linalg,$(CHECKED_OPS),urnn.parametrizations,beartype.beartype \
	-k "not (bad or refus or message or error or named or wrong or raises or must or compile)"

.PHONY: bench bench-docs demo report test test-long test-gpu lint format typecheck shapes dist clean help

help:
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

demo: $(VENV)/.ready ## train a unitary RNN and an LSTM side by side, under three minutes on two cores
	$(BIN)/urnn demo

report: $(VENV)/.ready-dev ## one page that shows all results: report.html
	$(BIN)/urnn report results benchmarks/results --out report.html

test: $(VENV)/.ready-dev lint typecheck shapes ## lint, types, and the CPU suite
	$(BIN)/python -m pytest -q -n $(WORKERS) -m "not long and not gpu"

test-long: $(VENV)/.ready-dev ## soak tests, tens of minutes; leaves results/test-long.txt
	mkdir -p results
	$(BIN)/python -m pytest -q -n $(WORKERS) -m long -rA --no-header 2>&1 | grep -E '^(PASSED|FAILED|ERROR|SKIPPED|COUNT|[0-9]+ (passed|failed))' | tee results/test-long.txt

test-gpu: ## tests that need a CUDA device, with the python that is there
	$(PYTHON) -m pytest -q -m gpu

bench: $(VENV)/.ready-dev ## time the recurrence beside its peers on the CPU, some ten minutes
	$(BIN)/urnn bench cpu

bench-docs: $(VENV)/.ready-dev ## the same on one thread and on two, then docs/benchmarks.md from the results
	$(BIN)/urnn bench cpu --threads 1 --csv benchmarks/results/cpu-1-thread.csv
	$(BIN)/urnn bench cpu --threads 2 --csv benchmarks/results/cpu-2-threads.csv
	$(BIN)/urnn bench report

lint: $(VENV)/.ready-dev ## what pre-commit checks
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(VENV)/.ready-dev ## let ruff mend what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

typecheck: $(VENV)/.ready-dev ## mypy, strict
	$(BIN)/mypy

shapes: $(VENV)/.ready-dev ## numerical tests with every annotated shape checked at run time
	$(BIN)/python -m pytest -q -n $(WORKERS) $(SHAPES)

dist: $(VENV)/.ready-dev ## wheel and sdist in dist/
	rm -rf dist
	$(BIN)/python -m build --outdir dist .

clean: ## remove the environment and all that was built
	rm -rf $(VENV) build dist report.html .mypy_cache .pytest_cache .ruff_cache .hypothesis

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "urnn needs Python >= 3.11, found " + sys.version.split()[0])'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.ready: pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo "Installing urnn into $(VENV) (the first time takes a minute or two)"
	$(PIP) install --constraint constraints.txt --editable .
	@touch $@

$(VENV)/.ready-dev: pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo "Installing urnn and what its tests need into $(VENV)"
	$(PIP) install --constraint constraints.txt --editable '.[dev]'
	@touch $@ $(VENV)/.ready

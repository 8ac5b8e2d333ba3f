# driverwright: every target sets up what it needs by itself. See README.md.
SHELL := /bin/bash
.DELETE_ON_ERROR:
# Tests start many processes of ours: where this is set, each would compile all that it imports anew.
export PYTHONDONTWRITEBYTECODE :=

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.installed
PYTEST := $(BIN)/python -m pytest
LONG_BENCHES := bench/driver_matrix.py bench/nvidia_case.py

.PHONY: help demo test test-long unit integration e2e fuzz lint format docs manifests images release bench driver-matrix nvidia-case clean

help: ## Show this help
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

demo: $(READY) ## Run the demo on this machine with real nodes (DEMO_KEEP=1 keeps it running)
	@$(BIN)/python -m demo

test: $(READY) ## Run the tests: unit, integration, e2e
	@$(BIN)/python tools/run_tests.py

test-long: $(READY) ## Run the long tests: studies, soaks, tests of the testbed
	@$(BIN)/python tools/run_tests.py --long

unit: $(READY) ## Run the unit tests, which need only Python (a minute)
	@$(BIN)/python tools/run_tests.py --unit

integration: $(READY) ## Run the tests against a real API server, engine and registry
	@$(PYTEST) -m "(api or engine) and not long"

e2e: $(READY) ## Run the tests on real kernels in QEMU
	@$(PYTEST) -m "(kernel or cluster) and not long"

fuzz: $(READY) ## Try ten thousand hostile hosts, rules, templates and settings (about half an hour)
	@HYPOTHESIS_PROFILE=fuzz $(PYTEST) -q --timeout=7200 -k "fuzz or hostile or any_" tests/unit/nfd_worker tests/unit/feature_rules

lint: $(READY) ## Check formatting, types, import layers, dependencies, YAML, Dockerfiles, shell
	@$(BIN)/python tools/lint.py

format: $(READY) ## Format the code and apply automatic fixes
	@$(BIN)/ruff check --fix-only --quiet . ; $(BIN)/ruff format .

docs: $(READY) ## Write docs/reasons.md from the table of reasons
	@$(BIN)/python -m tests.reasons_page

manifests: $(READY) ## Render deploy/ from the Helm chart
	@$(BIN)/python -m tools.manifests

images: $(READY) ## Build and push the programs' images: make images REGISTRY=host[:port][/path]
	@$(BIN)/python -m tools.product_images --registry "$${REGISTRY:?say where to push to: make images REGISTRY=host/path}" \
		$(if $(TAG),--tag "$(TAG)")

release: $(READY) ## Make all files of a release in build/release; nothing is pushed (ALLOW_DIRTY=1: also of changed files)
	@$(BIN)/python -m tools.release $(if $(filter-out 0,$(ALLOW_DIRTY)),--allow-dirty)

bench: $(READY) ## Run the benchmarks; they print ratios
	@set -e; for file in $(filter-out $(LONG_BENCHES) bench/__init__.py,$(wildcard bench/*.py)); do \
		echo "== $$file"; $(BIN)/python "$$file"; done

driver-matrix: $(READY) ## Build and load every real driver on every kernel in the archives (hours; resumes where it stopped)
	@$(BIN)/python bench/driver_matrix.py $(or $(MATRIX),--drivers all --kernels all)

nvidia-case: $(READY) ## NVIDIA's open modules and the kernel update that they do not compile for, reported before a reboot (long)
	@$(BIN)/python bench/nvidia_case.py $(NVIDIA)

clean: ## Remove build outputs (the cache in ~/.cache/driverwright stays)
	@rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

$(READY): pyproject.toml tools/set_up.sh
	@PYTHON="$(PYTHON)" VENV="$(VENV)" bash tools/set_up.sh
	@touch $@

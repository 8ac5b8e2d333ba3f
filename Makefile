# driverwright: every target sets up what it needs by itself. See README.md.
SHELL := /bin/bash
.DELETE_ON_ERROR:
# Tests start many processes of ours: where this is set, each would compile all that it imports anew.
export PYTHONDONTWRITEBYTECODE :=

# Some targets run in the machine tree (tools/machine) only: elsewhere they go in. A demo on a cluster of the user's own stays outside.
TREE := $(wildcard /etc/driverwright-machine/os-release)
ifdef TREE
override PYTHON := /usr/bin/python3
override VENV := .venv-machine
else
PYTHON ?= python3
VENV := .venv
endif
BIN := $(VENV)/bin
READY := $(VENV)/.installed
IN_TREE := $(if $(TREE),$(READY))
in_tree = @$(if $(TREE),$(1),tools/machine make --no-print-directory $@)
PYTEST := $(BIN)/python -m pytest
LONG_BENCHES := bench/driver_matrix.py bench/nvidia_case.py

.PHONY: help venv demo test test-long test-slice unit pytest integration e2e fuzz lint format docs records manifests images release bench driver-matrix nvidia-case clean

help: ## Show this help
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

demo: $(if $(DEMO_KUBECONFIG),$(READY),$(IN_TREE)) ## Run the demo on this machine with real nodes (DEMO_KEEP=1 keeps it running)
	$(if $(DEMO_KUBECONFIG),@$(BIN)/python -m demo,$(call in_tree,$(BIN)/python -m demo))

test: $(IN_TREE) ## Run the tests: unit, integration, e2e
	$(call in_tree,$(BIN)/python tools/run_tests.py)

test-long: $(IN_TREE) ## Run all long tests, a slice after the other: studies, soaks, tests of the testbed (hours)
	$(call in_tree,$(BIN)/python tools/run_tests.py --test-long)

test-slice: $(IN_TREE) ## Run the slice of the long tests whose turn it is, or the one of SLICE=waves: see tests/README.md
	$(call in_tree,$(BIN)/python tools/run_tests.py --test-slice $(if $(SLICE),--slice $(SLICE)))

unit: $(READY) ## Run the unit tests, which need only Python (a minute)
	@$(BIN)/python tools/run_tests.py --unit

pytest: $(IN_TREE) ## Run some of the tests: make pytest TESTS="tests/engine/test_registry.py -k password"
	$(call in_tree,$(PYTEST) $(TESTS))

integration: $(IN_TREE) ## Run the tests against a real API server, engine and registry
	$(call in_tree,$(PYTEST) -m "(api or engine) and not long")

e2e: $(IN_TREE) ## Run the tests on real kernels in QEMU
	$(call in_tree,$(PYTEST) -m "(kernel or cluster) and not long")

fuzz: $(READY) ## Try ten thousand hostile hosts, rules, templates and settings (about half an hour)
	@HYPOTHESIS_PROFILE=fuzz $(PYTEST) -q --timeout=7200 -k "fuzz or hostile or any_" tests/unit/nfd_worker tests/unit/feature_rules

lint: $(READY) ## Check formatting, types, import layers, dependencies, YAML, Dockerfiles, shell
	@$(BIN)/python tools/lint.py

format: $(READY) ## Format the code and apply automatic fixes
	@$(BIN)/ruff check --fix-only --quiet . ; $(BIN)/ruff format .

records: $(READY) ## Take what the last test run (make test, make test-slice) ran on, and write the tables of what was tested
	@$(BIN)/python -m tests.records_page

docs: $(READY) ## Write docs/reasons.md, docs/settings.md, and fields and keys in docs/drivercontainer.md from their tables
	@$(BIN)/python -m tests.reasons_page
	@$(BIN)/python -m tests.settings_page
	@$(BIN)/python -m tests.fields_page
	@$(BIN)/python -m tests.node_keys_page

manifests: $(READY) ## Render deploy/ from the Helm chart
	@$(BIN)/python -m tools.manifests

images: $(READY) ## Build and push the programs' images: make images REGISTRY=host[:port][/path]
	@$(BIN)/python -m tools.product_images --registry "$${REGISTRY:?say where to push to: make images REGISTRY=host/path}" \
		$(if $(TAG),--tag "$(TAG)")

release: $(READY) ## Make all files of a release in build/release; nothing is pushed (ALLOW_DIRTY=1: also of changed files)
	@$(BIN)/python -m tools.release $(if $(filter-out 0,$(ALLOW_DIRTY)),--allow-dirty)

bench: $(IN_TREE) ## Run the benchmarks; they print ratios
	$(call in_tree,set -e; for file in $(filter-out $(LONG_BENCHES) bench/__init__.py,$(wildcard bench/*.py)); do \
		echo "== $$file"; $(BIN)/python "$$file"; done)

driver-matrix: $(IN_TREE) ## Build and load every real driver on every kernel in the archives (hours; resumes where it stopped)
	$(call in_tree,$(BIN)/python bench/driver_matrix.py $(or $(MATRIX),--drivers all --kernels all))

nvidia-case: $(IN_TREE) ## NVIDIA's open modules and the kernel update that they do not compile for, reported before a reboot (long)
	$(call in_tree,$(BIN)/python bench/nvidia_case.py $(NVIDIA))

venv: $(READY) ## Make the virtual environment; tools/machine make venv makes that of the tree

clean: ## Remove build outputs (the cache in ~/.cache/driverwright stays)
	@rm -rf .venv .venv-machine build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

$(READY): pyproject.toml tools/set_up.sh
	@PYTHON="$(PYTHON)" VENV="$(VENV)" bash tools/set_up.sh
	@touch $@

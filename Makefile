# Every target sets up what it needs: .venv, the packages, the real Kubernetes.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help run test test-all coverage lint mutate bench bench-regression kubernetes generate setup test-node test-images

PYTHON ?= python3
SANDBOX ?=
ARGS ?=
BASE ?=
CASES ?=
ROUNDS ?=
# Tests run in a process per core, those of a file in one of them. PARALLEL= means one process, in which breakpoints work.
PARALLEL ?= -n auto --dist loadgroup --no-loadscope-reorder
export PYTHON
# The tests start Python a thousand times: without bytecode files each start would compile everything anew.
unexport PYTHONDONTWRITEBYTECODE

help:  ## Show the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

run: ## Run the digits example on the embedded cluster (SANDBOX=plain for the weakest sandbox)
	@tools/run-example $(if $(SANDBOX),--sandbox $(SANDBOX))

test: setup kubernetes ## Run all tests, also those on a real kube-apiserver (ARGS=... for pytest)
	@.venv/bin/pytest $(PARALLEL) $(ARGS)

test-all: kubernetes ## Run all tests with forty times as many generated examples, all kills, pauses and outages, and all frameworks
	@tools/setup dev torch tensorflow mpi jax xgboost paddle horovod
	@HYPOTHESIS_PROFILE=all .venv/bin/pytest $(PARALLEL) --timeout 600 $(ARGS)

test-node: setup kubernetes ## Run tests/node_behaviour on a real kubelet and on the embedded node; needs root and Debian's containerd (ARGS=... for pytest)
	@tools/build-node >/dev/null
	@.venv/bin/pytest tests/node_behaviour --node=kubelet --node=overlay --node=plain $(ARGS)

test-images: setup kubernetes ## Build, exchange and run images with Debian's buildah, podman, skopeo and mmdebstrap; needs root (ARGS=... for pytest)
	@tools/install-image-tools >/dev/null
	@TRAINWRIGHT_IMAGE_TOOLS=1 .venv/bin/pytest -m images $(ARGS)

# The decisions: what a job becomes, who may do what, what is stored, what a container's status is. In the supervisor these
# are the modules without I/O, each with a test file of its name.
SUPERVISOR := $(addprefix containers/,container_status host_paths pacing termination) lifecycle/probe_state \
  $(addprefix network/,listening_ports pod_addresses)
APISERVER := $(addprefix cluster/apiserver/,access writes)
ADMISSION := $(addprefix cluster/apiserver/admission/,plugins plugin_chain)
COVERED := api engine $(APISERVER) $(ADMISSION) $(addprefix cluster/node/supervisor/,$(SUPERVISOR))
COVERING := tests/api tests/engine $(addprefix tests/,$(APISERVER)) tests/cluster/apiserver/test_objects.py \
  $(addprefix tests/cluster/apiserver/admission/,plugins test_plugin_chain.py) \
  $(foreach module,$(SUPERVISOR),tests/cluster/node/supervisor/$(dir $(module))test_$(notdir $(module)).py)

coverage: setup ## Fail unless the tests cover every branch of api, engine, the API server's access, admission plugins and writes, and the supervisor's decisions
	@.venv/bin/pytest -q -m "not apiserver" $(COVERING) $(foreach module,$(subst /,.,$(COVERED)),--cov=trainwright.$(module)) \
	  --cov-branch --cov-report=term-missing:skip-covered --cov-fail-under=100

lint: setup ## Check style, types and import contracts
	@.venv/bin/ruff check
	@.venv/bin/ruff format --check
	@.venv/bin/mypy
	@.venv/bin/lint-imports --no-cache

mutate: setup ## Change the engine in a thousand small ways and list the changes that fail no test (ARGS=limits, BASE=REV for less)
	@.venv/bin/python tools/mutate.py $(if $(BASE),--changed-since $(BASE)) $(ARGS)

bench: setup kubernetes ## Print speed and memory as ratios to peers that are measured in the same run
	@.venv/bin/python -m benchmarks

bench-regression: setup kubernetes ## Compare the operator with an earlier revision of it, BASE=REV (CASES=200x8 ROUNDS=1 for less, ARGS=--together on a busy machine)
	@.venv/bin/python -m benchmarks.operator.regression --base "$(or $(BASE),$(error BASE is missing: the revision to compare with, such as BASE=main))" \
	  $(if $(CASES),--scenario $(CASES)) $(if $(ROUNDS),--rounds $(ROUNDS)) $(ARGS)

kubernetes: ## Build the real kube-apiserver, etcd, kubectl, Helm, a registry and the Go training-operator once, for tests and benchmarks
	@tools/build-kubernetes >/dev/null
	@tools/build-helm >/dev/null
	@tools/build-registry >/dev/null
	@tools/fetch-api-schemas >/dev/null
	@tools/fetch-pod-security-cases >/dev/null
	@tools/build-peers >/dev/null

generate: setup ## Write all generated files: reference pages, chart and manifests
	@.venv/bin/python tools/operator_rbac.py --write
	@.venv/bin/python tools/command_line_reference.py > docs/reference/command-line.md
	@.venv/bin/python tools/job_reference.py
	@.venv/bin/python tools/chart/generate.py
	@.venv/bin/python tools/chart/manifests.py

setup:
	@tools/setup dev torch tensorflow mpi

# Every target sets up what it needs by itself: .venv, the packages, the real Kubernetes.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help run test test-all coverage lint mutate bench bench-regression kubernetes setup

PYTHON ?= python3
SANDBOX ?=
ARGS ?=
BASE ?=
CASES ?=
ROUNDS ?=
export PYTHON

help:  ## Show the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

run: ## Train the handwritten digits on the embedded cluster (SANDBOX=plain for the weakest sandbox)
	@tools/run-example $(if $(SANDBOX),--sandbox $(SANDBOX))

test: setup kubernetes ## Run the whole test suite, against a real kube-apiserver too (ARGS=... for pytest)
	@.venv/bin/pytest $(ARGS)

test-all: setup kubernetes ## Like test, with properties explored forty times further and all kills, pauses and outages
	@HYPOTHESIS_PROFILE=all .venv/bin/pytest --timeout 600 $(ARGS)

coverage: setup ## Fail unless the tests of api and engine reach every branch of them
	@.venv/bin/pytest -q tests/api tests/engine --cov=trainwright.api --cov=trainwright.engine --cov-branch \
	  --cov-report=term-missing:skip-covered --cov-fail-under=100

lint: setup ## Check style, types and import rules
	@.venv/bin/ruff check
	@.venv/bin/ruff format --check
	@.venv/bin/mypy
	@.venv/bin/lint-imports --no-cache

mutate: setup ## Break the policies in a thousand small ways and list what no test notices (half an hour; ARGS=limits for one)
	@.venv/bin/python tools/mutate.py $(ARGS)

bench: setup kubernetes ## Print speed and memory as ratios against peers, measured in one run
	@.venv/bin/python -m benchmarks

bench-regression: setup kubernetes ## Compare the operator with its earlier revision BASE=REV (CASES=200x8 ROUNDS=1 for less)
	@.venv/bin/python -m benchmarks.operator_regression --base "$(or $(BASE),$(error BASE is missing: the revision to compare with, such as BASE=main))" \
	  $(if $(CASES),--scenario $(CASES)) $(if $(ROUNDS),--rounds $(ROUNDS))

kubernetes: ## Build the real kube-apiserver, etcd, kubectl and Go training-operator for the tests, once
	@tools/build-kubernetes >/dev/null
	@tools/build-peers >/dev/null

setup:
	@tools/setup dev torch

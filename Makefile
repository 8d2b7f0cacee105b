# Every task starts from a fresh clone: it makes .venv, installs what is locked, and goes. Later runs skip what is done.

SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help setup demo ui test check bench drill lock clean chromium

PORT ?= 3000
ONLY ?=
SEED ?=
TESTS ?=
# The first of these that is Python 3.11 or 3.12.
PYTHON ?= $(shell for name in python3.11 python3.12 python3; do \
	$$name -c 'import sys; sys.exit(sys.version_info[:2] not in ((3, 11), (3, 12)))' 2>/dev/null && echo $$name && break; done)
GADS := .venv/bin/gads

help: ## list the tasks
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: .venv/installed ## make this machine ready: .venv, Java, the Delta JARs, the database
	@$(GADS) setup

demo: setup ## publish a week of three emulated accounts through Dagster
	@$(GADS) demo

ui: setup ## open Dagster's page on the same data (PORT=3000)
	@$(GADS) ui --port $(PORT)

test: setup chromium ## run every test, two files at a time, whole flows first (TESTS=path for some)
	@.venv/bin/python -m pytest $(or $(TESTS),--numprocesses 2 --dist loadfile --no-loadscope-reorder)

check: .venv/installed ## lint, format, types, import order
	@.venv/bin/ruff check
	@.venv/bin/ruff format --check
	@.venv/bin/mypy
	@.venv/bin/lint-imports --config setup.cfg

bench: setup ## measure against the named peers; writes benchmarks/results.json (ONLY=name for one)
	@.venv/bin/python -m benchmarks $(if $(ONLY),--only $(ONLY))

drill: setup ## kill the demo, then loaders under readers, and count the damage (ONLY=demo, ONLY=publishing; SEED=1)
	@.venv/bin/python -m gads_assets_tests.drills $(if $(ONLY),--only $(ONLY)) $(if $(SEED),--seed $(SEED))

lock: ## pin every dependency again, after pyproject.toml changed
	@tools=$$(mktemp -d) && trap 'rm -rf "$$tools"' EXIT && $(PYTHON) -m venv "$$tools" && \
	"$$tools/bin/python" -m pip install --quiet --disable-pip-version-check uv && \
	"$$tools/bin/uv" pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
		--no-header --no-annotate --no-strip-extras --extra dev pyproject.toml --output-file requirements.lock

clean: ## remove .venv and .gads
	@if [ -x $(GADS) ]; then env -u GADS_DATABASE_URL GADS_HOME="$(CURDIR)/.gads" $(GADS) db stop; fi
	@rm -rf .venv .gads

.venv/installed: requirements.lock pyproject.toml
	@if [ -z "$(PYTHON)" ]; then echo "make: Python 3.11 or 3.12 was not found; install one, or name it: make PYTHON=/path/to/python3.11" >&2; exit 1; fi
	@echo "Installing Python packages into .venv (once; a minute or two)"
	@$(PYTHON) -m venv .venv || { echo "make: $(PYTHON) has no venv module; on Debian: apt-get install python3-venv" >&2; exit 1; }
	@.venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement requirements.lock
	@.venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

chromium:
	@if ! command -v chromium >/dev/null; then \
		if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
			echo "Installing Chromium for the browser tests"; \
			apt-get -qq update >/dev/null && DEBIAN_FRONTEND=noninteractive apt-get -qq install --yes chromium >/dev/null 2>&1; \
		fi; \
		command -v chromium >/dev/null || { echo "make: the browser tests need Chromium; on Debian: apt-get install chromium" >&2; exit 1; }; \
	fi

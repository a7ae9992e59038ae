# What `make` alone prints. Needs python3 >= 3.11 with venv; everything else goes into .venv.
PYTHON ?= python3
PY := .venv/bin/python

.PHONY: help demo test lint bench accuracy nightly docs lock clean
.DEFAULT_GOAL := help

help:
	@echo "make demo      see it work, in a few seconds (the first time installs into .venv: about a minute)"
	@echo "make test      the tests, some minutes"
	@echo "make lint      style, types, layers"
	@echo "make bench     how fast it is"
	@echo "make accuracy  how often it is right about generated incidents; writes docs/accuracy.md"
	@echo "make nightly   what is too long for every run"

demo: .venv/installed
	@$(PY) -m ingero_mcp.cli.main demo

test: .venv/installed
	$(PY) -m pytest -m "not nightly"

lint: .venv/installed
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
	$(PY) -m pytest -q tests/test_architecture.py

bench: .venv/installed
	$(PY) -m bench

accuracy: .venv/installed
	$(PY) -m bench.accuracy --write

nightly: .venv/installed
	$(PY) -m pytest -m nightly -s

# The project itself is linked in by a path relative to the environment, not installed: that works in any folder,
# whatever its name (setuptools takes a $ in it for a variable), and goes on working when the folder is moved.
.venv/installed: requirements.lock Makefile
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "ingero needs Python 3.11 or newer; run: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || \
	  { echo "ingero needs the venv module of Python; on Debian or Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	@echo "installing into .venv ..."
	@$(PYTHON) -m venv .venv
	@$(PY) -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@$(PY) scripts/link_into_venv.py
	@touch $@

docs: .venv/installed
	$(PY) scripts/write_schema_page.py

# Re-resolve every dependency for all platforms; needs uv on the PATH.
lock:
	uv pip compile --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
	  --no-emit-index-url --no-emit-find-links --group dev pyproject.toml --output-file requirements.lock

clean:
	rm -rf .venv

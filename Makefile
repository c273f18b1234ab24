# Every target brings what it needs: `make` in a fresh clone needs Python 3.11 with venv, and nothing else.
PYTHON3 ?= python3
BIN := .venv/bin
MINUTES ?= 5
HOURS ?= 0.1
INSTALLED := .venv/installed
TOOLS := build/tools
CLEAN := build/release
VERSION = $(shell sed -n 's/^VERSION = "\(.*\)"/\1/p' brokerha/model/__init__.py)
LOCKED = $(TOOLS)/bin/uv pip compile --python-version 3.11 --python-platform linux --generate-hashes --no-emit-index-url --custom-compile-command 'make lock'

.DEFAULT_GOAL := help
.PHONY: help venv demo test test-fast campaigns nemesis docs reference lint format simulate bench lock release clean

help:       ## this list
	@sed -n 's/^\([a-z-]*\): *[a-z$$()A-Z-]* *##/\1\t/p' $(MAKEFILE_LIST) | expand -t 12

venv: $(INSTALLED) ## the virtual environment in .venv, with everything that development needs

$(INSTALLED): pyproject.toml
	$(PYTHON3) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "brokerha needs Python 3.11 or later")'
	test -x $(BIN)/python || $(PYTHON3) -m venv .venv
	$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[dev]'
	touch $@

demo: venv ## a whole cluster in one process, with failures, and a table that shows that all copies agree
	$(BIN)/brokerha demo

test: venv ## all checks and tests, part by part, with a summary of what was covered
	$(BIN)/python -m tests.support.all_parts

test-fast: venv ## rules, and the tests that need neither a broker nor more than seconds
	$(BIN)/python -m tests.support.all_parts rules cores

campaigns: venv ## the long forms of tests that run in a short form each time (two hours)
	$(BIN)/python -m tests.support.all_parts campaigns

docs: venv ## the documentation as a site, build/site/index.html; searched when `mkdocs serve` shows it
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

reference: venv ## the pages of docs/reference that are made from the code
	$(BIN)/python -m tests.reference

nemesis: venv ## HOURS=0.1 SEED=7 of every fault over everything that is done with a cluster, and one page of what came of it
	$(BIN)/python -m tests.system.nemesis --hours $(HOURS) $(if $(SEED),--seed $(SEED))

lint: venv ## ruff, mypy and the import contracts
	$(BIN)/python -m tests.support.all_parts rules

format: venv ## rewrites the code in the house style
	$(BIN)/ruff format .

simulate: venv ## MINUTES=5 of simulated clusters with fresh seeds
	$(BIN)/python -m tests.simulator --minutes $(MINUTES)

bench: venv ## load and latency over a private RabbitMQ
	$(BIN)/python -m tests.support.broker_source run -- sh -c '$(BIN)/python -m tests.bench --broker "$$BROKERHA_TEST_AMQP_URL"'

$(TOOLS)/installed: Makefile
	$(PYTHON3) -m venv $(TOOLS)
	$(TOOLS)/bin/python -m pip install -q --disable-pip-version-check 'uv~=0.13.0' 'cyclonedx-bom~=7.5'
	touch $@

lock: $(TOOLS)/installed ## versions and hashes of what the image is made from, in docker/*.lock; UPGRADE=--upgrade takes the latest
	$(LOCKED) $(UPGRADE) -o docker/requirements.lock pyproject.toml
	sed -n '/^\[build-system\]/,/^$$/s/^requires = \["\(.*\)"\]/\1/p' pyproject.toml | $(LOCKED) $(UPGRADE) -o docker/build.lock -

release: $(TOOLS)/installed ## dist: sdist, wheel, SBOM and hashes; the same bytes for the same commit
	@git diff HEAD || { echo 'commit first: what is released has a name in git'; exit 1; }
	rm -rf $(CLEAN) dist
	$(TOOLS)/bin/uv venv -q -p $(PYTHON3) $(CLEAN)/build
	$(TOOLS)/bin/uv pip install -q -p $(CLEAN)/build --require-hashes -r docker/build.lock
	SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) $(CLEAN)/build/bin/python -m hatchling build -d dist
	$(TOOLS)/bin/uv venv -q -p $(PYTHON3) $(CLEAN)/run
	$(TOOLS)/bin/uv pip install -q -p $(CLEAN)/run --require-hashes -r docker/requirements.lock
	$(TOOLS)/bin/uv pip install -q -p $(CLEAN)/run --no-deps --no-index dist/brokerha-$(VERSION)-py3-none-any.whl
	test "$$($(CLEAN)/run/bin/brokerha --version)" = "brokerha $(VERSION)"
	$(TOOLS)/bin/cyclonedx-py environment --pyproject pyproject.toml --mc-type application --output-reproducible -o dist/brokerha-$(VERSION).cdx.json $(CLEAN)/run
	cd dist && sha256sum brokerha-* > SHA256SUMS

clean: venv-clean
	rm -rf build dist .coverage .coverage.* .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

venv-clean: ## only the virtual environment
	rm -rf .venv

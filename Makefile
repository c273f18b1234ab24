# Every target brings what it needs: `make` in a fresh clone needs Python 3.11 with venv, and nothing else.
PYTHON3 ?= python3
BIN := .venv/bin
MINUTES ?= 5
INSTALLED := .venv/installed

.DEFAULT_GOAL := help
.PHONY: help venv demo test test-fast campaigns docs lint format simulate bench clean

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
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

lint: venv ## ruff, mypy and the import contracts
	$(BIN)/python -m tests.support.all_parts rules

format: venv ## rewrites the code in the house style
	$(BIN)/ruff format .

simulate: venv ## MINUTES=5 of simulated clusters with fresh seeds
	$(BIN)/brokerha simulate --minutes $(MINUTES)

bench: venv ## load and latency over a private RabbitMQ
	$(BIN)/python -m tests.support.broker_source run -- sh -c '$(BIN)/brokerha bench --broker "$$BROKERHA_TEST_AMQP_URL"'

clean: venv-clean
	rm -rf build dist .coverage .coverage.* .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

venv-clean: ## only the virtual environment
	rm -rf .venv

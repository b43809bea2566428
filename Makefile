# gputop: everything a developer runs. `make help` lists it.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin

.DEFAULT_GOAL := help
# every test on a terminal starts the program anew: compiling it each time is a third of the suite
unexport PYTHONDONTWRITEBYTECODE

$(BIN)/gputop: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet --editable .
	touch $@

$(VENV)/test: $(BIN)/gputop
	$(BIN)/python -m pip install --quiet --group test
	touch $@

$(VENV)/dev: $(VENV)/test
	$(BIN)/python -m pip install --quiet --group dev
	touch $@

run: $(BIN)/gputop  ## set up and open the monitor on this machine
	$(BIN)/gputop

demo: $(BIN)/gputop  ## the monitor on a simulated server with much to say
	$(BIN)/gputop demo showcase

check: $(VENV)/test  ## lint, format and types only
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --num-workers auto

# --faults=: without the "=" pytest takes the file for the place of the tests
# tests.again: the few tests that fail are run once more by themselves, and are named either way
PYTEST := $(BIN)/python -m tests.again --faults=$(VENV)/faults

test: check  ## lint, types and every test
	rm -f $(VENV)/faults
	$(PYTEST) -n 4 --dist worksteal --durations 20 -m "not jobs and not alone"
	$(PYTEST) -n 2 --dist loadgroup -m jobs
	$(PYTEST) -m alone

golden: $(VENV)/test  ## write the golden files anew; read the diff before committing
	$(BIN)/python -m pytest --golden

bench: $(VENV)/dev  ## cost beside nvitop and htop, in one run
	$(BIN)/python -m tests.bench

bench-attach: $(VENV)/test  ## what it costs a training process to be looked into
	$(BIN)/python -m tests.bench.attach

screenshots: $(VENV)/test  ## draw screenshots/ anew
	$(BIN)/python -m tests.screenshots

completions: $(VENV)/test  ## write the shell completions anew from the command line's declaration
	for shell in bash zsh tcsh; do \
	  $(BIN)/python -m shtab --shell $$shell gputop.cli.parser > $(VENV)/completion && \
	  cp $(VENV)/completion gputop/completions/gputop.$$shell || exit 1; done

man: $(VENV)/test  ## write the man page again from the command line's declaration
	$(BIN)/python -m tests.man_page > $(VENV)/man && cp $(VENV)/man gputop/docs/sites/gputop.1

score: $(VENV)/test  ## how often the diagnosis is right: labelled runs, disturbed; then real processes, for two and a half hours
	$(BIN)/python -m tests.score --land
	$(BIN)/python -m tests.score --tier real --land

gpu-check: $(VENV)/test  ## on a machine with a GPU: what the driver really answers, and what it costs
	$(BIN)/python -m tests.gpu_check

clean:  ## remove what was built
	rm -rf $(VENV) dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis

help:  ## this list
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# the launcher is a file; everything else is a verb
.PHONY: run demo check test golden bench bench-attach score screenshots completions man gpu-check clean help

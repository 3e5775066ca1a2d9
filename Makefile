# All targets run in .venv through scripts/run; `make` alone lists them. Paths stay relative, so a clone may
# live anywhere, in a folder with spaces too.
.DEFAULT_GOAL := help
.PHONY: help setup environment classes jar demo test test-fast lint bench peers chaos kafka fuzz mutants soak wheel lock clean

# More arguments for the command behind a target: make test ARGS="-k backup -x"
ARGS ?=
# Seed of whatever is random in chaos and fuzz: another one each time, printed, or yours: make chaos SEED=7
ifndef SEED
SEED := $(shell od -An -N3 -tu4 /dev/urandom | tr -d ' ')
endif
# A particular Python to build .venv with: make setup PYTHON=python3.12
PYTHON ?=
export PYTHON

RUN := scripts/run

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-10s %s\n", $$1, $$2} \
		END{print "  ARGS=\"...\" adds arguments to the command of a target"}' Makefile

setup: ## build .venv: locked packages, this project, a Java if there is none
	@scripts/setup
	@$(JAR)

# What the other targets ask for first: the same, but silent when there is nothing to do.
environment:
	@scripts/setup --quiet

# Spark's classes as Java keeps them ready: the JVMs that tests start are up in half the time.
classes: environment
	@$(RUN) python -m tests.class_archive

# The state store of tether.sql, compiled where its sources have changed; needs no more than PySpark has.
JAR = $(RUN) python -c "from tether.sql.jar import jar_path; jar_path()"
jar: environment
	@$(JAR)

demo: environment jar ## see why a bound: one stream beside Spark's own state store, both killed
	@$(RUN) tether demo $(ARGS)

test: environment jar classes ## run the whole test suite
	@PYTHONHASHSEED=0 $(RUN) python -m pytest -n 2 --dist loadfile --no-loadscope-reorder $(ARGS)

test-fast: environment ## run the tests that need neither Spark nor Java
	@$(RUN) python -m pytest -m "not spark and not cluster and not chaos" $(ARGS)

lint: environment ## check style, types and which package may import which
	$(RUN) ruff check .
	$(RUN) ruff format --check .
	$(RUN) mypy
	$(RUN) lint-imports

bench: environment jar ## measure all, write the report: make bench ARGS="NAME --quick" for one
	@$(RUN) tether bench $(or $(ARGS),all --resume)

# What the benchmarks compare with. A peer that cannot be installed here is left out of them with a line that
# says so; Flink and Bytewax pin other versions of common packages, so each gets an environment of its own.
PEER = $(RUN) uv venv --quiet --clear .venv-$(1) --python .venv/bin/python && \
	$(RUN) uv pip install --quiet --python .venv-$(1)/bin/python --group $(1) $(ARGS) || \
	echo "peers: $(1) could not be installed; benchmarks leave it out" >&2
peers: environment ## install what the benchmarks compare with: Polars, DuckDB, Flink, Bytewax
	@$(RUN) uv pip install --quiet --python .venv/bin/python --group peers $(ARGS) || \
		echo "peers: Polars or DuckDB could not be installed; benchmarks leave it out" >&2
	@$(call PEER,flink)
	@$(call PEER,bytewax)

# Goes on where the last run on this commit stopped; make chaos ARGS=--again begins again.
chaos: environment jar classes ## kill real processes, in the long form of those tests too
	@echo "chaos: seed $(SEED); the same again with SEED=$(SEED)"
	@TETHER_LONG=1 TETHER_SEED=$(SEED) $(RUN) python -m pytest -m chaos -v \
		--hypothesis-profile=fresh --hypothesis-seed=$(SEED) $(ARGS)

kafka: environment classes ## the Kafka example, with a broker of its own that is killed and comes back
	@$(RUN) python examples/kafka_counts.py $(ARGS)

fuzz: environment ## random programs under random failures, judged: make fuzz ARGS="--minutes 10"
	@$(RUN) python -m tether.testing.fuzz $(ARGS)

mutants: environment ## plant faults, one at a time: does a test notice? make mutants ARGS=--quick
	@$(RUN) python -m mutants $(ARGS)

soak: environment ## watch a stream under random failures: make soak ARGS="--minutes 30"
	@$(RUN) python -m bench.soak $(ARGS)

wheel: environment jar ## build the wheel, with the state store's jar in it
	@$(RUN) uv build --wheel --no-build-isolation $(ARGS)

# Pins with hashes in pip's own format, not uv.lock: that one writes the address of the package index of whoever
# made it into every line, and could then be used only where that index is reached. These say what, not whence.
# Existing pins are kept; make lock ARGS=--upgrade takes the newest that pyproject.toml allows.
COMPILE = $(RUN) uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--custom-compile-command "make lock" $(ARGS)
EXTRAS := --extra spark --extra cli --extra s3 --extra ui
# What only tests and benchmarks need: adapters of other libraries, plots, a solver.
MORE_EXTRAS := --extra plots --extra spans --extra plan --extra river --extra sketches

lock: environment ## pin all packages in requirements/, from pyproject.toml
	$(COMPILE) pyproject.toml $(EXTRAS) --output-file requirements/runtime.txt
	$(COMPILE) pyproject.toml $(EXTRAS) $(MORE_EXTRAS) --group dev --constraint requirements/runtime.txt \
		--output-file requirements/dev.txt
	$(COMPILE) --group bootstrap --output-file requirements/bootstrap.txt
	$(COMPILE) --group java --output-file requirements/java.txt

clean: ## remove .venv and all that tools left behind
	rm -rf .venv .venv-flink .venv-bytewax src/tether/sql/jars .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis dist build spark-warehouse metastore_db derby.log
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# OtterMQ. `make run` and `make test` do all the set-up; `make help` lists the rest.
#
# Nothing is installed outside .venv/, and nothing again that is there: stamps in .venv/ stand
# for "installed as pyproject.toml says" and "C core built from these sources".

PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip --disable-pip-version-check install -q

C_SOURCES := $(wildcard csrc/*/*.c)
C_FILES := $(C_SOURCES) $(wildcard csrc/*.h csrc/*/*.h)
CORE := setup.py $(wildcard csrc/*.py) $(C_FILES)
ALL_C := $(C_FILES) $(shell find perf tests -name '*.[ch]')
OURS := ottermq wal amqp cli

# Arguments for `ottermq serve` and for pytest: make run ARGS="--data /tmp/x"
ARGS ?=
# One more than there are cores in CI: half of the time, tests wait for a clock or a process.
TESTS ?= -n 3 --dist loadfile

# What pip leaves behind when it installs, and a checkout may not have: where Python is told to
# write no bytecode, each start of a broker would compile all of it again.
BYTECODE = $(PY) -m compileall -q $(OURS)

.PHONY: help run test check-all again lint asan bench record fuzz soak constraints sbom dist clean
.DELETE_ON_ERROR:
.NOTPARALLEL:

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: $(VENV)/.core ## set up and start the broker: data in ./data, no configuration needed
	@exec $(PY) -P -m ottermq serve $(ARGS)

test: $(VENV)/.core $(VENV)/.tests $(VENV)/.clients ## set up and run the whole test suite
	@$(PY) -c "import tests.internals"
	@$(BYTECODE)
	@$(PY) -m pytest -q $(TESTS) $(ARGS)

check-all: $(VENV)/.core $(VENV)/.tests $(VENV)/.clients ## the tests that make test leaves out for their length, the examples it left out
	@$(PY) -c "import tests.internals"
	@$(BYTECODE)
	@OTTERMQ_LONG=1 $(PY) -m pytest -q -m "long or hypothesis" $(TESTS) $(ARGS)

check-all: TESTS = -n 2 --dist loadfile # beside Spark's there is room for one

again: $(VENV)/.core $(VENV)/.tests ## what failed in the last test run, once more and alone; .second-tries.tsv records it
	@OTTERMQ_AGAIN=1 OTTERMQ_LONG=1 $(PY) -m pytest -q --last-failed --last-failed-no-failures none -n 0 $(ARGS)

# From a folder in which all packages have their installed places: in the checkout's own, py-amqp
# would be our amqp/.
MYPY = $(CURDIR)/$(PY) -m mypy --config-file $(CURDIR)/pyproject.toml --cache-dir $(CURDIR)/.mypy_cache

lint: $(VENV)/.core $(VENV)/.tests ## ruff, clang-format, mypy --strict, gcc -Wall -Wextra -Werror
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	@$(VENV)/bin/clang-format --dry-run -Werror $(ALL_C)
	@mkdir -p build/types/ottermq
	@find build/types -type l -delete
	@ln -s $(addprefix $(CURDIR)/,$(wildcard ottermq/*)) build/types/ottermq/
	@ln -s $(addprefix $(CURDIR)/,wal amqp cli) build/types/ottermq/
	@ln -s $(addprefix $(CURDIR)/,perf tests) build/types/
	cd build/types && $(MYPY) -p ottermq -p perf -p tests
	$(PY) csrc/build_objects.py --strict
	@mkdir -p build/lint
	cd build/lint && gcc -std=gnu11 -O3 -Wall -Wextra -Werror -I$(CURDIR)/csrc -c $(addprefix $(CURDIR)/,$(wildcard perf/amqp_*.c perf/kafka_*.c perf/load_*.c perf/measure.c perf/relay_*.c))

# The sanitized core lives in build/asan; the tests find it first by PYTHONPATH. PYTHONSAFEPATH
# keeps the checkout, where the ordinary core lies, from coming before it.
asan: $(VENV)/.core $(VENV)/.tests ## the tests of C core, data plane and AMQP on an ASan + UBSan build
	@mkdir -p build/asan
	OTTERMQ_SANITIZE=1 $(PY) setup.py -q build --build-lib build/asan/lib --build-temp build/asan/tmp
	$(ASAN_ENV) $(PY) -c "import tests.internals, ottermq._core as c; assert 'build/asan' in c.__file__"
	$(ASAN_ENV) $(PY) -m pytest -q -p no:cacheprovider $(ARGS) $(wildcard $(ASAN_TESTS))

# Brokers that tests start inherit all of this: they run on the sanitized core, too.
ASAN_TESTS ?= tests/csrc tests/wal tests/engine tests/amqp
ASAN_ENV = env OTTERMQ_SANITIZE=1 \
	PYTHONSAFEPATH=1 PYTHONPATH=$(CURDIR)/build/asan/lib:$(CURDIR) PYTHONMALLOC=malloc \
	LD_PRELOAD="$$(gcc -print-file-name=libasan.so) $$(gcc -print-file-name=libubsan.so)" \
	ASAN_OPTIONS=detect_leaks=0:handle_sigbus=0 UBSAN_OPTIONS=print_stacktrace=1

bench: $(VENV)/.core $(VENV)/.tests ## the log beside raw C loops, AMQP beside RabbitMQ, Kafka beside Kafka, Spark over the log: ARGS="log" or amqp, kafka, audit
	@$(BYTECODE)
	$(PY) -m perf.bench $(ARGS)

record: $(VENV)/.core $(VENV)/.tests ## the last whole bench runs become the README's tables and pictures
	@$(PY) -m perf.record

soak: $(VENV)/.core $(VENV)/.tests ## the long crash and load runs
	OTTERMQ_SOAK=1 $(PY) -m pytest -m soak $(ARGS)

FUZZ_SECONDS ?= 60
FUZZERS := $(patsubst tests/fuzz/fuzz_%.c,%,$(wildcard tests/fuzz/fuzz_*.c))

# Leaks are looked for at the end only: after each input, with an engine that lives on, the search took
# 60 ms where the input took less than one. Freed memory waits in 16 MiB, not 256: else each
# allocation is a page that nobody has touched yet.
FUZZ_ASAN := quarantine_size_mb=16:malloc_context_size=8
FUZZ_FLAGS := -detect_leaks=0 -entropic=0 -print_final_stats=1 -verbosity=0

fuzz: $(FUZZERS:%=build/fuzz/fuzz_%) ## libFuzzer on each target, FUZZ_SECONDS (60) each
	@set -e; for name in $(FUZZERS); do \
	  mkdir -p build/fuzz/$$name tests/fuzz/corpus/$$name; \
	  echo "fuzzing $$name for $(FUZZ_SECONDS) s"; \
	  ASAN_OPTIONS=$(FUZZ_ASAN) build/fuzz/fuzz_$$name -max_total_time=$(FUZZ_SECONDS) $(FUZZ_FLAGS) \
	    -artifact_prefix=build/fuzz/$$name- build/fuzz/$$name tests/fuzz/corpus/$$name; \
	done

# Their engine has no thread of its own: by_hand.h.
build/fuzz/fuzz_frames build/fuzz/fuzz_kafka: FUZZ_LINK := -Wl,--wrap=om_engine_main,--wrap=om_clock_ms,--wrap=om_now_ns

build/fuzz/fuzz_%: tests/fuzz/fuzz_%.c $(C_FILES)
	@.ci/clang
	@mkdir -p $(@D)
	clang -std=gnu11 -g -O1 -Icsrc -fsanitize=fuzzer,address,undefined \
	  -fno-sanitize-recover=undefined $(FUZZ_LINK) -o $@ $< $(C_SOURCES) -lpthread

# For a release: what a wheel was tried with. Tools in a folder of their own.
constraints: ## build/constraints.txt: each dependency with its version and hashes
	$(PYTHON) -m venv build/release
	build/release/bin/pip --disable-pip-version-check install -q pip-tools cyclonedx-bom
	build/release/bin/pip-compile -q --generate-hashes --strip-extras -o build/constraints.txt pyproject.toml

sbom: constraints ## build/sbom.json: the same as CycloneDX
	build/release/bin/cyclonedx-py requirements build/constraints.txt --pyproject pyproject.toml -o build/sbom.json

dist: $(VENV)/.core $(VENV)/.tests ## dist/: the source release and a manylinux wheel, both installed and tried
	@.ci/dist "$(PYTHON)"

clean: ## remove all that was built; the data and .second-tries.tsv stay
	rm -rf $(VENV) build dist *.egg-info ottermq/_core*.so ottermq/_core.c
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find $(OURS) tests perf csrc -name __pycache__ -prune -exec rm -rf {} +

# -- set-up ---------------------------------------------------------------------------------

$(PY):
	@.ci/bootstrap "$(PYTHON)" "$(VENV)"

# The requirements are written down once, in pyproject.toml. What builds us goes into the
# environment too, so that building the C core again needs no network.
REQUIRES = $(PY) -c 'import functools, sys, tomllib; \
	print(*functools.reduce(dict.get, sys.argv[1:], tomllib.load(open("pyproject.toml", "rb"))), sep="\n")'

$(VENV)/.deps: pyproject.toml | $(PY)
	@$(REQUIRES) build-system requires > $(VENV)/requires
	@$(PIP) -r $(VENV)/requires
	@touch $@

$(VENV)/.core: $(VENV)/.deps $(CORE)
	@$(PIP) --no-build-isolation -e .
	@touch $@

$(VENV)/.tests: $(VENV)/.deps
	@$(REQUIRES) project optional-dependencies test > $(VENV)/requires
	@$(REQUIRES) project optional-dependencies audit >> $(VENV)/requires
	@$(PIP) -r $(VENV)/requires
	@touch $@

# Clients of other languages; what can't be had is said, and its tests are skipped.
$(VENV)/.clients: .ci/clients | $(PY)
	@.ci/clients
	@touch $@

# `make demo` runs the main job, `make test` passes the tests; each installs what it needs.
.DEFAULT_GOAL := help
.PHONY: help install setup demo test suite test-engines test-room test-attack test-faults test-live check quick evals bench bench-gpu test-gpu gpu docs format release locks fuzz clean

# As on its users' machines: else each of the thousands of commands would compile all of it again.
unexport PYTHONDONTWRITEBYTECODE
PYTHON_BIN := .venv/bin/python
GPU_PYTHON ?= python3
TEST_PROGRAMS := tmux=tmux screen=screen git=git ssh=openssh-client sshd=openssh-server \
	sftp=openssh-client zsh=zsh fish=fish tcsh=tcsh ip=iproute2 unshare=util-linux crontab=cron \
	npm=npm chromium=chromium docker-compose=docker-compose podman=podman runc=runc \
	docker=docker.io dockerd=docker.io munged=munge slurmctld=slurmctld slurmd=slurmd \
	sbatch=slurm-client slurmdbd=slurmdbd mariadbd=mariadb-server-core modulecmd=environment-modules \
	systemd-analyze=systemd mkfs.btrfs=btrfs-progs
# Four workers for each of up to two cores: most tests wait for processes, and of three each core
# was idle for a twentieth of the time. The files are ordered by
# tests/support/session/ordering.py, the longest first.
WORKERS ?= $(shell cores=$$(nproc); echo $$((cores < 2 ? 4 : 8)))
TEST_FOLDER := $(or $(TMPDIR),/tmp)/tm-tests-$(shell pwd | cksum | cut -d ' ' -f 1)
FUZZ ?= 20000
ATTACKS ?= 10
# Against an older standard library; what is installed was checked with the newer one.
OLDEST_PYTHON := --python-version 3.10 --cache-dir .mypy_cache/oldest --no-site-packages \
	--ignore-missing-imports --allow-subclassing-any --allow-untyped-decorators \
	--no-warn-return-any --no-warn-unused-ignores
PYTEST := $(PYTHON_BIN) -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder
# What starts other engines, and what shows at length what shorter tests show, is for test-engines.
WITHOUT_ENGINES := smoke or not (engine or long)
# The last run's folders go meanwhile: pytest would remove them during some test, in minutes.
FRESH_FOLDER = { test ! -e '$(TEST_FOLDER)' || mv '$(TEST_FOLDER)' '$(TEST_FOLDER)'.old.$$$$; \
	rm -rf '$(TEST_FOLDER)'.old.* & }

help: ## what can be made
	@grep -hE '^[a-z-]+:.*##' Makefile | sed 's/:.*##/\t/' | expand -t 14

setup: ## .venv with everything for development
	@scripts/setup.sh train,frameworks,dev $(TEST_PROGRAMS)
	@scripts/setup_node.sh
	@scripts/setup_skypilot.sh

install: ## .venv/bin/trainmaster, with PyTorch, for those who use it
	@scripts/setup.sh train git=git ssh=openssh-client
	@echo 'Installed. Next: . .venv/bin/activate && trainmaster doctor'
	@echo 'Then the first training: docs/first-training.md, or make demo.'

demo: ## train a small GPT on real text, kill it half-way, see it come back
	@scripts/setup.sh train
	@.venv/bin/trainmaster demo

test: ## style, types, layers, and the tests without other engines; prints the slowest
	@$(MAKE) --no-print-directory -j2 check suite

suite: setup
	@# Before the first run, else each worker compiles all tests; later there are few to compile.
	@test -d tests/__pycache__ || $(PYTHON_BIN) -m pytest --collect-only --quiet >/dev/null
	@$(FRESH_FOLDER)
	$(PYTEST) --basetemp='$(TEST_FOLDER)' --durations=50 --durations-min=1 -m '$(WITHOUT_ENGINES)'

test-engines: setup ## real Slurm, containers, environments, frameworks, transports, browser; faults at length
	@$(FRESH_FOLDER)
	$(PYTEST) --basetemp='$(TEST_FOLDER)' --durations=50 --durations-min=1 -m 'not ($(WITHOUT_ENGINES))'

test-room: ## the quick tests of one room, without setup: ROOM=plan, ROOM=runs/status, OPTIONS=-x
	@test -x $(PYTHON_BIN) || { echo 'First: make setup'; exit 2; }
	@test -n '$(ROOM)' -a -d 'tests/$(ROOM)' || { echo 'ROOM names a folder of tests/'; exit 2; }
	$(PYTHON_BIN) -m pytest --quiet -m 'not slow and ($(WITHOUT_ENGINES))' $(OPTIONS) 'tests/$(ROOM)'

test-attack: setup ## the attacks of tests/attack and those marked so, with many generated cases; minutes
	TRAINMASTER_ATTACKS=$(ATTACKS) $(PYTEST) --durations=20 -m attack

test-faults: setup ## the loops of faults at full length: hundreds of kills and cuts, which take hours
	TRAINMASTER_FAULT_KILLS=20 TRAINMASTER_FAULT_CUTS=50 TRAINMASTER_FAULT_PARTITION_S=60 \
	TRAINMASTER_FAULT_ROUNDS=20 TRAINMASTER_RENTING_TRIALS=60 TRAINMASTER_STRATEGIES=zero2,zero3,fsdp \
	$(PYTEST) $$(grep -rlE "TRAINMASTER_(FAULT_[A-RT-Z]|RENTING_T|STRATEGIES)|runs\.faults" tests --include="test_*.py")

check: setup ## style, types, layers, oldest Python
	@.venv/bin/ruff check .
	@.venv/bin/ruff format --check .
	@.venv/bin/mypy server/trainmaster trainer_runtime tests/golden/scripts
	@.venv/bin/mypy $(OLDEST_PYTHON) trainer_runtime tests/golden/scripts
	@.venv/bin/vermin --quiet --no-tips --violations --target=3.10- trainer_runtime tests/golden/scripts
	@.venv/bin/lint-imports

quick: setup ## the tests that neither train nor install
	$(PYTEST) -m "not slow and ($(WITHOUT_ENGINES))" --ignore=tests/contract --ignore=tests/e2e --ignore=tests/train

evals: setup ## every case of skills/*/evals by the scripted agent, with calls and tokens; EVALS=--model
	@$(PYTHON_BIN) scripts/run_evals.py $(EVALS)

test-live: setup ## look at the real services, with your keys; costs and changes nothing
	$(PYTHON_BIN) -m pytest -rs tests/live

bench: setup ## speed beside the real peers; BENCH="parse store" takes some, RECORD=1 keeps the figures
	@$(PYTHON_BIN) tests/benchmarks/run.py $(BENCH) $(if $(RECORD),--record) -- $(BENCH_OPTIONS)

bench-gpu: ## speed on a GPU; needs a python3 with PyTorch, no setup and no network; 10 minutes
	$(GPU_PYTHON) tests/benchmarks/gpu.py --kind bench

test-gpu: ## what only a GPU shows to work; as bench-gpu; `make gpu` does both
	$(GPU_PYTHON) tests/benchmarks/gpu.py --kind test

gpu:
	$(GPU_PYTHON) tests/benchmarks/gpu.py

docs: setup ## the reference pages that are made from the code
	@$(PYTHON_BIN) scripts/make_docs.py

format: setup ## put the code into shape
	@.venv/bin/ruff check --fix --quiet .
	@.venv/bin/ruff format --quiet .

release: setup ## wheel, sdist, SBOM and provenance of the commit, reproducibly, into dist/
	@$(PYTHON_BIN) scripts/release.py

locks: setup ## resolve the lock files, keeping versions that still go together
	@$(PYTHON_BIN) scripts/make_locks.py --keep

fuzz: setup ## the tests of random input, for long: FUZZ=20000 examples each
	TRAINMASTER_FUZZ=$(FUZZ) TRAINMASTER_FUZZ_CALLS=10000 $(PYTHON_BIN) -m pytest -n $(WORKERS) \
	--dist load $$(grep -rlE "TRAINMASTER_FUZZ|support\.fuzz" tests --include="test_*.py")

clean: ## remove what was built here
	rm -rf .venv dist build .mypy_cache .ruff_cache .pytest_cache .import_linter_cache

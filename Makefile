# Everything a newcomer needs, on a machine with Python 3.11 or newer (with venv) and make. What is missing, they say.
#
#   make lab            set up, let the embedded voice say a sentence, open the quickstart in JupyterLab
#   make test           set up and run all tests but the long ones and those in a browser
#   make test-bare      say, sweep, serve and the notebooks 01 to 05 in an environment of their own without torch
#   make test-browser   the panels in JupyterLab, used by Chromium, and the tests of their JavaScript
#   make test-thorough  the long tests, some twenty minutes: kill loops, fuzzing, many takes (CI: every night)
#   make fuzz           feed whatever reads files and bodies of others, ten minutes each (ARGS="run plan --seconds 60"); better with atheris
#   make check          style, types, imports, sizes, secrets
#   make notebooks      run every notebook offline and compare it with what is committed
#   make notebooks-browser  run every notebook in JupyterLab in a browser, as a reader does
#   make notebooks-update  run every notebook and write what it shows into its file
#   make notebooks-record  record anew what 03, 09 and 10 play back, then notebooks-update: for a new voice, on a quiet machine
#   make performance    measure every figure in turn, make all samples, write them into the documents (hours: its judges are slow)
#   make docs           build the site of docs/ into build/site, every warning an error
#   make train-voice    train the embedded voice further (see training/README.md)
#   make format         put the code into the house's format
#   make constraints    write the versions of the environment to constraints.txt, and their hashes to .ci/locked
#   make sbom           write a CycloneDX bill of materials of the environment to build/sbom.json
#   make clean          remove what the commands above made, the environment too
#
# A machine's own pip settings (pip.conf, PIP_INDEX_URL, PIP_FIND_LINKS, …) are honoured. ARGS= passes
# arguments on: make test ARGS="tests/audio -x".

SHELL := /bin/sh
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help lab test test-bare test-browser test-thorough fuzz check notebooks notebooks-browser notebooks-update notebooks-record performance docs train-voice format constraints sbom clean

# Not taken from the environment, since `make clean` removes it; make VENV=… chooses another.
VENV := .venv
# Nor is another one that happens to be active: IPython would warn of it.
unexport VIRTUAL_ENV
# Compiled modules are kept, whatever containers set: else each program that a test starts compiles all that it imports.
export PYTHONDONTWRITEBYTECODE :=
BIN := $(VENV)/bin
ARGS :=
# How many processes share the tests: half of the time they wait for servers and programs, so three keep two cores busy;
# at most four, since each holds a model.
JOBS := $(shell test "$$(getconf _NPROCESSORS_ONLN 2> /dev/null || echo 2)" -gt 3 && echo 4 || echo 3)

# "no" installs without comparing SHA-256, for an index of your own that builds packages itself.
HASHES ?= yes
# The interpreter that makes the environment; without it, .ci/setup takes the first that is new enough.
PYTHON ?=
# When this began, in seconds since 1970: times are told from here.
BEGUN := $(shell date +%s)
# $(call timed,name,command): run it, and say how long that took, and all since make began.
timed = begun=$$(date +%s); echo "voicelab: $1"; $2; code=$$?; now=$$(date +%s); \
	echo "voicelab: $1: $$((now - begun)) s, $$((now - $(BEGUN))) s in all"; exit $$code

help:
	@sed -n '/^#/!q; s/^# \{0,1\}//p' Makefile

# A stamp file says that the environment holds an extra in the versions wanted; touch pyproject.toml to redo it.
# Only the finished installation leaves the stamp, so an interrupted one starts again.
$(VENV)/.ready-%: .ci/setup pyproject.toml constraints.txt
	@PYTHON="$(PYTHON)" HASHES="$(HASHES)" .ci/setup "$(VENV)" "$*" "$(COMPILED)"
	@touch "$@"

# The extras that the notebooks import.
READY_LAB := $(VENV)/.ready-notebook,metrics,recognition,whisper,mandarin,cluster
READY_DEV := $(VENV)/.ready-dev
# Packages that need a compiler; without one they are skipped, with a message.
COMPILED := pesq

# Front ends that tests open panels in: not packages of the environment, but beside it.
$(VENV)/.ready.front-ends: .ci/front-ends $(READY_DEV)
	@.ci/front-ends "$(VENV)"
	@touch "$@"

lab: $(READY_LAB)
	@"$(BIN)/voicelab" lab --since $(BEGUN) $(ARGS)

# One thread a process: two that share two cores would wait for each other.
test test-browser test-thorough: export OMP_NUM_THREADS ?= 1
# CI runs those in a browser as a step of its own. Named, they run here too: make test ARGS=tests/browser/test_lanes.py
test: $(READY_DEV)
	@$(call timed,all tests but those in a browser,"$(BIN)/python" -m pytest -n $(JOBS) --dist loadfile \
		$(if $(findstring tests/browser,$(ARGS)),,--ignore=tests/browser) $(ARGS))

# voicelab without torch, and the extras of these notebooks. HASHES=no: the list has all extras of make lab.
test-bare:
	@PYTHON="$(PYTHON)" HASHES=no .ci/setup build/bare notebook,mandarin,recognition
	@$(call timed,the embedded voice without torch,.ci/bare build/bare/bin \
		&& build/bare/bin/voicelab check notebooks/0[1-5]*.ipynb)

# Two at once, however many cores there are: what they hear must not run dry. What fails beside another runs again alone.
test-browser: $(READY_DEV) $(VENV)/.ready.front-ends
	@$(call timed,all tests in a browser,"$(BIN)/python" -m pytest -n 2 --dist loadfile tests/browser $(ARGS) \
		|| "$(BIN)/python" -m pytest -n 0 --last-failed --last-failed-no-failures none tests/browser $(ARGS))

test-thorough: $(READY_DEV)
	@$(call timed,the long tests,"$(BIN)/python" -m pytest -m thorough -o faulthandler_timeout=1800 $(ARGS))

fuzz: $(READY_DEV)
	@"$(BIN)/python" -m tests.fuzz.targets $(ARGS)

check: $(READY_DEV)
	"$(BIN)/ruff" check .
	"$(BIN)/ruff" format --check .
	"$(BIN)/mypy"
	"$(BIN)/lint-imports"
	"$(BIN)/python" .ci/house.py
	"$(BIN)/python" .ci/language.py
	"$(BIN)/check-jsonschema" --builtin-schema vendor.github-workflows .github/workflows/*.yml

notebooks: $(READY_DEV)
	@$(call timed,all notebooks,"$(BIN)/voicelab" check --jobs 2 $(or $(ARGS),notebooks))

notebooks-browser: $(READY_DEV)
	@$(call timed,all notebooks in a browser,"$(BIN)/python" -m pytest -m notebooks -n 2 tests/browser/test_notebooks.py $(ARGS))

notebooks-update: $(READY_DEV)
	@"$(BIN)/voicelab" check --update $(or $(ARGS),notebooks)

notebooks-record: $(READY_DEV)
	@$(call timed,recordings,"$(BIN)/python" notebooks/record.py)
	@$(call timed,all notebooks,"$(BIN)/voicelab" check --update $(or $(ARGS),notebooks))

performance: $(READY_DEV)
	@$(call timed,all figures,"$(BIN)/python" bench/page.py --all $(ARGS))

# Its theme would tell of a later mkdocs on every run.
docs: export NO_MKDOCS_2_WARNING = 1
docs: $(READY_DEV)
	@"$(BIN)/mkdocs" build --strict --quiet $(ARGS)
	@echo "build/site/index.html; with search: $(BIN)/python -m http.server -d build/site"

# Memory that glibc keeps, in huge pages: a step of training is a sixth shorter.
train-voice: export MALLOC_MMAP_MAX_ = 0
train-voice: export MALLOC_TRIM_THRESHOLD_ = 17179869184
train-voice: export MALLOC_TOP_PAD_ = 67108864
train-voice: export GLIBC_TUNABLES = glibc.malloc.hugetlb=1
train-voice: $(READY_DEV)
	@"$(BIN)/python" -m training $(ARGS)

format: $(READY_DEV)
	@"$(BIN)/ruff" check --fix .
	@"$(BIN)/ruff" format .

# $(call tool,package): a program of its own environment: what it needs is none of ours.
tool = "$(BIN)/python" -m venv build/tools && build/tools/bin/pip install --quiet --disable-pip-version-check $1

# The local part of a version (torch's +cpu) names a build, not a version, and is left out.
constraints: $(READY_DEV)
	@sed -n '/^#/p' constraints.txt > constraints.new
	@"$(BIN)/python" -m pip freeze --disable-pip-version-check --exclude-editable \
		| grep -v -i -E '^(-e|pip==|setuptools==|wheel==)|@' \
		| sed -E 's/\+[A-Za-z0-9.]+$$//' >> constraints.new
	@mv constraints.new constraints.txt
	@$(call tool,uv)
	@.ci/lock build/tools/bin/uv
	@"$(BIN)/python" docs/make/licenses.py

sbom: $(READY_DEV)
	@$(call tool,cyclonedx-bom)
	@build/tools/bin/cyclonedx-py environment --pyproject pyproject.toml --output-reproducible -o build/sbom.json "$(BIN)/python"
	@echo build/sbom.json

clean:
	@rm -rf -- "$(VENV)" build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf -- {} +

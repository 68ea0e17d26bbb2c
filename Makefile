# Everything runs in .venv, made on first use. PYTHON chooses the interpreter it is made from.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Reaches pip's isolated build environments too.
export PIP_CONSTRAINT := $(CURDIR)/constraints.txt
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: demo test test-baseline test-sanitize test-triton test-zoo check format clean

demo: $(VENV)/.installed
	$(BIN)/learnpool compare --data digits --model learnpool.nets:small --seeds 5 --epochs 30 --set rate=0.1 --set pad=0 --out runs/demo

test: $(VENV)/.installed
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/clang-format --dry-run --Werror src/learnpool/ops/cpu/*.h src/learnpool/ops/cpu/*.cpp
	$(BIN)/mypy
	$(BIN)/python -m pytest -n 2

# The tests that train, as on a processor without AVX: what they assert has to hold on any.
test-baseline: $(VENV)/.installed
	ATEN_CPU_CAPABILITY=default ONEDNN_MAX_CPU_ISA=SSE41 LEARNPOOL_ISA=baseline $(BIN)/python -m pytest -n 2 -m "trains and not slow"

# The kernels under AddressSanitizer and UndefinedBehaviorSanitizer; the build takes several minutes.
SANITIZED := build/sanitized/learnpool/ops/cpu/library.abi3.so
test-sanitize: $(SANITIZED)
	LD_PRELOAD="$$(gcc -print-file-name=libasan.so) $$(gcc -print-file-name=libstdc++.so)" ASAN_OPTIONS=detect_leaks=0 LEARNPOOL_REQUIRE_KERNELS=1 \
	LEARNPOOL_CPU_LIBRARY=$(CURDIR)/$(SANITIZED) \
	$(BIN)/python -m pytest tests/ops/test_cpu.py tests/ops/test_cpu_source.py tests/ops/test_limits.py -p no:cacheprovider

$(SANITIZED): $(VENV)/.installed
	LEARNPOOL_SANITIZE=1 LEARNPOOL_REQUIRE_KERNELS=1 $(BIN)/python setup.py -q build_ext --build-lib build/sanitized --build-temp build/temp-sanitized

# The GPU kernels without a GPU: interpreted, and compiled for real ones. In an environment of their own: triton has 900 MB.
test-triton: .venv-triton/.installed
	LEARNPOOL_REQUIRE_TRITON=1 TRITON_INTERPRET=1 .venv-triton/bin/python -m pytest -n 2 tests/ops/test_triton.py tests/ops/test_triton_stochastic.py
	LEARNPOOL_REQUIRE_TRITON=1 .venv-triton/bin/python -m pytest -n 2 tests/ops/test_triton_compilation.py

.venv-triton/.installed: $(VENV)/.installed
	$(PYTHON) -m venv .venv-triton
	echo "import site; site.addsitedir('$$($(BIN)/python -c 'import site; print(site.getsitepackages()[0])')')" > $$(.venv-triton/bin/python -c 'import site; print(site.getsitepackages()[0])')/tests.pth
	.venv-triton/bin/pip install --quiet --no-deps triton==3.8.0
	@touch $@

# Third-party networks, in an environment of their own; writes docs/results/zoo.md. NAMES="resnet unet" tries some and writes nothing.
test-zoo: .venv-zoo/.installed
	.venv-zoo/bin/python tools/zoo/zoo.py $(if $(NAMES),$(NAMES),--write docs/results/zoo.md)

check: $(VENV)/.installed
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/clang-format --dry-run --Werror src/learnpool/ops/cpu/*.h src/learnpool/ops/cpu/*.cpp
	$(BIN)/mypy
	$(BIN)/python -m pytest -n 2 -m "not slow"

# Python and C++.
format: $(VENV)/.installed
	$(BIN)/ruff check --fix
	$(BIN)/ruff format
	$(BIN)/clang-format -i src/learnpool/ops/cpu/*.h src/learnpool/ops/cpu/*.cpp

clean:
	rm -rf $(VENV) .venv-zoo .venv-triton build dist src/*.egg-info runs .pytest_cache .mypy_cache .ruff_cache .hypothesis

# The kernels are built against the torch that is installed first; a change of their source builds them anew.
$(VENV)/.installed: pyproject.toml setup.py constraints.txt $(wildcard src/learnpool/ops/cpu/*)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet torch setuptools wheel ninja numpy
	$(BIN)/pip install --quiet --no-build-isolation --editable ".[lab,ray,tensorboard,dev]"
	@touch $@

.venv-zoo/.installed: tools/zoo/requirements.txt constraints.txt $(wildcard src/learnpool/ops/cpu/*)
	$(PYTHON) -m venv .venv-zoo
	.venv-zoo/bin/pip install --quiet torch setuptools wheel ninja numpy
	.venv-zoo/bin/pip install --quiet --no-build-isolation --editable . --requirement tools/zoo/requirements.txt
	@touch $@

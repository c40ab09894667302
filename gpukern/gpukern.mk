# Targets of the GPU: the kernels as PTX, their check, and the tests and benchmarks on a device.

MUST_GPU ?=

.PHONY: kernels ptxas nvdisasm sass gpu-test gpu-bench gpu-soak gpu-sanitize gpu-sanitize-pubkey cavp

gpu-test: ## the tests of the kernels and engines on the GPU; without one it says what is missing, and fails with MUST_GPU=1
	@out=$$(MILLRACE_MUST_GPU=$(MUST_GPU) $(GO) test -count=1 -v -run '^TestGPUIsWhatTheKernelsNeed$$' ./gpukern/cuda 2>&1) || { echo "$$out"; exit 1; }; \
	case "$$out" in \
	*"--- SKIP"*) echo "$$out" | sed -n 's/.*_test.go:[0-9]*: /no GPU can be used: /p'; \
		echo "nothing was tested; \`$(GO) -C cmd run -tags cuda ./millrace doctor\` says more, MUST_GPU=1 makes this a failure" ;; \
	*) export MILLRACE_MUST_GPU=1; $(GO) test -count=1 -timeout 15m ./gpukern/... && \
		$(GO) test -count=1 -timeout 15m -run 'InspectionOnGPU' ./l4/control && \
		$(GO) -C internal/app/kernbench test -count=1 -timeout 15m ./... && $(GO) -C cmd test -count=1 -timeout 15m ./millrace ;; \
	esac

gpu-bench: build ## measure the batch engine (suite kern) and inspection in the gateway on the GPU, into bench/results; and public-key operations
	$(GO) -C bench run . -suite kern $(BENCHFLAGS)
	$(GO) -C bench run . -suite inspection-gateway $(BENCHFLAGS)
	MILLRACE_MUST_GPU=1 $(GO) test -run '^$$' -bench . ./gpukern/cuda/pubkey ./gpukern/cuda/symmetric

gpu-soak: ## compare 10.7 million operations of the GPU with crypto/*, in a minute on 16 cores, into bench/results/gpu-soak-h200.json
	@mkdir -p $(BIN)
	MILLRACE_MUST_GPU=1 MILLRACE_SOAK=1 MILLRACE_OUT=$(abspath $(BIN)) $(GO) -C internal/app/kernbench test -count=1 -run '^TestSoak$$' -v .
	mv $(BIN)/soak.json bench/results/gpu-soak-h200.json

# Parts of Wycheproof's vectors are in internal/testkit/wycheproof/testdata: MILLRACE_WYCHEPROOF names a folder testvectors_v1 of
# C2SP/wycheproof for `go test -run Wycheproof ./gpukern/...` with the whole files.
# Parts of NIST's vectors are in internal/testkit/cavp/testdata. The files as NIST published them (csrc.nist.gov, Cryptographic
# Algorithm Validation Program), without their folders, are 12 MB and not in the repository.
cavp: ## all vectors of NIST's files in the folder MILLRACE_CAVP, on every form of the CPU and on a GPU where there is one
	@[ -n "$(MILLRACE_CAVP)" ] || { echo "MILLRACE_CAVP names no folder with NIST's files: $$(ls internal/testkit/cavp/testdata | tr '\n' ' ')"; exit 1; }
	MILLRACE_CAVP=$(abspath $(MILLRACE_CAVP)) $(GO) test -count=1 -run CAVP ./gpukern/...

# The sanitizer reads what each kernel touches: the tests that run on the GPU but for those that run for long, and the one that
# has the driver refuse a module. Its library enters a program by the start of the C library, so that the C compiler links these.
SANITIZED := HeaderPassIs|Search|EngineFinds|EngineKeeps|Bulk|Resident
SANITIZED_EXPRESSIONS := Expressions(Along|In)
SANITIZED_PUBKEY := NoSecretStays/gpu
# The kernels of public keys share no memory between threads (TestNoThreadsShareMemory): racecheck and synccheck have the smallest
# calls that reach each kernel, six to eleven operations.
RACED_PUBKEY := (AWrong(RSA|Ed25519|)KeyIsFound|X25519Vectors|KeysThatAreNone)/gpu
SANITIZED_SYMMETRIC := (EveryLength|Place|Resident|Forged|Standard|Stays|Forgotten)/.*gpu
sanitize = $(GO) test -c -ldflags=-linkmode=external -o $(BIN)/sanitized.test ./$(1) && (cd $(1) && for tool in $(3); do \
	MILLRACE_MUST_GPU=1 compute-sanitizer --tool $$tool --error-exitcode 1 $(abspath $(BIN))/sanitized.test -test.timeout 15m -test.run '$(2)' || exit 1; done)

gpu-sanitize-pubkey: export CGO_ENABLED = 1
gpu-sanitize-pubkey: ## only races and barriers of the kernels of public keys, in the smallest calls
	@command -v compute-sanitizer >/dev/null || { echo "compute-sanitizer is not installed: it comes with the CUDA toolkit"; exit 1; }
	@mkdir -p $(BIN)
	$(call sanitize,gpukern/cuda/pubkey,$(RACED_PUBKEY),racecheck synccheck)

gpu-sanitize: export CGO_ENABLED = 1
gpu-sanitize: ## the tests of the GPU under NVIDIA's compute-sanitizer: memory, races in shared memory, what was never written, barriers
	@command -v compute-sanitizer >/dev/null || { echo "compute-sanitizer is not installed: it comes with the CUDA toolkit"; exit 1; }
	@mkdir -p $(BIN)
	$(call sanitize,gpukern/cuda,$(SANITIZED),memcheck racecheck)
	$(call sanitize,gpukern/cuda,$(SANITIZED_EXPRESSIONS),memcheck racecheck initcheck synccheck)
	$(call sanitize,gpukern/cuda/pubkey,$(SANITIZED_PUBKEY),memcheck initcheck)
	$(MAKE) gpu-sanitize-pubkey
	$(call sanitize,gpukern/cuda/symmetric,$(SANITIZED_SYMMETRIC),memcheck racecheck)

# Kernels are PTX for sm_80 and later; the driver translates them for the GPU that it finds. NAME.sm_90.cu
# is built for sm_90 alone. Files that no .cu includes directly (.cuh, .h) are parts of all.
KERNELS    := $(patsubst gpukern/cuda/%.cu,gpukern/cuda/ptx/%.ptx,$(wildcard gpukern/cuda/*.cu)) \
	$(patsubst gpukern/cuda/pubkey/%.cu,gpukern/cuda/pubkey/ptx/%.ptx,$(wildcard gpukern/cuda/pubkey/*.cu)) \
	$(patsubst gpukern/cuda/symmetric/%.cu,gpukern/cuda/symmetric/ptx/%.ptx,$(wildcard gpukern/cuda/symmetric/*.cu))
CUDA_FLAGS := -x cuda --cuda-device-only -nocudainc -nocudalib -ffreestanding -O3 -Wall -Wextra -Werror -S

# The kernels that only tests load are no part of the binary.
TEST_KERNELS := gpukern/cuda/testdata/ptx/probe.ptx gpukern/cuda/pubkey/testdata/ptx/arithmetic.ptx gpunet/testdata/ptx/servers.ptx

kernels: $(KERNELS) $(TEST_KERNELS) ## compile the CUDA kernels to PTX (clang-19, no CUDA toolkit)

gpukern/cuda/ptx/%.sm_90.ptx: gpukern/cuda/%.sm_90.cu FORCE
	@mkdir -p $(@D)
	clang-19 $(CUDA_FLAGS) --cuda-gpu-arch=sm_90 --cuda-feature=+ptx78 $< -o $@

gpukern/cuda/ptx/%.ptx: gpukern/cuda/%.cu FORCE
	@mkdir -p $(@D)
	clang-19 $(CUDA_FLAGS) --cuda-gpu-arch=sm_80 --cuda-feature=+ptx70 $< -o $@

gpukern/cuda/pubkey/ptx/%.ptx: gpukern/cuda/pubkey/%.cu FORCE
	@mkdir -p $(@D)
	clang-19 $(CUDA_FLAGS) --cuda-gpu-arch=sm_80 --cuda-feature=+ptx70 $< -o $@

gpukern/cuda/symmetric/ptx/%.ptx: gpukern/cuda/symmetric/%.cu FORCE
	@mkdir -p $(@D)
	clang-19 $(CUDA_FLAGS) --cuda-gpu-arch=sm_80 --cuda-feature=+ptx70 $< -o $@

gpukern/cuda/testdata/ptx/%.ptx: gpukern/cuda/testdata/%.cu FORCE
	@mkdir -p $(@D)
	clang-19 $(CUDA_FLAGS) --cuda-gpu-arch=sm_80 --cuda-feature=+ptx70 $< -o $@

gpukern/cuda/pubkey/testdata/ptx/%.ptx: gpukern/cuda/pubkey/testdata/%.cu FORCE
	@mkdir -p $(@D)
	clang-19 $(CUDA_FLAGS) --cuda-gpu-arch=sm_80 --cuda-feature=+ptx70 $< -o $@

gpunet/testdata/ptx/%.ptx: gpunet/testdata/%.cu FORCE
	@mkdir -p $(@D)
	clang-19 $(CUDA_FLAGS) --cuda-gpu-arch=sm_80 --cuda-feature=+ptx70 $< -o $@

FORCE:

# NVIDIA's assembler checks what clang wrote (TestPTXAssembles). It comes as a Python wheel, 40 MB, under
# NVIDIA's own licence: it is used here and goes nowhere.
PTXAS_WHEEL := nvidia-cuda-nvcc-cu12==12.9.86

ptxas: .deps/ptxas/done ## bring NVIDIA's assembler into .deps, to check the PTX

.deps/ptxas/done:
	@python3 -m pip --version >/dev/null 2>&1 || { echo "ptxas comes as a Python wheel: python3 with pip is not installed"; exit 1; }
	@rm -rf .deps/ptxas && mkdir -p .deps/ptxas
	python3 -m pip download -q --disable-pip-version-check --retries 1 --timeout 20 --no-deps --only-binary=:all: \
		-d .deps/ptxas $(PTXAS_WHEEL)
	cd .deps/ptxas && python3 -m zipfile -e nvidia_cuda_nvcc_cu12-*.whl . && rm -f *.whl && chmod +x nvidia/*/bin/ptxas
	@touch $@

# NVIDIA's disassembler shows what its assembler made of kernels that work on secrets (TestMachineCodeHidesSecrets). 5 MB,
# under the same licence.
NVDISASM_WHEEL := nvidia-cuda-nvdisasm==13.5.37

sass: ptxas nvdisasm ## read the machine code of the public-key kernels: no branch and no address may depend on a secret
	$(GO) test -count=1 -v -run 'MachineCodeHidesSecrets|LeaksAreSeen' ./gpukern/cuda/pubkey ./gpukern/cuda/symmetric ./internal/testkit/sass

nvdisasm: .deps/nvdisasm/done ## bring NVIDIA's disassembler into .deps, to check the kernels' machine code

.deps/nvdisasm/done:
	@python3 -m pip --version >/dev/null 2>&1 || { echo "nvdisasm comes as a Python wheel: python3 with pip is not installed"; exit 1; }
	@rm -rf .deps/nvdisasm && mkdir -p .deps/nvdisasm
	python3 -m pip download -q --disable-pip-version-check --retries 1 --timeout 20 --no-deps --only-binary=:all: \
		-d .deps/nvdisasm $(NVDISASM_WHEEL)
	cd .deps/nvdisasm && python3 -m zipfile -e nvidia_cuda_nvdisasm-*.whl . && rm -f *.whl && chmod +x nvidia/*/bin/nvdisasm
	@touch $@

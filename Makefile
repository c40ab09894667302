# Millrace. `make help` lists the targets.

GO       ?= go
TOOL     := tool -modfile=internal/tools/go.mod
BIN      := bin

# The Go modules of the repository that have code; internal/tools only names the linters and generators.
MODULES := . cmd bench bench/asavie internal/testkit/interop internal/app/kernbench
# What tests in network namespaces import, if only by way of others.
TESTNET  := github.com/millrace/millrace/internal/testkit/testnet
VERSION  ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
LDFLAGS  := -s -w -X main.version=$(VERSION)

# What the build, the tests and `make run` need beyond Go and make, as Debian packages.
BUILD_PACKAGES := ca-certificates git
RUN_PACKAGES   := curl iproute2
TEST_PACKAGES  := iperf3 clang-19 llvm-19 libbpf-dev gcc libc6-dev ethtool tcpdump tshark libcap2-bin busybox-static man-db iputils-ping netcat-openbsd nodejs node-ws nftables openssl gnutls-bin libnss3-tools haproxy nginx-light libnginx-mod-stream bpftool xdp-tools
BENCH_PACKAGES := nginx-light libnginx-mod-stream dpdk-dev libdpdk-dev libhyperscan-dev libpcap-dev pkg-config

PEER_PACKAGES  := chromium-headless-shell fonts-dejavu-core nginx-light clang-19 cmake

FUZZTIME ?= 20s
SOAK     ?= 60s
CONNECTIONS ?= 1000000
SUITE    ?= packet-io
KEEP     ?=
MUST_GPU ?=

export CGO_ENABLED = 0

.DEFAULT_GOAL := help

# What a target cannot do without is checked before anything is built or installed. A Go that is too old
# may not even read go.mod, so its version is asked for without it.
goals := $(filter-out help clean,$(MAKECMDGOALS))
ifneq ($(goals),)
go-needed := $(shell sed -n 's/^go //p' go.mod)
go-found  := $(shell cd / && $(GO) version 2>/dev/null | sed -n 's/^go version .*go\([0-9.]*\).*/\1/p')
ifeq ($(go-found),)
$(error Go is not installed: install Go $(go-needed) or later from https://go.dev/dl)
endif
# Since 1.21 an older Go fetches the one that go.mod names, unless GOTOOLCHAIN says local.
go-oldest := $(if $(filter local,$(shell cd / && $(GO) env GOTOOLCHAIN 2>/dev/null)),$(go-needed),1.21)
ifneq ($(shell printf '%s\n' $(go-oldest) $(go-found) | sort -V | head -n 1),$(go-oldest))
$(error Go $(go-needed) or later is needed, and `$(GO)` is $(go-found): install it from https://go.dev/dl and put it first in PATH)
endif
endif
ifneq ($(filter run,$(goals)),)
ifneq ($(shell id -u),0)
$(error `make run` makes network namespaces, which needs root: sudo env PATH="$$PATH" make run)
endif
endif

.PHONY: help deps deps-run deps-bench install run build test race fuzz netns bench soak interop interop-suricata interop-quic interop-peers peer-programs packetdrill llhttp h2spec bogo lint generate generate-check kernels ptxas gpu-test gpu-bench gpu-sanitize clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# install-packages: apt when root and something is missing; otherwise the line to run.
define install-packages
	@missing=$$(for p in $(1); do dpkg-query -W -f '$${Status}\n' $$p 2>/dev/null | grep -q 'ok installed' || echo $$p; done); \
	if [ -z "$$missing" ]; then exit 0; fi; \
	if [ "$$(id -u)" = 0 ]; then \
		echo "installing" $$missing; \
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing >/dev/null; \
	else \
		echo "missing Debian packages; run:"; \
		echo "  sudo apt-get update && sudo apt-get install -y --no-install-recommends" $$missing; \
		exit 1; \
	fi
endef

deps: ## install what the tests need (apt when root, otherwise print the line)
	$(call install-packages,$(BUILD_PACKAGES) $(RUN_PACKAGES) $(TEST_PACKAGES))
	@for m in $(MODULES) internal/tools; do $(GO) -C $$m mod download && $(GO) -C $$m list -m all >/dev/null || exit 1; done
	@$(MAKE) -s ptxas || echo "note: no ptxas, so the PTX is not assembled (it needs Python with pip, and the network once)"

deps-run:
	$(call install-packages,$(BUILD_PACKAGES) $(RUN_PACKAGES))

deps-bench: deps
	$(call install-packages,$(BENCH_PACKAGES))

# The preloaded library of millrace exec (package shim embeds it). A build without a C compiler lacks it, and says so.
CC      ?= cc
PRELOAD := shim/preload/build/libmillrace.so

.PHONY: preload
preload: ## build the library of millrace exec (needs a C compiler)
	@if command -v $(CC) >/dev/null; then $(MAKE) -s $(PRELOAD); else echo "note: no C compiler ($(CC)), so millrace exec has no library"; rm -f $(PRELOAD); fi

$(PRELOAD): $(wildcard shim/preload/*.c shim/preload/*.h)
	$(CC) -std=c11 -O2 -fPIC -shared -Wall -Wextra -Werror -fvisibility=hidden -o $@.new $(filter %.c,$^) -ldl
	@mv $@.new $@

build: preload ## build bin/millrace
	@mkdir -p $(BIN)
	$(GO) -C cmd build -trimpath -ldflags '$(LDFLAGS)' -o ../$(BIN)/millrace ./millrace

PREFIX  ?= /usr/local
DESTDIR ?=

install: build ## install the binary, manual pages, completion and the systemd unit (PREFIX, DESTDIR)
	install -Dm755 $(BIN)/millrace $(DESTDIR)$(PREFIX)/bin/millrace
	$(BIN)/millrace man --section 1 --dir $(DESTDIR)$(PREFIX)/share/man/man1
	$(BIN)/millrace man --section 5 --dir $(DESTDIR)$(PREFIX)/share/man/man5
	install -d $(DESTDIR)$(PREFIX)/share/bash-completion/completions
	$(BIN)/millrace completion bash >$(DESTDIR)$(PREFIX)/share/bash-completion/completions/millrace
	install -d $(DESTDIR)/etc/systemd/system
	sed 's|/usr/local/bin/|$(PREFIX)/bin/|' deploy/millrace-gateway.service >$(DESTDIR)/etc/systemd/system/millrace-gateway.service
	install -d $(DESTDIR)/etc/millrace
	test -e $(DESTDIR)/etc/millrace/gateway.yaml || install -m644 examples/gateway.yaml $(DESTDIR)/etc/millrace/gateway.yaml

run: deps-run build ## load-balance real connections between namespaces (KEEP=1 leaves them up)
	$(GO) build -o $(BIN)/lab ./examples/lab
	@$(BIN)/lab $(if $(KEEP),-keep) -millrace $(BIN)/millrace

# As root every test that needs namespaces, rights or programs must run: a skip is a failure.
# Most tests wait more than they compute: the first module runs beside the others.
test: deps preload generate-check ## all tests that need no GPU
	@if [ "$$(id -u)" = 0 ]; then export MILLRACE_MUST_NETNS=1; \
	else echo "note: not root, so tests that need network namespaces are skipped"; fi; \
	$(MAKE) -k -j 2 --no-print-directory test-first test-others || { echo "tests failed"; exit 1; }

.PHONY: test-first test-others
test-first:
	@$(call test-modules,$(firstword $(MODULES)))

test-others:
	@$(call test-modules,$(wordlist 2,99,$(MODULES)))

test-modules = failed=; for m in $(1); do \
		echo "== module $$m"; $(GO) -C $$m vet ./... && $(GO) -C $$m test -timeout 15m ./... || failed="$$failed $$m"; \
	done; \
	if [ -n "$$failed" ]; then echo "tests failed in the modules:$$failed"; exit 1; fi

race: deps ## all tests under the race detector, freed frames poisoned
	@for m in $(filter-out bench,$(MODULES)); do CGO_ENABLED=1 $(GO) -C $$m test -race -tags debug -timeout 30m ./... || exit 1; done
	CGO_ENABLED=1 $(GO) -C bench test -race ./... # its senders fill free frames once for all: no poison there

netns: deps ## only the tests that speak with the Linux kernel in network namespaces (root)
	@for m in $(MODULES); do \
		pkgs=$$($(call netns-packages,$$m)); \
		[ -z "$$pkgs" ] || MILLRACE_MUST_NETNS=1 $(GO) -C $$m test -count=1 -timeout 15m $$pkgs || exit 1; \
	done

# netns-packages: the packages of a module whose tests link TESTNET. That of TESTNET itself is a variant of it.
netns-packages = $(GO) -C $(1) list -test -f '{{range .Deps}}{{if or (eq . "$(TESTNET)") (eq . "$(TESTNET) [$(TESTNET).test]")}}{{$$.ImportPath}}{{"\n"}}{{end}}{{end}}' ./... | sed -n 's/\.test$$//p' | sort -u

.PHONY: list-netns
list-netns:
	@for m in $(MODULES); do $(call netns-packages,$$m); done

fuzz: ## run every fuzzer for FUZZTIME (20s)
	@for m in $(MODULES); do for pkg in $$($(GO) -C $$m list ./...); do \
		for f in $$($(GO) -C $$m test -list '^Fuzz' $$pkg | grep '^Fuzz'); do \
			echo "== $$pkg $$f"; $(GO) -C $$m test -run '^$$' -fuzz "^$$f\$$" -fuzztime $(FUZZTIME) $$pkg || exit 1; \
		done; \
	done; done

bench: deps-bench build ## measure a suite against its peers (SUITE=packet-io), into bench/results
	$(GO) -C bench run . -suite $(SUITE) $(BENCHFLAGS)

soak: ## the long forms of tests, for SOAK (60s) each: the configuration changes under load, 10 000 services, the forwarding function fuzzed, random requests through the proxy, CONNECTIONS (1000000) of programs of millrace exec
	MILLRACE_MUST_NETNS=1 MILLRACE_SOAK=$(SOAK) $(GO) test -count=1 -timeout 0 -v -run TestNoConnectionBreaks ./l4/control
	MILLRACE_MUST_NETNS=1 MILLRACE_SOAK=$(SOAK) $(GO) -C cmd test -count=1 -v -run TestGatewayWithManyServices ./millrace
	$(GO) test -timeout 0 -run '^$$' -fuzz '^FuzzHandle$$' -fuzztime $(SOAK) ./l4/control
	MILLRACE_SOAK=$(SOAK) $(GO) test -count=1 -timeout 0 -v -run TestRandomRequests ./l7/proxy
	MILLRACE_SHIM_CONNECTIONS=$(CONNECTIONS) $(GO) test -count=1 -timeout 0 -v -run TestConnectionsLeaveNothing ./internal/testkit/shimtest

INTEROP ?= 10G

interop: ## the long tests with Linux's TCP: INTEROP (10G) bytes through loss and reordering, options, MTUs, 64 flows; then interop-peers (root)
	MILLRACE_MUST_NETNS=1 MILLRACE_INTEROP=$(INTEROP) $(GO) test -count=1 -timeout 0 -v -run 'Loss|ManyBulk|Session' ./internal/app/stackd
	MILLRACE_MUST_NETNS=1 MILLRACE_INTEROP=100M $(GO) test -count=1 -timeout 0 -v -run 'MTU|EveryOption|Iperf3' ./internal/app/stackd
	$(MAKE) interop-peers interop-gateway

interop-suricata: ## inspection rules and Suricata (installed) on the captures of MILLRACE_PCAPS: the rules of testdata and of the folder MILLRACE_RULES; writes docs/inspection-suricata.md
	MILLRACE_SURICATA=1 MILLRACE_SURICATA_PAGE=$(abspath docs/inspection-suricata.md) $(GO) -C internal/testkit/interop test -count=1 -v -timeout 30m -run '^TestSuricata' .

LOAD_PACKAGES := curl nginx-light nodejs python3 php-cli wrk apache2-utils nghttp2-client

PYTHON_WEB := .deps/web/bin/python

$(PYTHON_WEB):
	python3 -m venv .deps/web && .deps/web/bin/pip install -q 'httpx[http2]==0.28.1' requests==2.34.2 websockets==17.4 hypercorn==0.18.0 || { rm -rf .deps/web; exit 1; }

.PHONY: interop-gateway
interop-gateway: $(PYTHON_WEB) ## gRPC, curl, nginx, node, PHP, Python, wrk, ab and h2load through the proxy: 100 000 calls, downloads of 1 GB
	$(call install-packages,$(LOAD_PACKAGES))
	MILLRACE_GRPC_CALLS=100000 MILLRACE_INTEROP=1G MILLRACE_PYTHON_WEB=$(abspath $(PYTHON_WEB)) $(GO) -C internal/testkit/interop test -count=1 -timeout 60m -v -run 'ThroughGateway' .

SHIM_PACKAGES := curl wget iperf3 nginx-light haproxy redis-server memcached postgresql openssh-client openssh-server openssl python3 libpython3.11-testsuite wrk util-linux \
	default-jdk-headless openmpi-bin libopenmpi-dev nodejs tcl dpkg-dev
PROGRAM ?=
TIER    ?=

# The sources of the versions that are installed, for their tests.
SHIM_SOURCES := .deps/shim
DEBIAN_SOURCE = cd $(SHIM_SOURCES) && sed 's/^Types: deb$$/Types: deb-src/' /etc/apt/sources.list.d/debian.sources >sources.list.d/debian.sources && \
	apt-get -qq $(APT_SOURCES) update && apt-get -qq $(APT_SOURCES) source $(1)=$$(dpkg-query -W -f '$${source:Version}' $(2))
APT_SOURCES  := -o Dir::Etc::sourcelist=/dev/null -o Dir::Etc::sourceparts=$(CURDIR)/$(SHIM_SOURCES)/sources.list.d -o Dir::State::lists=$(CURDIR)/$(SHIM_SOURCES)/lists -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache=

.PHONY: shim-sources
shim-sources:
	$(call install-packages,$(SHIM_PACKAGES))
	@mkdir -p $(SHIM_SOURCES)/lists/partial $(SHIM_SOURCES)/sources.list.d
	@ls -d $(SHIM_SOURCES)/redis-*/ >/dev/null 2>&1 || { $(call DEBIAN_SOURCE,redis,redis-server); } || echo "note: no source of redis, so its tests are not run"
	@ls -d $(SHIM_SOURCES)/nodejs-*/ >/dev/null 2>&1 || { $(call DEBIAN_SOURCE,nodejs,nodejs); } || echo "note: no source of Node, so its tests are not run"

.PHONY: interop-shim
interop-shim: build shim-sources ## unmodified programs and their test suites on the kernel's stack and under millrace exec; writes docs/shim-programs.md (root; PROGRAM=redis and TIER="tier 0" select)
	MILLRACE_PROGRAMS=$(abspath $(BIN)/millrace) MILLRACE_REDIS="$$(ls -d $(CURDIR)/$(SHIM_SOURCES)/redis-*/ 2>/dev/null)" MILLRACE_NODE_SOURCE="$$(ls -d $(CURDIR)/$(SHIM_SOURCES)/nodejs-*/ 2>/dev/null)" \
		PROGRAM="$(PROGRAM)" TIER="$(TIER)" MILLRACE_MUST_NETNS=1 $(GO) -C internal/testkit/interop test -count=1 -v -timeout 180m -run '^TestPrograms$$' ./programs

PACKETDRILL        ?= .deps/packetdrill/gtests/net/tcp
PACKETDRILL_COMMIT := 2c4001c4d6fc04a3bbd01d4b92be62717a37648a

.deps/packetdrill:
	git init -q $@ && git -C $@ fetch -q --depth 1 https://github.com/google/packetdrill $(PACKETDRILL_COMMIT) && git -C $@ checkout -q FETCH_HEAD || { rm -rf $@; exit 1; }

packetdrill: $(if $(filter .deps/%,$(PACKETDRILL)),.deps/packetdrill) ## the scripts that packetdrill comes with, fetched unless PACKETDRILL names their folder
	MILLRACE_PACKETDRILL=$(abspath $(PACKETDRILL)) $(GO) -C internal/testkit/interop test -count=1 -run Packetdrill .

LLHTTP        ?= .deps/llhttp/test
LLHTTP_COMMIT := 01e105a30fd06e248bc8ac73c4adb34a63d4114a

.deps/llhttp:
	git init -q $@ && git -C $@ fetch -q --depth 1 https://github.com/nodejs/llhttp $(LLHTTP_COMMIT) && git -C $@ checkout -q FETCH_HEAD || { rm -rf $@; exit 1; }

llhttp: $(if $(filter .deps/%,$(LLHTTP)),.deps/llhttp) ## the messages of llhttp's own tests, fetched unless LLHTTP names their folder
	MILLRACE_LLHTTP=$(abspath $(LLHTTP)) $(GO) -C internal/testkit/interop test -count=1 -run LLHTTP .

H2SPEC_COMMIT := af83a65f0b6273ef38bf778d400d98892e7653d8
H2SPEC        ?= .deps/h2spec/bin

.deps/h2spec/bin:
	git init -q .deps/h2spec && git -C .deps/h2spec fetch -q --depth 1 https://github.com/summerwind/h2spec $(H2SPEC_COMMIT) && \
	git -C .deps/h2spec checkout -q FETCH_HEAD && GOFLAGS=-mod=mod $(GO) -C .deps/h2spec build -o bin ./cmd/h2spec || { rm -rf .deps/h2spec; exit 1; }

h2spec: $(if $(filter .deps/%,$(H2SPEC)),.deps/h2spec/bin) ## h2spec's cases of HTTP/2, fetched and built unless H2SPEC names the program
	MILLRACE_H2SPEC=$(abspath $(H2SPEC)) $(GO) -C internal/testkit/interop test -count=1 -run H2spec .

BOGO        ?= .deps/boringssl
BOGO_FROM   := https://github.com/google/boringssl
BOGO_COMMIT := f51d8b099832f805022a6ff2e9466dbcacdfb0ab

# Without --filter the fetch would bring the sources of a library, of which the runner is a small part.
.deps/boringssl:
	git init -q $@ && git -C $@ remote add origin $(BOGO_FROM) && git -C $@ sparse-checkout set ssl/test/runner util/testresult && \
	git -C $@ fetch -q --depth 1 --filter=blob:none origin $(BOGO_COMMIT) && git -C $@ checkout -q FETCH_HEAD || { rm -rf $@; exit 1; }

bogo: $(if $(filter .deps/%,$(BOGO)),.deps/boringssl) ## BoringSSL's TLS test suite, fetched unless BOGO names its folder
	MILLRACE_BOGO=$(abspath $(BOGO)) $(GO) -C internal/testkit/interop test -count=1 -v -timeout 30m -run BoGo .

AIOQUIC := .deps/aioquic/bin/python

$(AIOQUIC):
	python3 -m venv .deps/aioquic && .deps/aioquic/bin/pip install -q aioquic==1.7.2 || { rm -rf .deps/aioquic; exit 1; }

interop-quic: $(AIOQUIC) ## QUIC and HTTP/3 with aioquic, which it installs, both ways: plain, at 2 % loss, over paths of 1200 bytes
	MILLRACE_AIOQUIC=$(abspath $(AIOQUIC)) $(GO) -C internal/testkit/interop test -count=1 -v -run Aioquic .
	MILLRACE_PYLSQPACK=$(abspath $(AIOQUIC)) $(GO) test -count=1 -v -run Lsqpack ./http3/qpack

# The programs of other implementations. Those in Rust need cargo 1.85 or later, cmake and clang, and ten minutes the first time.
PEERS := .deps/peers
RUST  := internal/testkit/interop/testdata/rust

$(PEERS)/quinn-peer $(PEERS)/quiche-peer &: $(wildcard $(RUST)/Cargo.* $(RUST)/*/Cargo.toml $(RUST)/*/src/*.rs)
	@mkdir -p $(PEERS)
	LIBCLANG_PATH=$${LIBCLANG_PATH:-/usr/lib/llvm-19/lib} cargo build -q --locked --release --manifest-path $(RUST)/Cargo.toml --target-dir .deps/rust
	cp .deps/rust/release/quinn-peer .deps/rust/release/quiche-peer $(PEERS)

peer-programs: $(AIOQUIC)
	$(call install-packages,$(PEER_PACKAGES))
	@mkdir -p $(PEERS)
	$(GO) -C internal/testkit/interop/testdata/webtransport build -trimpath -o $(abspath $(PEERS))/webtransport-peer .
	$(GO) -C cmd build -trimpath -o $(abspath $(PEERS))/millrace ./millrace
	@if command -v cargo >/dev/null; then $(MAKE) -s $(PEERS)/quinn-peer; else echo "note: no cargo, so the peers in Rust are not run"; fi

# net/http takes WebSocket over HTTP/2 only with this setting in the environment.
interop-peers: export GODEBUG = http2xconnect=1
interop-peers: peer-programs ## every other implementation of TLS, QUIC, HTTP/3 and WebSocket, Chromium too: kernel sockets, AF_XDP, 2 % loss, 1200 bytes; writes the table of docs/interop.md (root)
	MILLRACE_PEERS=$(abspath $(PEERS)) MILLRACE_PEERS_PAGE=$(abspath docs/interop.md) MILLRACE_MUST_NETNS=1 MILLRACE_AIOQUIC=$(abspath $(AIOQUIC)) \
		MILLRACE_SCREENSHOT=$(SCREENSHOT) $(GO) -C internal/testkit/interop test -count=1 -v -timeout 30m -run '^TestPeers$$' .

gpu-test: ## the tests of the kernels and engines on the GPU; without one it says what is missing, and fails with MUST_GPU=1
	@out=$$(MILLRACE_MUST_GPU=$(MUST_GPU) $(GO) test -count=1 -v -run '^TestGPUIsWhatTheKernelsNeed$$' ./gpukern/cuda 2>&1) || { echo "$$out"; exit 1; }; \
	case "$$out" in \
	*"--- SKIP"*) echo "$$out" | sed -n 's/.*_test.go:[0-9]*: /no GPU can be used: /p'; \
		echo "nothing was tested; \`$(GO) -C cmd run ./millrace doctor\` says more, MUST_GPU=1 makes this a failure" ;; \
	*) export MILLRACE_MUST_GPU=1; $(GO) test -count=1 -timeout 15m ./gpukern/... && \
		$(GO) test -count=1 -timeout 15m -run 'InspectionOnGPU' ./l4/control && \
		$(GO) -C internal/app/kernbench test -count=1 -timeout 15m ./... && $(GO) -C cmd test -count=1 -timeout 15m ./millrace ;; \
	esac

gpu-bench: build ## measure the batch engine (suite kern) and inspection in the gateway on the GPU, into bench/results
	$(GO) -C bench run . -suite kern $(BENCHFLAGS)
	$(GO) -C bench run . -suite inspection-gateway $(BENCHFLAGS)

# The sanitizer reads what each kernel touches: the tests that run on the GPU but for those that run for
# long, and the one that has the driver refuse a module.
gpu-sanitize: ## the tests of the GPU under NVIDIA's compute-sanitizer: memory, races in shared memory
	@command -v compute-sanitizer >/dev/null || { echo "compute-sanitizer is not installed: it comes with the CUDA toolkit"; exit 1; }
	@mkdir -p $(BIN)
	$(GO) test -c -o $(BIN)/cuda.test ./gpukern/cuda
	cd gpukern/cuda && for tool in memcheck racecheck; do \
		MILLRACE_MUST_GPU=1 compute-sanitizer --tool $$tool --error-exitcode 1 ../../$(BIN)/cuda.test -test.timeout 15m \
			-test.run 'HeaderPassIs|Search|EngineFinds|EngineKeeps|Bulk|Resident' || exit 1; \
	done

VM_PACKAGES := qemu-system-x86 busybox-static cpio iproute2 bpftool xdp-tools

VM_TESTS    := filter/ebpf pmd/xdp pmd/afxdp l4/control
VM_FLAGS    ?=

# An emulated machine with Debian's kernel and nothing but these tests: some kernels refuse extension programs of eBPF,
# which several XDP programs on one interface need.
.PHONY: test-vm
test-vm: ## the tests of eBPF loading in a virtual machine, beside xdp-loader and xdp-filter (a minute; needs no KVM)
	$(call install-packages,$(VM_PACKAGES))
	@rm -rf .deps/vm/tests && mkdir -p $(addprefix .deps/vm/tests/,$(VM_TESTS))
	for p in $(VM_TESTS); do $(GO) test -c -ldflags=-w -o .deps/vm/tests/$$p/test ./$$p || exit 1; done
	cp -r filter/ebpf/testdata .deps/vm/tests/filter/ebpf/
	mkdir -p .deps/vm/tests/packet .deps/vm/tests/internal/testkit/testpcaps && cp packet/desc.h .deps/vm/tests/packet/ && cp -r internal/testkit/testpcaps/testdata .deps/vm/tests/internal/testkit/testpcaps/
	internal/testkit/vm/run.sh .deps/vm/tests 'export MILLRACE_MUST_NETNS=1 MILLRACE_MUST_EXTENSIONS=1; \
		for p in filter/ebpf pmd/xdp; do (cd $$p && ./test -test.v $(VM_FLAGS)) || exit 1; done; \
		(cd pmd/afxdp && ./test -test.v -test.run Dispatcher\|KilledProcess $(VM_FLAGS)) || exit 1; \
		cd l4/control && ./test -test.v -test.run XDPTools $(VM_FLAGS)'

lint: ## gofumpt, vet, staticcheck
	@out=$$($(GO) $(TOOL) gofumpt -l .); if [ -n "$$out" ]; then echo "not gofumpt-clean:"; echo "$$out"; exit 1; fi
	$(GO) vet -tags debug ./ring
	@mkdir -p $(BIN) && $(GO) build -modfile=internal/tools/go.mod -o $(BIN)/staticcheck honnef.co/go/tools/cmd/staticcheck
	@for m in $(MODULES); do echo "== module $$m"; $(GO) -C $$m vet ./... && (cd $$m && $(CURDIR)/$(BIN)/staticcheck ./...) || exit 1; done

# Kernels are PTX for sm_80 and later; the driver translates them for the GPU that it finds. NAME.sm_90.cu
# is built for sm_90 alone. Files that no .cu includes directly (.cuh, .h) are parts of all.
KERNELS    := $(patsubst gpukern/cuda/%.cu,gpukern/cuda/ptx/%.ptx,$(wildcard gpukern/cuda/*.cu))
CUDA_FLAGS := -x cuda --cuda-device-only -nocudainc -nocudalib -ffreestanding -O3 -Wall -Wextra -Werror -S

# The kernels that only tests load are no part of the binary.
TEST_KERNELS := gpukern/cuda/testdata/ptx/probe.ptx

kernels: $(KERNELS) $(TEST_KERNELS) ## compile the CUDA kernels to PTX (clang-19, no CUDA toolkit)

gpukern/cuda/ptx/%.sm_90.ptx: gpukern/cuda/%.sm_90.cu FORCE
	@mkdir -p $(@D)
	clang-19 $(CUDA_FLAGS) --cuda-gpu-arch=sm_90 --cuda-feature=+ptx78 $< -o $@

gpukern/cuda/ptx/%.ptx: gpukern/cuda/%.cu FORCE
	@mkdir -p $(@D)
	clang-19 $(CUDA_FLAGS) --cuda-gpu-arch=sm_80 --cuda-feature=+ptx70 $< -o $@

$(TEST_KERNELS): gpukern/cuda/testdata/ptx/%.ptx: gpukern/cuda/testdata/%.cu FORCE
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

generate: kernels ## rebuild the generated files (eBPF objects, PTX, the layout of shared rings)
	$(GO) generate ./pmd/afxdp/... ./pmd/xdp/... ./l4/kernelflows/... ./filter/ebpf/... ./shim/ring/...

# The committed objects must be what the sources give, byte for byte.
generate-check: generate
	@changed=$$(git status --porcelain -- '*_bpfel.go' '*_bpfel.o' '*_bpfeb.go' '*_bpfeb.o' 'filter/ebpf/testdata/objects/*.o' '*.ptx' \
		shim/ring/layout.go shim/preload/ring.h gpukern/cuda/sharedring.h); \
	if [ -n "$$changed" ]; then echo "generated files differ from their sources:"; echo "$$changed"; exit 1; fi

clean: ## remove what was built
	rm -rf $(BIN)

# libpcap's source and its tests, for the oracle of filter/expr. Nothing of it is committed.
LIBPCAP_COMMIT := f26ae497fce4cda04355806101dd8d3e851d5672
LIBPCAP        ?= bin/libpcap

.PHONY: pcap-oracle
pcap-oracle: ## compare packet filter expressions with libpcap's own tests (needs git, cmake, flex, bison, perl, root)
	@test -d $(LIBPCAP)/.git || git clone -q https://github.com/the-tcpdump-group/libpcap $(LIBPCAP)
	@git -C $(LIBPCAP) checkout -q $(LIBPCAP_COMMIT)
	@cmake -S $(LIBPCAP) -B $(LIBPCAP)/build -DDISABLE_DBUS=ON -DDISABLE_RDMA=ON -DBUILD_WITH_LIBNL=OFF >/dev/null
	@$(MAKE) -s -C $(LIBPCAP)/build pcap_static >/dev/null
	$(CC) -O2 -I $(LIBPCAP)/build -I $(LIBPCAP) -o bin/pcap-oracle filter/expr/testdata/oracle.c $(LIBPCAP)/build/libpcap.a
	@perl filter/expr/testdata/corpus.pl $(LIBPCAP) $(LIBPCAP)/build $(abspath bin)/pcap-corpus.json
	MILLRACE_PCAP_ORACLE=$(abspath filter/expr/testdata/oracle.sh) MILLRACE_PCAP_PROGRAM=$(abspath bin)/pcap-oracle \
	MILLRACE_PCAP_CORPUS=$(abspath bin)/pcap-corpus.json MILLRACE_PCAP_FILES=$(abspath $(LIBPCAP))/tests/filter \
	$(GO) test ./filter/expr ./filter/ebpf -run 'Corpus|Generated' -v

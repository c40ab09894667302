# Millrace. `make help` lists the targets.

GO       ?= go
TOOL     := tool -modfile=internal/tools/go.mod
BIN      := bin

# The Go modules of the repository that have code; internal/tools only names the linters and generators.
MODULES := . cmd bench bench/asavie internal/testkit/interop internal/app/kernbench
VERSION  ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
LDFLAGS  := -s -w -X main.version=$(VERSION)

# What the build, the tests and `make run` need beyond Go and make, as Debian packages.
BUILD_PACKAGES := ca-certificates git
RUN_PACKAGES   := curl iproute2
TEST_PACKAGES  := iperf3 clang-19 llvm-19 libbpf-dev gcc libc6-dev ethtool tcpdump tshark libcap2-bin busybox-static man-db iputils-ping netcat-openbsd traceroute nodejs node-ws nftables openssl gnutls-bin libnss3-tools haproxy nginx-light libnginx-mod-stream bpftool xdp-tools systemd ibverbs-utils perftest rdmacm-utils
BENCH_PACKAGES := keepalived nginx-light libnginx-mod-stream dpdk-dev libdpdk-dev libhyperscan-dev libipsec-mb-dev libpcap-dev pkg-config

SUITE    ?= packet-io
KEEP     ?=
BASE     ?= main

# Packages with much of the logic, whose tests take some seconds together.
FAST     := ./capture ./clock ./filter ./http1 ./http2/... ./http3/qpack ./ip ./l4/datapath ./l4/fastpath ./l4/quiclb ./l7/pool \
            ./l7/rewrite ./l7/route ./metrics ./packet ./proxyproto ./ring ./semantics ./stack ./tcp/... ./udp ./wire

export CGO_ENABLED = 0

.DEFAULT_GOAL := help

include internal/tools/require.mk

.PHONY: help deps deps-run deps-bench preload install run build build-cuda check format bench lint deadcode generate generate-check clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

deps: ## install what the tests need (apt when root, otherwise print the line)
	$(call install-packages,$(BUILD_PACKAGES) $(RUN_PACKAGES) $(TEST_PACKAGES))
	@for m in $(MODULES) internal/tools; do $(GO) -C $$m mod download && $(GO) -C $$m list -m all >/dev/null || exit 1; done
	@$(MAKE) -s -j 2 ptxas nvdisasm || echo "note: no ptxas or nvdisasm, so PTX and machine code are not checked (they need Python with pip, and the network once)"

deps-run:
	$(call install-packages,$(BUILD_PACKAGES) $(RUN_PACKAGES))

deps-bench: deps
	$(call install-packages,$(BENCH_PACKAGES))

# The preloaded library of millrace exec (package shim embeds it, compressed). A build without a C compiler lacks it, and says so.
CC      ?= cc
PRELOAD := shim/preload/build/libmillrace.so.gz
VERBSLIBS := $(patsubst %,rdma/verbs/build/%.gz,libibverbs.so.1 librdmacm.so.1 libmlx5.so.1 libefa.so.1)

preload: ## build the library of millrace exec (needs a C compiler)
	@if command -v $(CC) >/dev/null; then $(MAKE) -s $(PRELOAD) $(VERBSLIBS); else echo "note: no C compiler ($(CC)), so millrace exec has no library"; rm -f $(PRELOAD) $(VERBSLIBS); fi

shim/preload/build/.libmillrace.so: $(wildcard shim/preload/*.c shim/preload/*.h)
	$(CC) -std=c11 -O2 -fPIC -shared -Wall -Wextra -Werror -fvisibility=hidden -o $@.new $(filter %.c,$^) -ldl
	@mv $@.new $@

$(PRELOAD) $(VERBSLIBS): %.gz:
	@gzip -9nc $(@D)/.$(notdir $*) >$@.new && mv $@.new $@

$(PRELOAD): shim/preload/build/.libmillrace.so
$(VERBSLIBS): rdma/verbs/build/%.gz: rdma/verbs/build/.%

build: preload ## build bin/millrace, static
	@mkdir -p $(BIN)
	$(GO) -C cmd build -trimpath -ldflags '$(LDFLAGS)' -o ../$(BIN)/millrace ./millrace

build-cuda: preload ## build bin/millrace-cuda, which can use GPUs, and needs libc: what loads their driver does
	@mkdir -p $(BIN)
	$(GO) -C cmd build -trimpath -tags cuda -ldflags '$(LDFLAGS)' -o ../$(BIN)/millrace-cuda ./millrace

PREFIX   ?= /usr/local
DESTDIR  ?=
EXAMPLES := $(PREFIX)/share/doc/millrace/examples

install: build build-cuda build-waf ## install the binaries, manual pages, completion and the systemd unit (PREFIX, DESTDIR)
	install -Dm755 $(BIN)/millrace $(DESTDIR)$(PREFIX)/bin/millrace
	install -Dm755 $(BIN)/millrace-cuda $(DESTDIR)$(PREFIX)/bin/millrace-cuda
	install -Dm755 $(BIN)/millrace-waf $(DESTDIR)$(PREFIX)/bin/millrace-waf
	@for f in $(BIN)/libmillrace-dpdk-*.so; do [ ! -e "$$f" ] || install -Dm644 "$$f" $(DESTDIR)$(PREFIX)/lib/millrace/$${f##*/} || exit 1; done
	$(BIN)/millrace man --section 1 --dir $(DESTDIR)$(PREFIX)/share/man/man1
	$(BIN)/millrace man --section 5 --dir $(DESTDIR)$(PREFIX)/share/man/man5
	install -d $(DESTDIR)$(PREFIX)/share/bash-completion/completions
	$(BIN)/millrace completion bash >$(DESTDIR)$(PREFIX)/share/bash-completion/completions/millrace
	install -d $(DESTDIR)/etc/systemd/system
	sed 's|/usr/local/bin/|$(PREFIX)/bin/|' deploy/millrace-gateway.service >$(DESTDIR)/etc/systemd/system/millrace-gateway.service
	install -Dm644 deploy/millrace.sysusers $(DESTDIR)/usr/lib/sysusers.d/millrace.conf
	install -d $(DESTDIR)/etc/millrace
	test -e $(DESTDIR)/etc/millrace/gateway.yaml || install -m644 deploy/gateway.yaml $(DESTDIR)/etc/millrace/gateway.yaml
	install -d $(DESTDIR)$(EXAMPLES)/certs $(DESTDIR)$(EXAMPLES)/modes $(DESTDIR)$(EXAMPLES)/www
	install -m644 $(filter-out %_test.go %.go,$(wildcard examples/*.*)) $(DESTDIR)$(EXAMPLES)
	install -m644 $(wildcard examples/certs/*) $(DESTDIR)$(EXAMPLES)/certs
	install -m644 $(wildcard examples/modes/*) $(DESTDIR)$(EXAMPLES)/modes
	install -m644 $(wildcard examples/www/*) $(DESTDIR)$(EXAMPLES)/www
	@if [ -z "$(DESTDIR)" ] && command -v systemd-sysusers >/dev/null; then systemd-sysusers millrace.conf; \
	else echo "note: the service runs as the user millrace: systemd-sysusers makes it"; fi

run: deps-run build ## load-balance real connections between namespaces (KEEP=1 leaves them up)
	$(GO) build -o $(BIN)/lab ./examples/lab
	@$(BIN)/lab $(if $(KEEP),-keep) -millrace $(BIN)/millrace

# Without root, packages of Debian and programs of others: for each change. BASE is what changed packages are compared with.
check: preload ## in a minute: vet, format, layers, and the tests of what changed since BASE (main) and of the fast packages
	@out=$$($(GO) $(TOOL) gofumpt -l .); if [ -n "$$out" ]; then echo "not gofumpt-clean (make format):"; echo "$$out"; exit 1; fi
	@for m in $(MODULES); do $(GO) -C $$m vet ./... || exit 1; done
	@$(GO) test -vet=off -short -timeout 5m ./internal/layers ./docs $(FAST)
	@for m in $(MODULES); do pkgs=$$(internal/tools/changed.sh $(BASE) $$m) && \
		{ [ -z "$$pkgs" ] || $(GO) -C $$m test -vet=off -short -timeout 5m $$pkgs; } || exit 1; done

format: ## format the Go sources
	$(GO) $(TOOL) gofumpt -w .

bench: deps-bench build ## measure a suite against its peers (SUITE=packet-io), into bench/results
	$(GO) -C bench run . -suite $(SUITE) $(BENCHFLAGS)

lint: ## gofumpt, vet, staticcheck
	@out=$$($(GO) $(TOOL) gofumpt -l .); if [ -n "$$out" ]; then echo "not gofumpt-clean:"; echo "$$out"; exit 1; fi
	$(GO) vet -tags debug ./ring ./tcp/loss
	@mkdir -p $(BIN) && $(GO) build -modfile=internal/tools/go.mod -o $(BIN)/staticcheck honnef.co/go/tools/cmd/staticcheck
	@for m in $(MODULES); do echo "== module $$m"; $(GO) -C $$m vet ./... && (cd $$m && $(CURDIR)/$(BIN)/staticcheck ./...) || exit 1; done

deadcode: preload ## functions that no program and no test reaches (minutes)
	@internal/tools/deadcode.sh $(filter-out bench/asavie,$(MODULES))

generate: kernels ## rebuild the generated files (eBPF objects, PTX, the layout of shared rings)
	$(GO) generate ./pmd/afxdp/... ./pmd/xdp/... ./l4/kernelflows/... ./filter/ebpf/... ./shim/ring/...

# The committed objects must be what the sources give, byte for byte.
generate-check:
	@$(MAKE) -s -j 4 generate
	@changed=$$(git status --porcelain -- '*_bpfel.go' '*_bpfel.o' '*_bpfeb.go' '*_bpfeb.o' 'filter/ebpf/testdata/objects/*.o' '*.ptx' \
		shim/ring/layout.go shim/preload/ring.h gpukern/cuda/sharedring.h); \
	if [ -n "$$changed" ]; then echo "generated files differ from their sources:"; echo "$$changed"; exit 1; fi

clean: ## remove what was built
	rm -rf $(BIN) dist

include internal/testkit/test.mk deploy/dist.mk internal/testkit/long.mk internal/testkit/interop/interop.mk internal/testkit/interop/systemd.mk gpukern/gpukern.mk pmd/dpdk/dpdk.mk rdma/verbs/verbs.mk

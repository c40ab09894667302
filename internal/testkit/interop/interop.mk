# Targets that compare Millrace with other implementations: their programs, suites and captures. None is part of `make test`.

.PHONY: interop-convert interop-rdma cache-tests crs-tests interop interop-bgp bgp-times interop-suricata interop-suricata-verify interop-gateway shim-sources interop-shim packetdrill llhttp h2spec bogo tlsfuzzer autobahn interop-quic peer-programs interop-peers test-vm interop-vhost pcap-oracle

PEER_PACKAGES  := chromium-headless-shell fonts-dejavu-core nginx-light clang-19 cmake

INTEROP ?= 10G

interop: ## the long tests with Linux's TCP: INTEROP (10G) bytes through loss and reordering, options, MTUs, 64 flows; then interop-peers and dpdk-test (root)
	MILLRACE_MUST_NETNS=1 MILLRACE_INTEROP=$(INTEROP) $(GO) test -count=1 -timeout 0 -v -run 'Loss|ManyBulk|Session' ./internal/app/stackd
	MILLRACE_MUST_NETNS=1 MILLRACE_INTEROP=100M $(GO) test -count=1 -timeout 0 -v -run 'MTU|EveryOption|Iperf3' ./internal/app/stackd
	$(MAKE) interop-peers interop-gateway interop-bgp interop-rdma dpdk-test

interop-bgp: ## the gateway's BGP with FRRouting and bird in network namespaces: two gateways behind a router with ECMP (root)
	$(call install-packages,frr bird2)
	MILLRACE_MUST_NETNS=1 $(GO) -C internal/testkit/interop test -count=1 -timeout 20m -v -run 'BGP|TwoGatewaysAnnounce' .

bgp-times: ## how fast a router withdraws the routes of a gateway that fails; writes bench/results/bgp.json, of which docs/bgp.md has the figures (root)
	$(call install-packages,frr)
	MILLRACE_BGP_RESULTS=$(abspath bench/results/bgp.json) MILLRACE_MUST_NETNS=1 $(GO) -C internal/testkit/interop test -count=1 -timeout 20m -v -run 'BGPWithdrawalTimes' .

interop-suricata: ## inspection rules and Suricata (installed) on the captures of MILLRACE_PCAPS: the rules of testdata and of the folder MILLRACE_RULES; writes docs/inspection-suricata.md
	MILLRACE_SURICATA=1 MILLRACE_SURICATA_PAGE=$(abspath docs/inspection-suricata.md) $(GO) -C internal/testkit/interop test -count=1 -v -timeout 30m -run '^TestSuricata' .

interop-suricata-verify: ## Suricata's own tests, of the copy of OISF/suricata-verify that MILLRACE_SURICATA_VERIFY names
	$(GO) -C internal/testkit/interop test -count=1 -v -run '^TestSuricataVerify$$' .

LOAD_PACKAGES := curl nginx-light nodejs python3 php-cli php-fpm wrk apache2-utils nghttp2-client

PYTHON_WEB := .deps/web/bin/python

$(PYTHON_WEB):
	python3 -m venv .deps/web && .deps/web/bin/pip install -q 'httpx[http2]==0.28.1' requests==2.34.2 websockets==17.4 hypercorn==0.18.0 || { rm -rf .deps/web; exit 1; }

interop-gateway: $(PYTHON_WEB) ## gRPC, curl, nginx, node, PHP, Python, wrk, ab and h2load through the proxy: 100 000 calls, downloads of 1 GB
	$(call install-packages,$(LOAD_PACKAGES))
	MILLRACE_GRPC_CALLS=100000 MILLRACE_INTEROP=1G MILLRACE_PYTHON_WEB=$(abspath $(PYTHON_WEB)) $(GO) -C internal/testkit/interop test -count=1 -timeout 60m -v -run 'ThroughGateway' .

interop-convert: ## convert the files of a folder (FILES), of nginx, HAProxy and Caddy, and print the table of docs/moving-in.md
	@[ -n "$(FILES)" ] || { echo "name a folder: make interop-convert FILES=FOLDER"; exit 1; }
	MILLRACE_CONVERT=$(abspath $(FILES)) $(GO) test -count=1 -v -run '^TestPublicFiles$$' ./internal/app/convert

SHIM_PACKAGES := curl wget iperf3 nginx-light haproxy redis-server memcached postgresql openssh-client openssh-server openssl python3 libpython3.11-testsuite wrk util-linux \
	default-jdk-headless openmpi-bin libopenmpi-dev nodejs tcl dpkg-dev
PROGRAM ?=
TIER    ?=

# The sources of the versions that are installed, for their tests.
SHIM_SOURCES := .deps/shim
DEBIAN_SOURCE = cd $(SHIM_SOURCES) && sed 's/^Types: deb$$/Types: deb-src/' /etc/apt/sources.list.d/debian.sources >sources.list.d/debian.sources && \
	apt-get -qq $(APT_SOURCES) update && apt-get -qq $(APT_SOURCES) source $(1)=$$(dpkg-query -W -f '$${source:Version}' $(2))
APT_SOURCES  := -o Dir::Etc::sourcelist=/dev/null -o Dir::Etc::sourceparts=$(CURDIR)/$(SHIM_SOURCES)/sources.list.d -o Dir::State::lists=$(CURDIR)/$(SHIM_SOURCES)/lists -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache=

shim-sources:
	$(call install-packages,$(SHIM_PACKAGES))
	@mkdir -p $(SHIM_SOURCES)/lists/partial $(SHIM_SOURCES)/sources.list.d
	@ls -d $(SHIM_SOURCES)/redis-*/ >/dev/null 2>&1 || { $(call DEBIAN_SOURCE,redis,redis-server); } || echo "note: no source of redis, so its tests are not run"
	@ls -d $(SHIM_SOURCES)/nodejs-*/ >/dev/null 2>&1 || { $(call DEBIAN_SOURCE,nodejs,nodejs); } || echo "note: no source of Node, so its tests are not run"

interop-shim: build shim-sources ## unmodified programs and their test suites on the kernel's stack and under millrace exec; writes docs/shim-programs.md (root; PROGRAM=redis and TIER="tier 0" select; MILLRACE_LTP, MILLRACE_LIBUV, MILLRACE_NATS name what is built)
	MILLRACE_LTP="$(MILLRACE_LTP)" MILLRACE_LIBUV="$(MILLRACE_LIBUV)" MILLRACE_NATS="$(MILLRACE_NATS)" MILLRACE_PROGRAMS=$(abspath $(BIN)/millrace) MILLRACE_REDIS="$$(ls -d $(CURDIR)/$(SHIM_SOURCES)/redis-*/ 2>/dev/null)" MILLRACE_NODE_SOURCE="$$(ls -d $(CURDIR)/$(SHIM_SOURCES)/nodejs-*/ 2>/dev/null)" \
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

CACHE_TESTS        ?= .deps/cache-tests
CACHE_TESTS_COMMIT := b55b8bda3dbb8c927c04e85bd8d496a8caa3e4ba

# Of its dependencies the command line needs one.
.deps/cache-tests:
	git init -q $@ && git -C $@ fetch -q --depth 1 https://github.com/http-tests/cache-tests $(CACHE_TESTS_COMMIT) && git -C $@ checkout -q FETCH_HEAD && \
	npm install --silent --no-audit --no-fund --prefix $@/.npm undici@7.4.0 && ln -s .npm/node_modules $@/node_modules || { rm -rf $@; exit 1; }

cache-tests: $(if $(filter .deps/%,$(CACHE_TESTS)),.deps/cache-tests) ## the HTTP working group's tests of caches against the gateway and nginx, fetched unless CACHE_TESTS names their folder; writes docs/cache-tests.md (needs node, npm, nginx)
	MILLRACE_CACHE_TESTS=$(abspath $(CACHE_TESTS)) MILLRACE_CACHE_TESTS_PAGE=$(abspath docs/cache-tests.md) $(GO) -C internal/testkit/interop test -count=1 -v -timeout 30m -run '^TestCacheTests$$' .

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

TLSFUZZER        ?= .deps/tlsfuzzer
TLSFUZZER_COMMIT := 14555fe211456c46deccc4b2d94751dbd894aece
TLSFUZZER_LIMIT  ?= 60
TLSFUZZER_TIME   ?= 30m
TLSFUZZER_SKIP   ?=
TLSLITE          := .deps/tlslite/bin/python

.deps/tlsfuzzer:
	git init -q $@ && git -C $@ fetch -q --depth 1 https://github.com/tlsfuzzer/tlsfuzzer $(TLSFUZZER_COMMIT) && git -C $@ checkout -q FETCH_HEAD || { rm -rf $@; exit 1; }

$(TLSLITE):
	python3 -m venv .deps/tlslite && .deps/tlslite/bin/pip install -q tlslite-ng==0.9.0b2 ecdsa==0.19.2 kyber-py==1.2.0 dilithium-py==1.5.1 || { rm -rf .deps/tlslite; exit 1; }

tlsfuzzer: $(if $(filter .deps/%,$(TLSFUZZER)),.deps/tlsfuzzer) $(TLSLITE) ## tlsfuzzer's scripts against crypto/tls and the gateway, TLSFUZZER_LIMIT (60) conversations of each, 0 for all; fetched unless TLSFUZZER names its folder
	MILLRACE_TLSFUZZER=$(abspath $(TLSFUZZER)) MILLRACE_TLSFUZZER_PYTHON=$(abspath $(TLSLITE)) MILLRACE_TLSFUZZER_LIMIT=$(TLSFUZZER_LIMIT) \
	MILLRACE_TLSFUZZER_TIME=$(TLSFUZZER_TIME) MILLRACE_TLSFUZZER_SKIP='$(TLSFUZZER_SKIP)' \
		$(GO) -C internal/testkit/interop test -count=1 -v -timeout 0 -run '^TestTLSFuzzer$$' .

# Autobahn's test suite needs Python 2.7, for which pip knows no dependencies any more: they are named here. Two of its imports are
# for other modes, and get what they need from the standard library.
AUTOBAHN_PYTHON   ?= python2.7
AUTOBAHN_PACKAGES := autobahntestsuite==25.10.1 autobahn==0.10.9 wsaccel==0.6.2 Twisted==19.10.0 zope.interface==5.4.0 txaio==2.1.0 six==1.17.0 incremental==21.3.0 \
	constantly==15.1.0 Automat==0.8.0 hyperlink==19.0.0 idna==2.10 attrs==20.3.0 PyHamcrest==1.10.1 typing==3.10.0.0 ujson==2.0.3 pyOpenSSL==19.1.0 \
	cryptography==3.3.2 cffi==1.15.1 pycparser==2.21 ipaddress==1.0.23 enum34==1.1.10 klein==19.6.0 Jinja2==2.11.3 MarkupSafe==1.1.1 Werkzeug==0.16.1 Tubes==0.2.1

.deps/autobahn/wstest:
	$(AUTOBAHN_PYTHON) -m pip install -q --no-deps --target .deps/autobahn $(AUTOBAHN_PACKAGES) || { rm -rf .deps/autobahn; exit 1; }
	touch .deps/autobahn/zope/__init__.py
	echo 'from unittest import *' >.deps/autobahn/unittest2.py
	printf '#!/bin/sh\nPYTHONPATH=%s exec %s -c "from autobahntestsuite.wstest import run; run()" "$$@"\n' $(abspath .deps/autobahn) $$(command -v $(AUTOBAHN_PYTHON)) >$@
	chmod +x $@

autobahn: .deps/autobahn/wstest ## Autobahn's cases of WebSocket against package websocket and the gateway (needs Python 2.7, AUTOBAHN_PYTHON)
	MILLRACE_AUTOBAHN=$(abspath .deps/autobahn/wstest) $(GO) -C internal/testkit/interop test -count=1 -v -timeout 0 -run '^TestAutobahn$$' .

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
		MILLRACE_SCREENSHOT=$(SCREENSHOT) $(GO) -C internal/testkit/interop test -count=1 -v -timeout 30m -run '^TestPeers$$|^TestWebTransport' .

VM_PACKAGES := qemu-system-x86 busybox-static cpio kmod iproute2 bpftool xdp-tools

VHOST_PACKAGES := qemu-system-x86 busybox-static cpio kmod iproute2 ethtool curl iperf3

interop-vhost: build ## a Linux guest in QEMU over two vhost-user ports: curl through a gateway, iperf3 through forward; split and packed rings (a minute; needs no KVM, root)
	$(call install-packages,$(VHOST_PACKAGES))
	internal/testkit/vm/vhost.sh $(BIN)/millrace
	PACKED=1 internal/testkit/vm/vhost.sh $(BIN)/millrace

RDMA_PACKAGES := qemu-system-x86 busybox-static cpio kmod iproute2 rdma-core ibverbs-utils ibverbs-providers perftest rdmacm-utils python3-pyverbs qperf libfabric-bin

interop-rdma: ## RDMA with Linux's rdma_rxe in a guest in QEMU: pingpongs, WRITE, READ, atomics, 1 % loss, rping and ucmatose as client and as server (2 minutes; needs no KVM, root); rdma-core's Python tests, perftest -R, qperf and fi_pingpong under millrace exec --rdma
	$(call install-packages,$(RDMA_PACKAGES))
	@mkdir -p .deps/vm && $(GO) test -c -ldflags=-w -o .deps/vm/rdma.test ./rdma
	internal/testkit/vm/rxe.sh .deps/vm/rdma.test -test.v -test.run Rxe
	$(call install-packages,python3-pyverbs)
	@$(MAKE) -s preload
	MILLRACE_PYVERBS=1 MILLRACE_RDMA_FOREIGN=1 MILLRACE_MUST_NETNS=1 $(GO) -C cmd test -count=1 -v -run '^TestExecRDMA(Python|Foreign)$$' ./millrace

VM_TESTS    := filter/ebpf pmd/xdp pmd/afxdp l4/control
VM_FLAGS    ?=

# An emulated machine with Debian's kernel and nothing but these tests: some kernels refuse extension programs of eBPF,
# which several XDP programs on one interface need.
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

# libpcap's source and its tests, for the oracle of filter/expr. Nothing of it is committed.
LIBPCAP_COMMIT := f26ae497fce4cda04355806101dd8d3e851d5672
LIBPCAP        ?= bin/libpcap

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

crs-tests: ## the regression tests of OWASP's Core Rule Set, through a gateway with a backend
	MILLRACE_CRS_TESTS=all $(GO) -C cmd test -count=1 -v -timeout 30m -run '^TestCoreRuleSet$$' ./coraza

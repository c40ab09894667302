# DPDK's shim: one library for each ABI number of DPDK, against the one that is installed.

.PHONY: dpdk dpdk-test dpdk-vm dpdk-soak dist-dpdk

DPDK_PC   := libdpdk
DPDK_SRC  := $(wildcard pmd/dpdk/shim/*.c)
# The ABI number is that of the library's name: librte_eal.so.23.0.
DPDK_ABI   = $(shell basename "$$(readlink -f "$$(pkg-config --variable=libdir $(DPDK_PC))/librte_eal.so")" | sed 's/^librte_eal\.so\.//; s/\..*//')
DPDK_SHIM  = $(BIN)/libmillrace-dpdk-$(DPDK_ABI).so

dpdk: ## build the shim of DPDK's drivers for the DPDK that is installed (bin/libmillrace-dpdk-ABI.so)
	@pkg-config --exists $(DPDK_PC) || { echo "DPDK is not installed: apt-get install dpdk libdpdk-dev"; exit 1; }
	@mkdir -p $(BIN)
	$(CC) -std=c11 -O3 -fPIC -shared -Wall -Wextra -Werror -fvisibility=hidden -DALLOW_EXPERIMENTAL_API -DMRD_ABI='"$(DPDK_ABI)"' \
		$$(pkg-config --cflags $(DPDK_PC)) -o $(DPDK_SHIM).new $(DPDK_SRC) -Wl,--no-undefined -Wl,--build-id=none \
		-lrte_ethdev -lrte_mempool -lrte_mbuf -lrte_ring -lrte_eal
	@mv $(DPDK_SHIM).new $(DPDK_SHIM) && echo $(DPDK_SHIM)

DPDK_PACKAGES := dpdk dpdk-dev libdpdk-dev pkg-config tshark iperf3

dpdk-test: ## the tests of DPDK's drivers on its virtual devices, which install DPDK (root)
	$(call install-packages,$(DPDK_PACKAGES))
	@$(MAKE) -s dpdk
	MILLRACE_DPDK_TEST=1 MILLRACE_DPDK_SHIM=$(abspath $(BIN)) MILLRACE_MUST_NETNS=1 $(GO) test -count=1 -timeout 30m ./pmd/dpdk/... ./pmd/virtio/... ./pmd/device
	MILLRACE_DPDK_TEST=1 MILLRACE_DPDK_SHIM=$(abspath $(BIN)) MILLRACE_MUST_NETNS=1 $(GO) test -count=1 -timeout 30m -run DPDK ./internal/testkit/conformance ./node
	MILLRACE_DPDK_TEST=1 MILLRACE_DPDK_SHIM=$(abspath $(BIN)) MILLRACE_MUST_NETNS=1 $(GO) -C cmd test -count=1 -tags cuda -timeout 30m -run DPDK ./millrace

# What of DPDK the guest gets, beside the libraries that these link. EAL loads the drivers of a folder.
DPDK_VM_DRIVERS := net_tap bus_vdev bus_pci mempool_ring

dpdk-vm: dpdk ## rules of net_tap (rte_flow) in a guest whose kernel has its classifiers (a minute; needs no KVM, root)
	$(call install-packages,qemu-system-x86 busybox-static cpio kmod iproute2)
	@rm -rf .deps/vm/dpdk && mkdir -p .deps/vm/dpdk && cp $(DPDK_SHIM) .deps/vm/dpdk/
	$(GO) test -c -ldflags=-w -o .deps/vm/dpdk/test ./pmd/dpdk
	MODULES="veth tun sch_multiq sch_ingress cls_flower cls_bpf act_skbedit act_bpf act_gact act_mirred" TOOLS="/usr/sbin/ip /usr/sbin/tc" \
		FILES="$(DPDK_VM_DRIVERS:%=/lib/x86_64-linux-gnu/librte_%.so.$(DPDK_ABI))" internal/testkit/vm/run.sh .deps/vm/dpdk \
		'at=/usr/lib/x86_64-linux-gnu/dpdk/pmds-$(DPDK_ABI).0; mkdir -p /var/run $$at; \
		for l in $(DPDK_VM_DRIVERS); do ln -s /lib/x86_64-linux-gnu/librte_$$l.so.$(DPDK_ABI) $$at/librte_$$l.so; done; \
		MILLRACE_MUST_NETNS=1 MILLRACE_DPDK_TEST=1 MILLRACE_DPDK_FLOWER=1 MILLRACE_DPDK_SHIM=/t ./test -test.v -test.run RulesOfTAPDevice'

DPDK_SOAK := 10m

dpdk-soak: dpdk ## a gateway on DPDK's devices with exception paths for 10 minutes (DPDK_SOAK=1h): its memory stays flat (root)
	MILLRACE_DPDK_TEST=1 MILLRACE_DPDK_SOAK=$(DPDK_SOAK) MILLRACE_DPDK_SHIM=$(abspath $(BIN)) MILLRACE_MUST_NETNS=1 $(GO) -C cmd test -v -count=1 -tags cuda -timeout 0 -run DPDKSoak ./millrace

# Packages for the DPDK that is installed, of this machine's architecture: a shim is compiled against one ABI.
dist-dpdk: STAGE = $(DIST)/stage/dpdk$(DPDK_ABI)
dist-dpdk: ARCH = $(shell $(GO) env GOHOSTARCH)
dist-dpdk: FILL = sed 's|@VERSION@|$(DIST_VERSION)|; s|@ARCH@|$(ARCH)|; s|@STAGE@|$(STAGE)|; s|@ABI@|$(DPDK_ABI)|g; s|@RELEASE@|'$$(($(DPDK_ABI) - 1))'.11|'
dist-dpdk: dpdk build-cuda ## tarball, .deb and .rpm of millrace-cuda and the shim for the DPDK that is installed, in dist/
	@rm -rf $(STAGE) && mkdir -p $(STAGE)/usr
	@GOBIN=$(CURDIR)/$(BIN) $(GO) install $(NFPM) || { echo "nfpm could not be had: $(NFPM)"; exit 1; }
	@install -Dm755 $(BIN)/millrace-cuda $(STAGE)/usr/bin/millrace-cuda
	@install -Dm644 $(DPDK_SHIM) $(STAGE)/usr/lib/millrace/$(notdir $(DPDK_SHIM)) && strip $(STAGE)/usr/lib/millrace/*.so
	@install -Dm644 docs/dpdk.md $(STAGE)/usr/share/doc/millrace-dpdk$(DPDK_ABI)/dpdk.md
	@install -Dm644 LICENSE $(STAGE)/usr/share/doc/millrace-dpdk$(DPDK_ABI)/copyright
	@find $(STAGE) -exec touch -h -d @$(DIST_EPOCH) {} +
	@tar -C $(STAGE) --sort=name --format=ustar --mtime=@$(DIST_EPOCH) --owner=0 --group=0 --numeric-owner --transform 's|^\.|millrace-dpdk$(DPDK_ABI)-$(DIST_VERSION)|' -cf - . \
		| gzip -9n >$(DIST)/millrace-dpdk$(DPDK_ABI)-$(DIST_VERSION)-linux-$(ARCH).tar.gz
	@$(FILL) pmd/dpdk/nfpm.yaml >$(STAGE).yaml
	@for p in deb rpm; do SOURCE_DATE_EPOCH=$(DIST_EPOCH) $(BIN)/nfpm package --config $(STAGE).yaml --packager $$p --target $(DIST)/ >/dev/null || exit 1; done
	@rm -rf $(STAGE) $(STAGE).yaml
	@ls $(DIST)/*dpdk$(DPDK_ABI)*

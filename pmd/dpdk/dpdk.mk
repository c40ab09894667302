# DPDK's shim: one library for each ABI number of DPDK, against the one that is installed.

.PHONY: dpdk dpdk-test

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

DPDK_PACKAGES := dpdk dpdk-dev libdpdk-dev pkg-config

dpdk-test: ## the tests of DPDK's drivers on its virtual devices, which install DPDK (root)
	$(call install-packages,$(DPDK_PACKAGES))
	@$(MAKE) -s dpdk
	MILLRACE_DPDK_TEST=1 MILLRACE_DPDK_SHIM=$(abspath $(BIN)) MILLRACE_MUST_NETNS=1 $(GO) test -count=1 -timeout 30m ./pmd/dpdk/... ./pmd/device
	MILLRACE_DPDK_TEST=1 MILLRACE_DPDK_SHIM=$(abspath $(BIN)) MILLRACE_MUST_NETNS=1 $(GO) test -count=1 -timeout 30m -run DPDK ./internal/testkit/conformance ./node
	MILLRACE_DPDK_TEST=1 MILLRACE_DPDK_SHIM=$(abspath $(BIN)) MILLRACE_MUST_NETNS=1 $(GO) -C cmd test -count=1 -tags cuda -timeout 30m -run DPDK ./millrace

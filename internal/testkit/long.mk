# The tests in other forms: for long, with random input, under the race detector, and alone.

FUZZTIME    ?= 20s
SOAK        ?= 60s
LOAD        ?=
CONNECTIONS ?= 1000000
MEASUREMENTS ?= 50000

.PHONY: race netns list-netns fuzz soak soak-upgrades soak-shim timing performance

# What tests in network namespaces import, if only by way of others.
TESTNET  := github.com/millrace/millrace/internal/testkit/testnet

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

list-netns:
	@for m in $(MODULES); do $(call netns-packages,$$m); done

# Packages whose code works on secrets. Their branches are a part of the other tests too, with fewer secrets.
SECRETIVE := ./gpukern/aead ./gpukern/digest ./gpukern/ecdsa ./gpukern/montgomery ./gpukern/x25519

timing: ## whether branches and CPU time of signatures and ciphers depend on secrets (Welch's t of MEASUREMENTS)
	MILLRACE_TIMING=$(MEASUREMENTS) $(GO) test -count=1 -p 1 -timeout 60m -v -run 'DependsOnNoSecret|DependOnNoSecret' $(SECRETIVE)

fuzz: ## run every fuzzer for FUZZTIME (20s)
	@for m in $(MODULES); do for pkg in $$($(GO) -C $$m list ./...); do \
		for f in $$($(GO) -C $$m test -list '^Fuzz' $$pkg | grep '^Fuzz'); do \
			echo "== $$pkg $$f"; $(GO) -C $$m test -run '^$$' -fuzz "^$$f\$$" -fuzztime $(FUZZTIME) $$pkg || exit 1; \
		done; \
	done; done

soak: ## the long forms of tests, for SOAK (60s) each: the configuration changes under load, 10 000 services, the forwarding function fuzzed, random requests through the proxy, soak-upgrades, 100 reloads of 30 000 inspection rules, CONNECTIONS (1000000) of programs of millrace exec, 600 clients with 2 MB both ways, 10 GB of RDMA each way at 2 % loss and a million queue pairs, soak-shim
	MILLRACE_MUST_NETNS=1 MILLRACE_SOAK=$(SOAK) $(GO) test -count=1 -timeout 0 -v -run "TestNoConnectionBreaks|TestRealProgramsAreServed" ./l4/control
	MILLRACE_MUST_NETNS=1 MILLRACE_SOAK=$(SOAK) $(GO) -C cmd test -count=1 -v -run TestGatewayWithManyServices ./millrace
	$(GO) test -timeout 0 -run '^$$' -fuzz '^FuzzHandle$$' -fuzztime $(SOAK) ./l4/control
	$(MAKE) soak-upgrades
	MILLRACE_SOAK=$(SOAK) $(GO) test -count=1 -timeout 0 -v -run TestRandomRequests ./l7/proxy
	MILLRACE_SOAK=$(SOAK) $(GO) test -count=1 -timeout 0 -v -run TestReloadsUnderTrafficKeepMemory ./l4/inspection
	MILLRACE_SHIM_CONNECTIONS=$(CONNECTIONS) $(GO) test -count=1 -timeout 0 -v -run TestConnectionsLeaveNothing ./internal/testkit/shimtest
	MILLRACE_SOAK=$(SOAK) $(GO) test -count=1 -timeout 0 -v -run 'TestBulkOverLossyLink|TestQueuePairsLeaveNothing' ./rdma ./rdma/transport
	MILLRACE_MUST_NETNS=1 MILLRACE_CROWD=2000000 $(GO) test -count=1 -v -run TestCrowdFillsNoRing ./internal/app/stackd
	$(MAKE) soak-shim

# Half of saturation is measured by one test at a time.
soak-upgrades: ## ten upgrades in SOAK (60s) under requests, WebSockets and downloads; LOAD=half offers half of what saturates the machine (root)
	MILLRACE_SOAK=$(SOAK) MILLRACE_SOAK_LOAD=$(LOAD) $(GO) -C cmd test -count=1 -timeout 0 -v $(if $(LOAD),-parallel 1) -run 'TestUpgradesLoseNothing|TestUpgradesCarryConnections' ./millrace

soak-shim: build ## nginx, redis, iperf3, curl, wrk and UDP under millrace exec at 1 % loss, for SOAK (60s) on each tier (root)
	MILLRACE_PROGRAMS=$(abspath $(BIN)/millrace) MILLRACE_MUST_NETNS=1 MILLRACE_SOAK=$(SOAK) $(GO) -C internal/testkit/interop test -count=1 -timeout 0 -v -run '^TestSoak$$' ./programs

performance: ## write docs/performance.md and the README's table of bench/results/16cores
	$(GO) -C bench run . -performance

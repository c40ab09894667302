# All tests that need no GPU.

.PHONY: test compiled test-first test-cmd test-others

# As root every test that needs namespaces, rights or programs must run: a skip is a failure.
# Most tests wait more than they compute: modules run beside each other, and more tests at once than there are CPUs.
# -vet=all is all of `go vet`: a pass before the tests would have each package vetted a second time, in part.
test: deps preload compiled ## all tests that need no GPU
	@if [ "$$(id -u)" = 0 ]; then export MILLRACE_MUST_NETNS=1; \
	else echo "note: not root, so tests that need network namespaces are skipped"; fi; \
	$(MAKE) -k -j 3 --no-print-directory test-first test-cmd test-others || { echo "tests failed"; exit 1; }

# Go programs that run at the same time compile what they share once each: here it is compiled once for all modules.
compiled: generate-check
	@for m in $(MODULES); do $(GO) -C $$m list -export -deps ./... >/dev/null || exit 1; done

# The packages whose tests take longest begin first, so that none runs alone at the end.
test-first:
	@internal/tools/testmodules.sh "$(GO)" .:./l4/control,./shim,./l7/proxy,./socket,./node
	@$(GO) test -tags debug ./ring ./tcp/loss # what only these builds check

test-cmd:
	@internal/tools/testmodules.sh "$(GO)" cmd

test-others:
	@internal/tools/testmodules.sh "$(GO)" $(filter-out . cmd,$(MODULES))

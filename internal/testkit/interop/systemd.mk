# The unit of the gateway under systemd itself, as process 1 of namespaces of its own.

.PHONY: interop-systemd

interop-systemd: build ## start, reload, upgrade, restart and stop the shipped unit under systemd as process 1 of its own namespaces (root)
	MILLRACE_SYSTEMD=$(abspath $(BIN)/millrace) $(GO) -C internal/testkit/interop test -count=1 -timeout 10m -v -run '^TestUpgradesUnderSystemd$$' .

# What targets need: Go itself, root, and packages of Debian.

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

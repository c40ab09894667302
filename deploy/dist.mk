# What is published: tarballs, packages of Debian and RPM, a container image, bills of materials, checksums. The same commit gives the same bytes:
# nothing has the time or the folder of the build.

DIST       := dist
DIST_ARCHS ?= amd64 arm64
NFPM       := github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.43.4
# The version of packages begins with a digit: that of a tag, or 0.0.0 and the commit.
DIST_VERSION = $(shell echo $(VERSION) | sed 's/^v//; s/-/+/g; /^[0-9]*\.[0-9]/!s/^/0.0.0~/')
DIST_EPOCH   = $(shell git log -1 --format=%ct)

.PHONY: dist dist-arch dist-pack dist-check module-check build-waf

# no_fs_access: Coraza writes no uploads of clients to /tmp, and starts where there is none, as in a container.
build-waf: preload ## build bin/millrace-waf, static, which has a web application firewall
	@mkdir -p $(BIN)
	$(GO) -C cmd build -trimpath -tags waf,no_fs_access -ldflags '$(LDFLAGS)' -o ../$(BIN)/millrace-waf ./millrace

dist: build ## tarballs, .deb, .rpm, a container image, bills of materials and checksums, in dist/
	@rm -rf $(DIST) && mkdir -p $(DIST)
	@GOBIN=$(CURDIR)/$(BIN) $(GO) install $(NFPM) || { echo "nfpm could not be had: $(NFPM)"; exit 1; }
	@for a in $(DIST_ARCHS); do $(MAKE) -s dist-arch ARCH=$$a || exit 1; done
	@if pkg-config --exists libdpdk; then $(MAKE) -s dist-dpdk; else echo "note: no packages for DPDK, which is not installed here"; fi
	@for p in millrace millrace-waf; do \
		$(GO) -C cmd run ./ociimage -program $$p -version "$$(echo '$(DIST_VERSION)' | tr '+~' '--')" -revision "$$(git rev-parse HEAD)" -epoch $(DIST_EPOCH) \
			-out $(CURDIR)/$(DIST)/$$p-$(DIST_VERSION)-linux.oci.tar $(foreach a,$(DIST_ARCHS),$(a)=$(CURDIR)/$(DIST)/stage/$$p-$(a)) || exit 1; done
	@cd $(DIST) && sha256sum -- *.tar.gz *.oci.tar *.deb *.rpm *.json >SHA256SUMS && rm -rf stage && cat SHA256SUMS

# One architecture: bin/millrace of this machine writes the manual pages and completions, which are the same everywhere. The libraries of
# `millrace exec` are embedded where a C compiler for the architecture made them, as `make preload` does for this machine alone.
dist-arch: STAGE = $(DIST)/stage/millrace-$(ARCH)
dist-arch: WAF = $(DIST)/stage/millrace-waf-$(ARCH)
dist-arch:
	@rm -rf $(STAGE) $(WAF) && mkdir -p $(STAGE)/usr/bin $(WAF)/usr/bin
	@host=$$(mktemp -d); if [ $(ARCH) != "$$($(GO) env GOHOSTARCH)" ]; then for f in $(PRELOAD) $(VERBSLIBS); do [ ! -e $$f ] || mv $$f $$host/; done; fi; \
	GOARCH=$(ARCH) $(GO) -C cmd build -trimpath -buildvcs=false -ldflags '$(LDFLAGS)' -o ../$(STAGE)/usr/bin/millrace ./millrace && \
	GOARCH=$(ARCH) $(GO) -C cmd build -trimpath -buildvcs=false -tags waf,no_fs_access -ldflags '$(LDFLAGS)' -o ../$(WAF)/usr/bin/millrace-waf ./millrace; status=$$?; \
	for f in $(PRELOAD) $(VERBSLIBS); do [ ! -e $$host/$${f##*/} ] || mv $$host/$${f##*/} $$f; done; rmdir $$host; exit $$status
	@$(BIN)/millrace man --section 1 --dir $(STAGE)/usr/share/man/man1 >/dev/null
	@$(BIN)/millrace man --section 5 --dir $(STAGE)/usr/share/man/man5 >/dev/null
	@gzip -9n $(STAGE)/usr/share/man/man1/* $(STAGE)/usr/share/man/man5/*
	@install -d $(STAGE)/usr/share/bash-completion/completions $(STAGE)/usr/share/zsh/vendor-completions $(STAGE)/usr/share/fish/vendor_completions.d
	@$(BIN)/millrace completion bash >$(STAGE)/usr/share/bash-completion/completions/millrace
	@$(BIN)/millrace completion zsh >$(STAGE)/usr/share/zsh/vendor-completions/_millrace
	@$(BIN)/millrace completion fish >$(STAGE)/usr/share/fish/vendor_completions.d/millrace.fish
	@install -d $(STAGE)/lib/systemd/system $(STAGE)/etc/millrace
	@sed 's|/usr/local/bin/|/usr/bin/|' deploy/millrace-gateway.service >$(STAGE)/lib/systemd/system/millrace-gateway.service
	@sed 's|/usr/local/share/|/usr/share/|' deploy/gateway.yaml >$(STAGE)/etc/millrace/gateway.yaml
	@install -Dm644 deploy/millrace.sysusers $(STAGE)/usr/lib/sysusers.d/millrace.conf
	@install -Dm644 LICENSE $(STAGE)/usr/share/doc/millrace/copyright
	@install -Dm644 CHANGELOG.md $(STAGE)/usr/share/doc/millrace/CHANGELOG.md
	@install -d $(STAGE)/usr/share/doc/millrace/examples/certs $(STAGE)/usr/share/doc/millrace/examples/modes $(STAGE)/usr/share/doc/millrace/examples/www
	@install -m644 $(filter-out %_test.go %.go,$(wildcard examples/*.*)) $(STAGE)/usr/share/doc/millrace/examples
	@install -m644 $(wildcard examples/certs/*) $(STAGE)/usr/share/doc/millrace/examples/certs
	@install -m644 $(wildcard examples/modes/*) $(STAGE)/usr/share/doc/millrace/examples/modes
	@install -m644 $(wildcard examples/www/*) $(STAGE)/usr/share/doc/millrace/examples/www
	@install -d $(STAGE)/usr/share/doc/millrace/observing
	@install -m644 deploy/prometheus/*.yaml deploy/grafana/*.json $(STAGE)/usr/share/doc/millrace/observing
	@install -d $(WAF)/usr/share/man/man1 $(WAF)/lib/systemd/system/millrace-gateway.service.d $(WAF)/etc/millrace $(WAF)/usr/share/doc/millrace
	@mv $(STAGE)/usr/share/man/man1/millrace-waf.1.gz $(WAF)/usr/share/man/man1/
	@install -m644 deploy/millrace-waf.conf $(WAF)/lib/systemd/system/millrace-gateway.service.d/waf.conf
	@cp $(STAGE)/etc/millrace/gateway.yaml $(WAF)/etc/millrace/ && cp $(STAGE)/usr/share/doc/millrace/copyright $(WAF)/usr/share/doc/millrace/
	@$(MAKE) -s dist-pack PROGRAM=millrace STAGE=$(STAGE)
	@$(MAKE) -s dist-pack PROGRAM=millrace-waf STAGE=$(WAF)

# A staged folder as a tarball, packages and a bill of materials. The file of /etc is in the tarball and the image of each program, and in one
# package.
dist-pack:
	@find $(STAGE) -type d -exec chmod 755 {} + && find $(STAGE) -type f ! -path '*/bin/*' -exec chmod 644 {} + && chmod 755 $(STAGE)/usr/bin/$(PROGRAM)
	@find $(STAGE) -exec touch -h -d @$(DIST_EPOCH) {} +
	@tar -C $(STAGE) --sort=name --format=ustar --mtime=@$(DIST_EPOCH) --owner=0 --group=0 --numeric-owner --transform 's|^\.|$(PROGRAM)-$(DIST_VERSION)|' -cf - . \
		| gzip -9n >$(DIST)/$(PROGRAM)-$(DIST_VERSION)-linux-$(ARCH).tar.gz
	@sed 's|@VERSION@|$(DIST_VERSION)|; s|@ARCH@|$(ARCH)|; s|@STAGE@|$(STAGE)|' $(if $(filter millrace,$(PROGRAM)),deploy/nfpm.yaml,deploy/nfpm-waf.yaml) >$(STAGE).yaml
	@for p in deb rpm; do SOURCE_DATE_EPOCH=$(DIST_EPOCH) $(BIN)/nfpm package --config $(STAGE).yaml --packager $$p --target $(DIST)/ >/dev/null || exit 1; done
	@$(GO) run ./deploy/sbom $(STAGE)/usr/bin/$(PROGRAM) '$(DIST_VERSION)' >$(DIST)/$(PROGRAM)-$(DIST_VERSION)-linux-$(ARCH).cdx.json

module-check: ## build the README's example outside, with the root module as `go get` has it (10 s)
	@deploy/modulecheck.sh

dist-check: module-check ## build dist twice, and compare; unpack the packages of this machine, and run what is in them
	@deploy/distcheck.sh

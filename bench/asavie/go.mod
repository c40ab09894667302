module github.com/millrace/millrace/bench/asavie

go 1.26.0

require (
	github.com/asavie/xdp v0.3.3
	golang.org/x/sys v0.49.0
)

require (
	github.com/cilium/ebpf v0.4.0 // indirect
	github.com/vishvananda/netlink v1.1.0 // indirect
	github.com/vishvananda/netns v0.0.0-20191106174202-0a2b9b5464df // indirect
)

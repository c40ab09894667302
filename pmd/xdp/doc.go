// Package xdp attaches XDP programs to network interfaces, several to one, by version 2 of the dispatcher protocol of
// libxdp (xdp-tools, lib/libxdp/protocol.org). Programs of this package and of libxdp's users, such as xdp-loader and
// xdp-filter, share an interface, and each side adds and removes its own.
//
// The kernel runs one XDP program for an interface. That program, the dispatcher, calls up to ten functions in turn, and
// each component replaces one of them (BPF_PROG_TYPE_EXT, Linux 5.10). The dispatcher's configuration is its .rodata map:
// for each component the priority, which orders them, and the bitmap of actions that continue the chain. To add or to
// remove a component, a whole new dispatcher is built beside the attached one and takes its place by one netlink message
// that names the program it expects there (IFLA_XDP_EXPECTED_FD). A packet meets the old set or the new one.
//
// This package is the only one that attaches at XDP. Store objects of filter/ebpf stay when the process ends (Update, Attach);
// the steering program of pmd/afxdp and the defence of filter/ebpf end with it (Hold), even after SIGKILL, by their bpf_link:
// alone on an interface, and as components of a dispatcher that this process has built. Where another process has rebuilt the
// dispatcher they stay after SIGKILL until this package next changes it (Member).
//
// # Ownership
//
// The pins below bpffs hold the components, as the protocol says, so that they stay when the process ends:
//
//	BPFFS/xdp/dispatch-IFINDEX-PROGRAM/prog0-prog, prog0-link, prog1-prog ...
//
// A record of our own names the network namespace (by its cookie) of each dispatcher, because two namespaces have
// interfaces of one index. A process that is killed between two steps leaves a dispatcher that is pinned and attached
// nowhere. The next change to an interface finds it by its record and removes it.
//
//	BPFFS/millrace/dispatchers/COOKIE-IFINDEX-PROGRAM
//
// The package does not parse object files (filter/ebpf does) and loads no program but the dispatcher.
package xdp

// Package kernelflows forwards established connections of the gateway in the kernel, by eBPF programs at the ingress
// hook of its devices (tc, attached by tcx). It implements fastpath.Forwarder.
//
// Packets come from the interface. A program looks up device, addresses, ports and protocol in a hash map, applies the
// conditions under which the gateway's loop would forward the packet and note nothing but sequence numbers, counts it,
// rewrites the headers and redirects it to the device that it leaves by. Whatever it does not forward goes on to where it
// would have gone without the program: to the driver and its loop.
//
// Drivers take packets before tc sees them, so the decision is made before them:
//
//	AF_PACKET   the filter of the packet sockets judges; tc runs next on that CPU, for the same packet, and does what the
//	            filter has found. There is one decision, so no packet is forwarded twice or lost between two
//	AF_XDP      a program before the steering program judges without counting, and leaves what fits to the kernel, whose
//	            tc program judges again. A packet that no longer fits by then is not forwarded (Stats, "lost")
//
// The loop writes a connection into memory that both sides map, and reads counters, time and sequence numbers from it.
// Only entering and removing keys takes system calls, one for many keys.
//
// All programs and links end with the process, whatever ends it: nothing stays attached. Needed are Linux 6.6 (tcx),
// CAP_BPF and CAP_NET_ADMIN.
//
// The package does not know what a connection is: the loop says what to match and what to write. It forwards untagged
// Ethernet frames from IPv4 to IPv4 and from IPv6 to IPv6. Sequence numbers: RFC 9293 3.4; checksums: RFC 1624.
// Design and measurements: docs/design/024-kernel-flows.md.
package kernelflows

//go:generate go tool -modfile=../../internal/tools/go.mod bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -no-global-types -cflags "-O2 -g -Wall -Werror -mcpu=v3 -idirafter /usr/include/x86_64-linux-gnu -idirafter /usr/include/aarch64-linux-gnu" flows bpf/flows.c

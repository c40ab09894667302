// Package afxdp is the driver for Linux network interfaces: AF_XDP sockets, fed by an XDP program that
// redirects the packets to chosen addresses and ports and passes all others to the kernel.
//
//	pool, _ := arena.Cut(16384)
//	dev, err := afxdp.Open(afxdp.Config{
//		Interface: "eth0",
//		Pools:     []*ring.Pool{pool},
//		Rules:     []pmd.Rule{{Addr: vip, Proto: 6, PortLo: 443}, {Addr: vip, Kind: pmd.Neighbor}},
//	})
//	n, err := dev.Queues[0].Rx(now, batch)
//
// Packets come from the kernel's XDP hook into frames of the caller's arena and leave by the
// device's transmit function. The arena is registered as it is (UMEM), so the same bytes can be
// registered with CUDA or DPDK too.
//
// The program is attached to the interface by a bpf_link whose only holder is this process: however the process ends,
// SIGKILL included, the kernel detaches the program and gets all packets again. That needs Linux 5.9 (BPF_LINK_CREATE for
// XDP); sockets that share a UMEM on several queues need 5.10, multi-buffer 6.6.
//
// # Ownership
//
// A queue has four rings (Documentation/networking/af_xdp.rst):
//
//	fill        free frames        driver -> kernel
//	rx          received packets   driver <- kernel
//	tx          packets to send    driver -> kernel
//	completion  sent frames        driver <- kernel
//
// Two sets per queue record the frames that the kernel holds: those to receive into and those to send.
// Every address that comes back is checked against them before it is used, because a wrong one would
// corrupt a packet of another owner. Close returns the frames of both sets to the pool, whatever state
// the device is in.
//
// The package does not route, resolve neighbours or parse protocols beyond what steering needs.
// Design and measurements: docs/design/002-afxdp.md. Kernel interface:
// Documentation/networking/af_xdp.rst.
package afxdp

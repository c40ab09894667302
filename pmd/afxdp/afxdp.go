// Package afxdp is the driver for Linux network interfaces: AF_XDP sockets on rings of our own, fed
// by an XDP program that takes our addresses and ports and leaves all other packets to the kernel.
//
//	pool, _ := arena.Cut(16384)
//	dev, err := afxdp.Open(afxdp.Config{
//		Interface: "eth0",
//		Pools:     []*ring.Pool{pool},
//		Rules:     []pmd.Rule{{Addr: vip, Proto: 6, PortLo: 443}, {Addr: vip, Match: pmd.Neighbor}},
//	})
//	n, err := dev.Queues[0].Rx(now, batch)
//
// Packets come from the kernel's XDP hook into frames of the caller's arena and leave by the
// device's transmit function. The arena is registered as it is (UMEM), so the same bytes can be
// registered with CUDA or DPDK too.
//
// The program hangs on the interface by a bpf_link whose only holder is this process: however the
// process ends, SIGKILL included, the kernel takes the program off and gets all packets again.
//
// Frames. What the kernel holds is written down in two ledgers per queue, one for frames to receive
// into and one for frames to send. Every address that comes back is checked against them before it
// is used, and Close returns what is left to the pool, whatever state the device is in.
//
// The package does not route, resolve neighbours or know protocols beyond what steering looks at.
// Design and measurements: docs/design/002-afxdp.md. Kernel interface:
// Documentation/networking/af_xdp.rst.
package afxdp

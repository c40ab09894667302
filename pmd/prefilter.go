package pmd

import "golang.org/x/sys/unix"

// Prefilter is programs in the kernel that see packets of an interface before the filter of a driver does. What they
// take does not come to the driver. The file descriptors stay the Prefilter's.
type Prefilter struct {
	// Socket returns a filter for packet sockets that continues with a classic BPF program where it takes nothing. A later
	// call replaces that program in the same filter.
	Socket func(rules []unix.SockFilter) (fd int, err error)

	// XDP returns an XDP program that continues with the one at next where it takes nothing. frags says that both are
	// aware of packets in several buffers.
	XDP func(next int, frags bool) (fd int, err error)
}

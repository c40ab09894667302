package transport

import "github.com/millrace/millrace/rdma/roce"

// Packet sequence numbers live on a circle of 2^24: a is before b when b lies within the half circle ahead of it. Windows are
// far below 2^23, so that this holds for all that are compared (9.7.2).

// distance returns how far b lies ahead of a: negative where it is before.
func distance(a, b uint32) int32 { return int32((b-a)<<8) >> 8 }

// add returns the number n behind a.
func add(a, n uint32) uint32 { return (a + n) & roce.Mask24 }

// packets returns the number of packets of a message; an empty one has one (9.7.2).
func packets(length, mtu uint32) uint32 { return max(1, length/mtu+min(1, length%mtu)) }

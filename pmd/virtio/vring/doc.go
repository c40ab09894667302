// Package vring implements virtqueues, split and packed (virtio 1.2, 2.7 and 2.8), from both sides: Device is the side that
// receives buffers and returns them as used, Driver the side that offers them.
//
// The memory of a ring is shared with another process that may be hostile, a guest of a virtual machine for one. So each field of a ring
// is loaded once and checked before it is used, every address is translated with its bounds (Memory), chains are
// bounded by the size of the ring, and what the package needs later is kept in memory of its own. What a guest gets wrong is
// one of two kinds of errors:
//
//   - A chain that is unusable (ErrChain) costs that chain: its reader counts it and returns it.
//   - A ring that is unusable (ErrRing) ends the connection: nothing in it can be trusted any more.
//
// A guest may also truncate the file under a mapping. Accesses then raise SIGBUS, which callers turn into an error
// (debug.SetPanicOnFault); the package holds no locks and no frames, so nothing is lost by that.
//
// The package moves no packets and knows no sockets. Virtqueues are little-endian, as the machines that it is built for.
package vring

// Package ring is the memory through which two ends move the bytes of a connection without system calls: two byte rings, one for
// each direction, in a sealed memfd. layout.txt describes it once, for this package, for programs (shim/preload, C) and for kernels
// (gpukern/cuda). docs/design/049-one-ring.md has the protocol.
//
// # Who does what
//
// A ring has one producer and one consumer, and each word of it has one writer. An end keeps its own indexes in its own memory, so
// that it reads only the other's progress from the shared page: that is copied once and checked against the size. An index that
// no correct program can have is ErrViolation. Memory has the node as one end. Direct has a program at both, and the node
// only looks.
//
// The package makes no system call for a byte, and knows neither sockets nor connections: the caller writes the
// wakeups (doorbell bytes) that Commit asks for.
package ring

//go:generate go run ./layoutgen

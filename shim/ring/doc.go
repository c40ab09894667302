// Package ring is the memory through which a program and the node move the bytes of one TCP connection without system
// calls: two byte rings, one for each direction, in a sealed memfd. shim/preload/ring.h has the same layout for the
// program's side, and docs/design/033-rings.md the protocol.
//
// # Who does what
//
// A ring has one producer and one consumer. Each publishes its own index, and reads the other's. The node keeps its
// own indexes in its own memory, so that what it reads from the shared page is only the other side's progress: that
// is copied once and checked against the size. An index that no correct program can have is ErrViolation.
//
// The package makes no system call after Create, and knows neither sockets nor connections: the caller writes the
// wakeups (doorbell bytes) that Publish and Consumed ask for.
package ring

// Package queue is the memory between a loop of the stack and the thread blocks of a kernel: a slab with a queue of entries per block
// in each direction, and two byte rings per connection. Host and device poll it; neither makes a system call for a byte.
//
// A Block is the host's end. It frames the bytes of connections as entries (package shim/ring has the queues), keeps the windows of
// the rings, and checks each entry of the device: a kernel that writes nonsense gets Violation events and loses connections, and
// reaches no memory outside of its own rings. slab.h has the same layout for kernels. The package knows no sockets.
//
// docs/design/090-gpunet.md has the protocol.
package queue

// Package shim lets programs that were compiled for the kernel's sockets use the TCP and UDP of a stack. A library
// that is loaded into the program (shim/preload, LD_PRELOAD) replaces its AF_INET sockets by AF_UNIX ones, and sends
// the calls that name addresses or options to a Server, with the descriptor. The Server has the other end of each
// AF_UNIX socket, and moves bytes between that and a connection of the stack, in the loop that owns the connection.
//
// docs/design/031-shim.md has the design, and shim/preload/protocol.h the layout of what both sides say.
//
// # Who does what
//
// A goroutine reads the first request of a control channel. Then a loop watches it, and does what needs no other loop and
// does not wait: connect(2), and options and names of sockets without a connection. A goroutine does each of the others,
// because binding and listening take every loop, and closing a descriptor of a stranger may block. A registered socket that is idle, and a listener, are watched by one goroutine
// for all (watcher). Bytes of connections and datagrams pass in callbacks of the loops, which never block: they only
// make calls with MSG_DONTWAIT on the node's own end.
//
// Nothing is buffered here: what the stack has no space for stays in the program's send buffer, and what the program
// does not read stays in the stack's receive buffer.
//
// # What is trusted
//
// A program names a socket by sending its descriptor. The Server accepts AF_UNIX sockets alone, and connects them
// to a listener of its own in a directory of mode 0700. Who asks is what the kernel says (SO_PEERCRED). Lengths,
// addresses and options of a request are checked before use.
package shim

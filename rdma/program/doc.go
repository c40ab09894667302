// Package program serves unmodified programs that were compiled for libibverbs and librdmacm. Libraries that are loaded in
// the place of libibverbs.so.1 and librdmacm.so.1 (rdma/verbs and rdma/rdmacm, C) send what makes and changes objects to a Server by a SOCK_SEQPACKET socket, and post
// requests and poll completions in shared memory.
//
//	control socket   HELLO, CREATE_QP, REG_MR ...: one request, one reply, descriptors beside them
//	submission       a queue of shim/ring for each program: requests to send and receive, and the bytes of short ones
//	completions      a queue of shim/ring for each completion queue
//	connections      requests of the same socket to the connection manager of the context; their events wait in the node
//	wakeups          an eventfd to the loop, a pipe for each completion channel and one for asynchronous events,
//	                 and one with a byte for each event of a connection that waits
//
// The loop of the rdma.Context takes the submissions, and puts completions. A goroutine for each program does the requests
// of the control socket. The program need not poll for progress.
//
// # What is trusted
//
// The memory of a program is reached by its own /proc/self/mem, which it opens and sends: what it may not read or write itself
// the node does not either, and the descriptor keeps to the program's memory when it executes another program, or when another process
// gets its number. Every word of shared memory is copied and then checked. One that no correct library can have written ends that
// program alone: its queue pairs and regions go away, as they do when it exits.
//
// docs/design/083-unmodified-rdma-programs.md has the design.
package program

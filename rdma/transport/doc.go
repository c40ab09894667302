// Package transport holds the queue pairs of RDMA: the state machines of requester and responder for the services RC, UC and
// UD, over packets of package roce and memory of package memory.
//
//	PostSend -> Poll(now, out) -> packets          packets -> Input(now, frame) -> Completion
//
// A QP knows no socket, no clock and no lock: packets and time are arguments, packets leave by a function that the caller
// passes to Poll, and completions by functions of its Config. It belongs to one goroutine at a time.
//
//   - The requester numbers packets, keeps a window of them in flight, and repeats from the first that is missing
//     (go-back-N). It takes acknowledgements, responses of READ and atomics.
//   - The responder accepts packets in order, checks them before it touches memory, and answers with acknowledgements,
//     responses and NAKs. Of repeated requests, a READ is executed again, and an atomic answered with its first result.
//
// InfiniBand Architecture Specification 1, chapter 9 (9.7 reliable, 9.8 unreliable service, 9.9 errors), 10.3 (states).
package transport

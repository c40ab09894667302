// Package host terminates IP, TCP and UDP on a loop: it is the stack.Handler that passes packets to ip,
// tcp and udp, and the Output through which those send.
//
//	Handle: fast path: whole TCP or UDP packets to a local address, merged with their neighbours in the
//	                   burst (GRO) -> tcp.Mux.Input | udp.Mux.Input
//	        slow path: everything else -> ip.Node.Input -> transports
//	Tick:   ip.Node.Poll, tcp.Mux.Poll, udp.Mux.Poll: timers, output, then the owners of sockets
//	Send:   route (ip.Node), segments in frames of the pool (GSO) or left to the device (TSO) ->
//	        stack.Output
//
// A received frame returns to the pool at the end of its burst: the transports copy what they keep.
//
// A Group is one host on several loops: each flow belongs to the loop that its hash names. A Host
// knows its loop only by what it needs of it: a stack.Output, a stack.LoopLock and a
// stack.CommandQueue. Whoever makes the loops runs them.
//
// RFC 1122 and RFC 8504 (hosts), RFC 9293 3.9.2 (TCP over IP), RFC 6864 (identification), RFC 6437
// (flow labels).
package host

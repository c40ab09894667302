// Package host makes a host of a loop: it is the stack.Handler that gives packets to ip, tcp and udp, and
// the Output through which those send.
//
//	Loop.Handle: TCP or UDP, whole, to an address of ours: merged with its neighbours in the burst (GRO)
//	             -> tcp.Mux.Input | udp.Mux.Input; everything else -> ip.Node.Input -> transports
//	Loop.Tick:   ip.Node.Poll, tcp.Mux.Poll, udp.Mux.Poll: timers, output, then owners are told
//	Send:        the way (ip.Node), cut into frames of the pool (GSO) or left to the device (TSO) -> Loop
//
// A received frame goes back to the pool at the end of its burst: what transports keep they copy.
//
// A Group is one host on several loops: each flow belongs to the loop that its hash names.
package host

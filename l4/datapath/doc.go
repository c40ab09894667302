// Package datapath is the L4 load balancer of one loop. A Handler decides every packet of a batch: it
// finds or opens the connection, picks a backend, rewrites or encapsulates the packet in its frame, and
// sets verdict and device.
//
// Packets come from a stack.Loop, whose engine has written header offsets, checksum results and flags
// into each descriptor; headers are not parsed a second time. Handle borrows the batch: frames stay the
// loop's. A packet to a service address finds its connection in the loop's table, or opens one: Maglev
// picks the backend, the port allocator a source port. The headers are rewritten in place, checksums
// incrementally (RFC 1624), and the packet leaves for the link address of the next hop. Replies find the
// same connection by the key of the backend's side and leave where the client's packets came from.
//
// All that a Handler knows of configuration, health and neighbours is a Snapshot, an immutable value
// behind an atomic pointer that the control side (package l4/control) replaces. Connections refer to
// backends by numbers that never change and are reused only once no loop refers to them (retire.go), so a
// new snapshot keeps every flow.
// Handlers of several loops share nothing else; a packet that belongs to another loop is handed over.
//
// The path of a packet whose destination is translated (DNAT): handler.go (decide, transport, route) with nat.go (view), flow.go
// (inbound), prefetch.go (byClient), flow.go (openConn for the first packet of a connection, forward for the others), nat.go (translate,
// view.apply, setLink).
//
// The gateway terminates nothing. It makes answers of its own, in the frame that asked: ARP (RFC 826),
// neighbour advertisements (RFC 4861), echo replies, ICMP errors (RFC 1812 4.3, RFC 4443 2.4) and TCP
// resets (RFC 9293 3.10.7.1), the last three at a bounded rate. It keeps TCP state only as far as
// timeouts need it (RFC 5382). Nothing here reads a file, a clock or a socket.
package datapath

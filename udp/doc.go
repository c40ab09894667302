// Package udp is UDP (RFC 768, RFC 8085): the sockets of one loop, found by address, port,
// hash or QUIC connection ID, their queues, and the cutting and merging of datagrams of one
// flow (GSO, GRO).
//
// Datagrams come from the host (stack/host), checksums verified, and leave by an Output:
//
//	host: Mux.Input -> connected socket | bound socket | member of a group -> its queue
//	host: Mux.Poll  -> Owner.Ready, once for each socket and burst -> Socket.Read
//	Socket.Write -> cut where the Output does not -> Output.Send
//
// A datagram is copied once, from its frame to a buffer of the socket's queue, so a slow
// reader holds no frames of the driver. Queues are bounded each and all together, in bytes
// of memory taken.
//
// The package is pure: a Mux belongs to one loop, and nothing here locks.
package udp

// Package udp is UDP (RFC 768, RFC 8085): the sockets of one loop, found by address, port, hash or QUIC
// connection ID, their queues, and the cutting and merging of datagrams of one flow (GSO, GRO).
//
// Datagrams come from the host (stack/host), checksums verified, and leave by an Output. The package is
// pure: a Mux belongs to one loop, and nothing here locks.
package udp

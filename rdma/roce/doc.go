// Package roce holds the wire formats of RoCE: InfiniBand's transport packets over UDP (version 2, port 4791) and in
// Ethernet frames (version 1), with the invariant CRC that protects them.
//
//	| Ethernet | IPv4 or IPv6 | UDP 4791 | BTH | extension headers | payload | pad | ICRC |   version 2
//	| Ethernet 0x8915 | GRH              | BTH | extension headers | payload | pad | ICRC |   version 1
//
// Parse reads a received frame; Build writes one straight into the frame that a driver sends, and computes the ICRC in the
// same pass that copies the payload. Which packets a queue pair accepts is the business of package transport.
//
// The package is pure: it keeps no state and allocates nothing.
//
// InfiniBand Architecture Specification 1, chapters 5, 7.8 and 9; annexes A16 (RoCE) and A17 (RoCEv2).
package roce

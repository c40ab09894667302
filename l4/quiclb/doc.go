// Package quiclb reads and makes routable QUIC connection IDs, as draft-ietf-quic-load-balancers
// describes them: a load balancer finds the ID of the server in every packet of a connection,
// whatever address its client has by now.
//
//	 first octet            server ID          nonce               more of the server's
//	+----------+----------+------------------+-------------------+ - - - - - - - - - - +
//	| rotation | length   | 1 to 15 octets   | 4 to 18 octets    |
//	|  3 bits  |  5 bits  |                  |                   |
//	+----------+----------+------------------+-------------------+ - - - - - - - - - - +
//	                      '---- encrypted, when there is a key ---'
//
// Encryption is one block of AES when the two have 16 octets together, and a Feistel network of four
// rounds otherwise. The package also finds the destination connection ID in a datagram, by the
// properties that all versions of QUIC share (RFC 8999).
//
// It is pure: it keeps no state of connections, and decoding allocates nothing.
package quiclb

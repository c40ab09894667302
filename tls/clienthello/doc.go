// Package clienthello reads the ClientHello of a TLS connection without terminating it: the server
// name, ALPN and versions by which a proxy routes, and the fingerprints JA3 and JA4.
//
// A Peeker takes the first bytes of a TCP stream as they arrive, in any pieces, and says when the
// ClientHello is complete, which may span records. It changes no byte: what the caller buffered is
// what it forwards to the server that it chose. ParseMessage takes a ClientHello without records,
// as in the CRYPTO frames of QUIC. NewConn puts the bytes back in front of a net.Conn.
//
// Input is hostile: sizes are bounded, every length is checked, and each error carries the alert
// that a server sends for it. Parsing and fingerprints allocate nothing for hellos of up to 128
// values a list.
//
// The package decrypts nothing: of Encrypted ClientHello it sees the outer hello only. It does not
// compute JA4S and the other fingerprints of JA4+, whose licence differs from that of JA4.
//
// RFCs: 8446 (TLS 1.3: 4.1.2, 4.2, 5.1), 5246 (TLS 1.2), 6066 (server_name), 7301 (ALPN), 8701
// (GREASE).
package clienthello

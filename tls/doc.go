// Package tls is TLS for Go programs and for event loops: what a server or client needs around
// crypto/tls, and connections that a loop drives.
//
// A Store holds certificates, finds them by name and replaces them while connections run. A Stapler
// keeps their OCSP responses. Roots and Revocation are the trust in client certificates; TicketKeys
// and ECHKeys are the keys that rotate. NewServerConfig and NewClientConfig put these into a
// crypto/tls.Config with safe defaults, which works with net/http, quic-go, an Engine and any
// net.Conn. Diagnose says why a certificate was refused.
//
// An Engine is one end of a connection without a goroutine: ciphertext goes in by Next, plaintext by
// Write, and the loop that owns it moves both. A server's handshake of TLS 1.3 is mostly the engine's
// own, by package tls/handshake13. All others are those of crypto/tls, which the engine suspends while
// input is missing. Records after it are protected by the engine itself.
//
// What changes at run time changes atomically. A file that cannot be used leaves what was loaded
// before in place, and the error says why. A certificate is found without lock or allocation.
// Nothing here logs: errors are returned, or passed to a function that the caller gave.
//
// A ClientHello without termination, and the fingerprints JA3 and JA4, are package
// tls/clienthello's.
//
// RFCs: 8446 (TLS 1.3), 5246 (TLS 1.2), 5288 and 7905 (AEAD cipher suites), 6066 (server_name,
// status_request), 7301 (ALPN), 5077 (tickets), 5280 (certificates, CRLs), 6960 (OCSP), 7633
// (must-staple), 9325 (recommendations), 9849 (Encrypted ClientHello), 9848 (its configurations in
// DNS), 9934 (its files).
package tls

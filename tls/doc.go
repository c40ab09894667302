// Package tls is TLS for event loops and for Go programs.
//
// An Engine is one end of a connection without a goroutine: ciphertext goes in by Next, plaintext by Write, and the
// loop that owns it moves both. The handshake is that of crypto/tls, which the engine suspends while
// input is missing. Records after it are protected by the engine itself.
//
// RFCs: 8446 (TLS 1.3), 5246 (TLS 1.2), 5288 and 7905 (AEAD cipher suites).
package tls

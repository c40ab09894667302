// Package handshake13 is the handshake of a TLS 1.3 server (RFC 8446) as a state machine: messages go in, messages and
// secrets come out. It does no I/O, has no goroutine, no records and no callbacks, so that a loop can compute the key
// exchanges and the signatures of many handshakes together, between two calls.
//
// It answers the common case: a full handshake, or one that resumes a session, with X25519 or X25519MLKEM768. Every
// other ClientHello is refused with a Reason, and nothing has been sent then: crypto/tls answers it from its first byte. For
// what it answers, version, cipher suite, group, signature scheme and protocol are those that crypto/tls chooses.
//
//	AwaitingHello      Read       AwaitingOptions
//	AwaitingOptions    Choose     AwaitingIdentity
//	AwaitingIdentity   Certify    AwaitingExchange
//	                   Resume     AwaitingExchange
//	AwaitingExchange   Exchanged  AwaitingSignature, or Complete where a session is resumed
//	AwaitingSignature  Signed     Complete
//
// A refusal leads from each of them to Refused. docs/design/058-server-handshake.md has the reasons.
package handshake13

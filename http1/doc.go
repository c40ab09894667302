// Package http1 is HTTP/1.1: a machine that turns the bytes of a connection into events and messages into bytes.
//
// A Machine is one end of a connection. An event loop feeds it what arrived, in any pieces, and sends what its Append
// methods produce. It has no goroutine, no lock and no clock, and allocates nothing once its buffers have grown. It serves
// one request after the other; what a client sends ahead (pipelining) waits in the driver's buffer.
//
// It accepts what RFC 9112 lets a sender generate, and refuses what the RFC merely lets a recipient repair: a bare LF, white
// space before a colon, folded lines, Content-Length beside Transfer-Encoding or twice, a Host that differs from the target.
// Two parsers that repair such a message in different ways are how requests are smuggled (RFC 9112 11.2).
//
// Fields that belong to the connection (RFC 9110 7.6.1) are consumed: a message that is read from one machine and appended
// by another carries none of them over.
//
// RFCs: 9112 (HTTP/1.1), 9110 (semantics), with package semantics.
package http1

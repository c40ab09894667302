// Package link is a connection of the request path with its buffers, its TLS and its timers: bytes of a transport.Conn on one side,
// a Session on the other.
//
//	transport.Conn -> Link -> Session
//
// A Runner is what the links of one loop share: time, timers, buffers, and the queue of what is put off until all events of a batch
// have been handled. A Link reads while its session takes input, and gathers what the session sends until the end of the batch. Its
// life, input, output and way to close are states with names. The input of one may move to another past both sessions.
//
// Nothing here knows HTTP. All methods belong to the loop.
//
// RFCs: 8446 (closure alerts), 9112 9.6 (lingering close).
package link

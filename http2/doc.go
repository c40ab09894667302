// Package http2 is HTTP/2: a machine that turns the bytes of a connection into events and messages into frames.
//
// A Machine is one end of a connection. An event loop feeds it what arrived, in any pieces, and sends what its Append methods
// produce. It has no goroutine, no lock and no clock, and allocates nothing once its buffers and streams have grown. It
// validates messages, decompresses fields (package hpack), keeps both directions' flow-control windows, and bounds what a peer
// can make it do.
//
// Server push is neither sent nor accepted, and priorities are read and ignored: RFC 9113 5.3.2 has deprecated them.
//
// RFCs: 9113 (HTTP/2), 7541 (HPACK), 8441 (extended CONNECT), 9110 (semantics), with package semantics.
package http2

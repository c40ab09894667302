// Package http3 is HTTP/3: a machine that turns the bytes of streams into events and messages into frames, and a
// Server and a Transport for net/http that drive it over package quic.
//
// A Machine is one end of a connection. An event loop feeds it what arrived on streams, in any pieces, and
// sends what its Append methods produce. It has no goroutine, no lock and no clock, and allocates
// nothing once its buffers have grown. It validates messages, compresses fields (package qpack) and
// bounds what a peer can make it do.
//
// A Server takes an http.Handler. A Transport is an http.RoundTripper, which keeps connections, repeats requests
// that a server has refused, and learns of servers by Alt-Svc. Both run over any quic.Transport, and so
// over any net.PacketConn: the package knows nothing of the stack below.
//
// Extended CONNECT carries WebSocket (package websocket), HTTP datagrams, capsules and sessions of
// WebTransport. Push is complete, and off unless a client permits it: browsers have dropped it.
//
// The package resolves no alternative protocols by DNS (RFC 9460), caches nothing and follows no redirections.
//
// RFCs: 9114 (HTTP/3), 9204 (QPACK), 9218 (priorities), 9220 (extended CONNECT), 9297 (datagrams and capsules),
// 7838 (Alt-Svc), 8297 (103), 8470 (early data), 9110 (semantics), draft-ietf-webtrans-http3.
package http3

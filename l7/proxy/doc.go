// Package proxy is the request path of the gateway: it ends the connections of clients, routes each request and
// relays it to a backend.
//
// A Worker is what one loop has: connections of clients (fronts), connections to backends (backs), and the exchanges
// between them. It has no goroutine and no lock: the loop calls it, with bytes and with the time. Workers share a Tree,
// which is the configuration, and its pools.
//
//	transport.Conn -> link -> side -> exchange -> side -> link -> transport.Conn
//
// A side speaks a version of HTTP on a connection (packages h1side, h2side, h3side): it has a Stream for each request and reports
// events, which the worker handles one after the other. An exchange is one request and its response. It is in one phase at a time,
// and only an event of the table in phase.go moves it to another. What a receiver does not take yet is held, and its sender is no
// longer read.
//
// A pass is a connection that is passed through as it is, chosen by its ClientHello or by none. A header of the PROXY protocol
// may begin connections of clients and those to backends.
//
// RFCs: 9110 (semantics), 9112 (HTTP/1.1), 9209 (Proxy-Status), 8446 (TLS 1.3) by package tls,
// 9440 (Client-Cert).
package proxy

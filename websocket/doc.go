// Package websocket is the WebSocket protocol: a machine that turns bytes into events and
// messages into frames, and a connection over any net.Conn that drives it.
//
// A Machine is one end of a connection after the handshake. An event loop feeds it what
// arrived, in any pieces, and sends what its Append methods produce. It has no goroutine, no
// lock and no clock, and allocates nothing once its buffers have grown.
//
// A Conn is the library form. Dial opens one as a client and Accept takes one over from a
// net/http server, over HTTP/1.1 (Upgrade), HTTP/2 or HTTP/3 (extended CONNECT). NewConn drives any
// io.ReadWriteCloser after a handshake made elsewhere. NetConn presents a Conn as a net.Conn.
//
// The package takes net.Conn and io.ReadWriteCloser and knows nothing of the stack below: the
// same code runs over the kernel's sockets, over package socket and over a pipe. It keeps no
// connection alive by itself and does not reconnect.
//
// RFCs: 6455 (protocol), 7692 (permessage-deflate), 8441 (over HTTP/2), 9220 (over HTTP/3, with
// package http3), 3629 (UTF-8).
package websocket

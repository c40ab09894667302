// Package quic is QUIC: connections of multiplexed streams and datagrams, encrypted, over any
// net.PacketConn.
//
// A Transport owns one packet conn. Listen accepts connections on it and Dial opens them, both as
// often as needed. A Conn carries bidirectional streams (Stream), unidirectional ones (SendStream,
// ReceiveStream) and datagrams. A connection can change its address (AddPath) and resume with early
// data (Config.ZeroRTT).
//
// The package knows nothing of the stack below: the same code runs over the kernel's sockets and
// over package socket. What a packet conn can do beyond net.PacketConn (segmentation offload, ECN,
// batches) is declared by TransportConfig.Messages and never discovered through wrappers.
//
// quic-go does the protocol. This package adds the interface, errors, admission of handshakes,
// anti-replay of early data, keys derived from one secret, counters and shutdown. No type of
// quic-go is exported, so that another engine can take its place.
//
// It does not resolve names, has no HTTP/3 (package http3) and chooses no congestion control.
//
// RFCs: 8999, 9000 (transport), 9001 (TLS), 9002 (recovery), 9221 (datagrams), 9369 (version 2),
// 8446 8 (early data), 8899 (path MTU). Not 9287 and 9368.
package quic

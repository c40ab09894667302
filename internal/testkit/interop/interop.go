// Package interop has no code: its tests run Millrace against other implementations of the same
// protocols (quic-go, webtransport-go, aioquic, quinn, quiche, Chromium, nginx, HAProxy, gRPC, an independent DHCP server,
// WebSocket in Go and in Node, the TLS test suite of BoringSSL), whose modules are no requirement of Millrace.
package interop

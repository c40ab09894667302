//go:build !linux

package quic

import "net"

// newKernelConn returns nil: only Linux merges datagrams.
func newKernelConn(*net.UDPConn) net.PacketConn { return nil }

package stackd

import "net"

// macText writes a link address as people do.
func macText(mac [6]byte) string { return net.HardwareAddr(mac[:]).String() }

package gateway

import "github.com/millrace/millrace/packet"

// icmp decides an ICMP message, or an ICMPv6 message over IPv6.
func (h *Handler) icmp(d *packet.Desc, p []byte) packet.Verdict {
	if d.Flags.Has(packet.FlagIPv4) {
		return packet.DropUnsupported
	}
	return h.nd(d, p)
}

package netsim

import (
	"github.com/millrace/millrace/ip"
	"github.com/millrace/millrace/packet"
)

// tooBig reports to the sender of a packet that it is larger than mtu, as soon as a message takes back to
// it: the delay of the pipes up to here.
func (n *Net) tooBig(p *Packet, mtu int) {
	t, seg, _, v := Parse(p.Bytes)
	h, ok := n.nodes[p.From].(*Host)
	if !ok || v != packet.Deliver {
		return
	}
	n.ICMP(h, ip.ICMPError{Kind: ip.TooBig, MTU: mtu, Tuple: t.Reverse(), Quote: append([]byte(nil), seg[:8]...)})
}

// ICMP has a host learn now of an ICMP error about a packet that it sent, or is said to have sent.
func (n *Net) ICMP(h *Host, e ip.ICMPError) {
	n.After(0, func() {
		e.MTU = max(e.MTU, minMTU(h))
		ours := h.TCP.ICMP(n.now, &e.Tuple, e.Seq(), e)
		if w := h.ways[e.Tuple.Remote]; ours && w != nil && e.Kind == ip.TooBig {
			w.mtu = min(w.mtu, e.MTU)
		}
		h.Kick()
	})
}

// minMTU is the least that a path is believed to take (RFC 791, RFC 8200 5).
func minMTU(h *Host) int {
	if h.Addr.Is4() {
		return 68
	}
	return 1280
}

package gateway

import (
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// direct sends a packet of a client on to a backend that answers the client itself.
func (h *Handler) direct(c *conn, v *view, to *endpoint) packet.Verdict {
	if verdict := h.passable(v, &to.hop); verdict != packet.Forward {
		return verdict
	}
	if h.snap.services[h.snap.backends[c.backend].service].mode != ModeL2 {
		return packet.DropUnsupported
	}
	eth := wire.Ethernet(v.p)
	copy(eth[0:6], to.hop.MAC[:])
	copy(eth[6:12], h.snap.ports[to.hop.Port].MAC[:])
	v.d.Port = to.hop.Port
	return packet.Forward
}

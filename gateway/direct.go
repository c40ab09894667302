package gateway

import "github.com/millrace/millrace/packet"

// direct sends a packet of a client on to a backend that answers the client itself.
func (h *Handler) direct(c *Conn, v *view, to *endpoint) packet.Verdict {
	w := h.snap.backends[c.backend].way
	if verdict := h.passable(v, &to.hop, w.overhead(to.addr.is4())); verdict != packet.Forward {
		return verdict
	}
	if verdict := h.push(v, to, w); verdict != packet.Forward {
		return verdict
	}
	v.d.Port = to.hop.Port
	return packet.Forward
}

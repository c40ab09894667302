package gateway

import "github.com/millrace/millrace/packet"

// fragment decides a fragment.
func (h *Handler) fragment(d *packet.Desc, p []byte) packet.Verdict { return packet.DropFragment }

// poison forgets the datagram of a fragment.
func (h *Handler) poison(d *packet.Desc, p []byte) {}

package datapath

import (
	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// Packets of a service with an inspection policy are inspected in the loop that owns their connection, so both
// directions of a flow come to one Inspector whatever queue they arrived on. It sees a packet as the client does, with
// the service's address: a packet of the client before its addresses change, one of the backend after that. It is asked
// last before the packet leaves, once connection tracking has taken the packet.
//
//	client -> tracking -> inspect -> rewrite or encapsulate -> backend
//	client <- inspect <- rewrite <- tracking <- backend
//
// Not inspected: ICMP, which the gateway answers itself or forwards with a quote, and replies that do not pass the
// gateway (direct modes).

// Inspected is a packet to inspect. All of it is borrowed.
type Inspected struct {
	Now      clock.Time
	Arena    *packet.Arena
	Chain    []packet.Desc  // of the batch, from the packet on: it may go on in several (packet.FlagMore)
	Matches  []packet.Match // of the batch, from the packet on; their D is an index in the batch
	Searched uint64         // of which literals they are: Batch.Searched
	Index    int            // of Chain[0] in the batch

	Service    string
	Policy     uint8  // of the service, from 1
	Conn       uint32 // number of the connection, from 1: it is used again when the connection has ended
	Device     uint8  // that the client's packets arrive on
	FromClient bool
	Opens      bool // it has opened its connection

	// Discarded is the reason why the receiver discards the packet: DropSequence or DropL4Checksum; Undecided where it takes it, or may.
	Discarded packet.Verdict
}

// Inspector decides inspected packets: Forward, or the reason to drop one. reject asks for a reset of both ends.
type Inspector func(p *Inspected) (verdict packet.Verdict, reject bool)

// SetInspector sets what inspects the packets of services with a policy, before the first packet.
func (h *Handler) SetInspector(f Inspector) { h.inspector = f }

// policyOf returns the inspection policy of a connection, 0 for none. It is that of its service and of the device that the
// client's packets come by.
func (h *Handler) policyOf(c *Conn) uint8 {
	if h.inspector == nil {
		return 0
	}
	of := h.snap.Services[h.snap.Backends[c.backend].Service].Inspection
	if int(c.dev) >= len(of) {
		return 0
	}
	return of[c.dev]
}

// inspectPacket decides a packet of connection n, if that is inspected. tracked says that its sequence numbers fit. Where it
// reports true the packet goes on; otherwise the verdict is final.
func (h *Handler) inspectPacket(n int, v *view, side int, tracked bool) (verdict packet.Verdict, passes bool) {
	c := &h.table.conns[n]
	policy := h.policyOf(c)
	if policy == 0 {
		return packet.Forward, true
	}
	service := h.snap.Backends[c.backend].Service
	in := &h.inspected
	*in = Inspected{
		Now: h.clock, Arena: h.arena, Chain: h.chain, Matches: h.matches, Searched: h.searched, Index: h.index,
		Service: h.snap.Services[service].Name, Policy: policy, Conn: uint32(n) + 1, Device: c.dev, FromClient: side == sideClient, Opens: h.opens,
	}
	switch {
	case v.wrongChecksum():
		in.Discarded = packet.DropL4Checksum
	case !tracked && v.mustFit(c):
		in.Discarded = packet.DropSequence
	}
	verdict, reject := h.inspector(in)
	switch {
	case verdict == packet.Forward:
		return verdict, true
	case reject && v.d.Proto == wire.ProtoTCP:
		h.aborter().abort(n, false)
	case reject && side == sideClient && h.responder().reject(v, answerReset): // the packet has become the answer
		return packet.Forward, false
	}
	return h.tracker().drop(service, verdict), false
}

// mustFit reports whether the receiver of a segment discards it where its sequence numbers do not fit: one with data, or
// that ends the connection. Fragments are not followed, in direct modes only one side is, and of a provisional connection
// the numbers are not known.
func (v *view) mustFit(c *Conn) bool {
	if v.d.Proto != wire.ProtoTCP || v.part != whole || c.direct() || c.provisional() {
		return false
	}
	return v.flags.Has(wire.FlagRST) || v.segmentLen() > 0
}

// wrongChecksum reports whether the transport checksum is known to be wrong.
func (v *view) wrongChecksum() bool {
	return v.part == whole && v.d.Flags&(packet.FlagL4ChecksumOK|packet.FlagL4NoChecksum|packet.FlagOffload) == 0
}

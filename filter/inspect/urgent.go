package inspect

import (
	"github.com/millrace/millrace/filter/reassembly"
	"github.com/millrace/millrace/wire"
)

// Urgent is the treatment of urgent data. The urgent pointer names the byte behind the urgent one, and a receiver
// without SO_OOBINLINE reads the stream without that byte (RFC 6093 2). An inspector that keeps it sees
// "GET /seXcret" where the server reads "GET /secret".
type Urgent uint8

// The treatments.
const (
	UrgentApart  Urgent = iota // the byte is no part of the stream, as most receivers read it
	UrgentInline               // it is one: the caller clears the flag before the packet leaves
	UrgentDrop                 // with Block the segment is an anomaly and is dropped
)

// urgentAt returns where the urgent byte is in the payload of a segment, -1 where it has none.
func urgentAt(p *packet) int {
	if !p.tcp.Flags().Has(wire.FlagURG) {
		return -1
	}
	if at := int(p.tcp.Urgent()) - 1; at >= 0 && at < len(p.payload) {
		return at
	}
	return -1
}

// refusesUrgent reports whether a segment with urgent data is not taken. In a tunnel the caller clears no flag.
func (e *Engine) refusesUrgent(p *packet) bool {
	if !p.tcp.Flags().Has(wire.FlagURG) || !e.cfg.Block || e.urgent(p) != UrgentDrop {
		return false
	}
	e.anomaly(p, UrgentData)
	e.decide(Drop)
	return true
}

// urgent returns the treatment of a packet. A caller that forwards packets cannot clear a flag within a tunnel, so that the receiver may
// read other bytes than the engine: such a segment is dropped.
func (e *Engine) urgent(p *packet) Urgent {
	switch {
	case p.depth == 0 || e.cfg.Urgent == UrgentApart:
		return e.cfg.Urgent
	case e.cfg.Block:
		return UrgentDrop
	}
	return UrgentApart
}

// take puts the payload of a segment in order and inspects what is in order now.
func (e *Engine) take(p *packet, me *reassembly.Stream, seq uint32) {
	text := p.payload
	p.added = true
	if at := urgentAt(p); at >= 0 && e.urgent(p) == UrgentApart && me.Reaches(seq) {
		e.put(p, me, seq, text[:at])
		me.Skip(seq + uint32(at))
		seq, text = seq+uint32(at)+1, text[at+1:]
	}
	e.put(p, me, seq, text)
}

// put adds bytes to a stream, for which others give memory back where there is none.
func (e *Engine) put(p *packet, me *reassembly.Stream, seq uint32, text []byte) {
	if len(text) == 0 {
		return
	}
	e.relieve(p.flow, me.Needs(seq, len(text)))
	n, ev := me.Add(seq, text)
	e.streamed(p, p.dir, n, ev)
}

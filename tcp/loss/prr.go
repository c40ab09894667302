package loss

// prr is proportional rate reduction (RFC 9937 6, which replaces RFC 6937). In fast
// recovery data leaves in proportion to what arrives, so that the flight comes down to the
// threshold within a round trip: neither a pause of half a round trip nor a burst at its
// end.
type prr struct {
	recoverFS uint32 // RecoverFS
	delivered uint64 // prr_delivered
	sent      uint32 // prr_out
}

// begin starts a recovery with the ACK that found the loss. RecoverFS is what was in flight
// before that ACK, less what was SACKed before.
func (p *prr) begin(b *Scoreboard, s *Sample, n *ackResult) {
	if s.Events&Recover == 0 {
		return
	}
	*p = prr{recoverFS: b.next - b.una - (b.f.sacked - min(b.f.sacked, n.sacked)) + s.Acked}
}

// Reduce returns the window for fast recovery, given the threshold to come down to, after
// the ACK of s or, with an empty s, after a timer. It must be called once for each, while
// InFastRecovery.
func (b *Scoreboard) Reduce(threshold uint32, s *Sample) uint32 {
	p, pipe, mss := &b.f.prr, b.Flight(), b.opts.MSS
	p.delivered += uint64(s.Delivered)
	var send uint64
	out := uint64(p.sent)
	if pipe > threshold { // proportional
		want := (p.delivered*uint64(threshold) + uint64(p.recoverFS) - 1) / uint64(max(p.recoverFS, 1))
		send = want - min(want, out)
	} else {
		send = max(p.delivered-min(p.delivered, out), uint64(s.Delivered)) // conservative: PRR-CRB
		if s.Acked > 0 && s.Lost == 0 {
			send += uint64(mss) // SafeACK: progress without further loss, PRR-SSRB
		}
		send = min(send, uint64(threshold-pipe))
	}
	// The fast retransmit itself leaves in any case, and that of a partial ACK (RFC 6582 3.2
	// step 3): no other ACK may come.
	if p.sent == 0 || !b.opts.SACK && s.Acked > 0 && s.Lost > 0 {
		send = max(send, uint64(mss))
	}
	return pipe + uint32(send)
}

// noteSent counts data that was sent during recovery, new or again.
func (p *prr) noteSent(n uint32) { p.sent += n }

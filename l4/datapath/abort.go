package datapath

import (
	"github.com/millrace/millrace/wire"
)

// A NAT gateway that forgets a connection leaves both ends waiting: neither can reach the other any more, and a
// server may not send for hours. So both get a reset (RFC 9293 3.5.2), with the sequence number that they expect. An
// end takes only that one (RFC 5961 3.2): what it has acknowledged, or all that the other has sent, where its
// acknowledgement is on its way. If it is neither, the end answers by a challenge ACK, which belongs to no connection
// then and is reset with the number that it names (Service.ResetUnknown).
//
// Of a half-open connection only the backend gets one, and only after it has answered. It may hold the connection in
// SYN-RECEIVED for a minute, and would answer the next SYN from the same source port by an ACK: the client resets that,
// and is served when it sends its SYN again, 1 s later. The client gets none, since a flood has forged sources. Such
// resets have a budget of their own: each stands for a SYN that the gateway has forwarded, so a flood of SYNs costs the
// backend at most twice as many packets.
//
// Closed connections get none: no program waits.

// The budget of resets of half-open connections, of a loop. A backend under a faster flood answers by SYN cookies, and
// holds nothing that a reset could free.
const (
	halfOpenResetRate  = 50_000 // a second
	halfOpenResetBurst = 5000   // after a pause
)

// resettable reports whether both ends of connection n would wait for each other, and can be reset.
func (h aborter) resettable(n int) bool {
	c := &h.table.conns[n]
	if h.out == nil || c.direct() || c.provisional() || !c.state.confirmed() || c.closed() {
		return false
	}
	s := &h.table.sequences[n]
	return s[sideClient].window != 0 && s[sideBackend].window != 0
}

// heldByBackend returns the sequence number that the backend of half-open connection n expects; false where it is not known
// to hold any. It has answered by a SYN+ACK, or by an ACK: then it holds an earlier connection from the same source port.
// One that the gateway picked up may be open at the backend, so it is not meant.
func (h aborter) heldByBackend(n int) (seq uint32, ok bool) {
	c, s := &h.table.conns[n], &h.table.sequences[n][sideBackend]
	switch {
	case h.out == nil || c.pair == 0:
		return 0, false
	case c.state == stateAnswered:
		return s.acked, s.window != 0
	}
	return s.end, c.state == stateSynSent && s.end != 0
}

// abort ends connection n and resets its ends. It reports false, and has changed nothing, when the budget of resets
// is used up and the connection can wait.
func (h aborter) abort(n int, canWait bool) bool {
	h.kernelSide().takeBack(&h.table.conns[n], backEnded) // for the sequence numbers
	if h.resettable(n) {
		if h.abortResets.Take(h.clock, 1) {
			h.resetEnds(n)
		} else if canWait {
			return false
		} else {
			h.answerCounts.Add(answerLimited, 1)
		}
	} else if seq, ok := h.heldByBackend(n); ok {
		if h.halfOpenResets.Take(h.clock, 1) {
			h.resetBackend(n, seq, seq)
		} else {
			h.answerCounts.Add(answerLimited, 1)
		}
	}
	h.evictor().forget(n)
	return true
}

// resetEnds sends the resets.
func (h aborter) resetEnds(n int) {
	c, s := &h.table.conns[n], &h.table.sequences[n]
	front, frontPort := h.snap.vip(c.vip)
	hop := h.syncSide().clientHop(c)
	if hop.State == HopReady {
		h.sendResets(&hop, flow{front.addr, c.client, frontPort, c.clientPort}, s[sideClient].acked, s[sideBackend].end)
	}
	h.resetBackend(n, s[sideBackend].acked, s[sideClient].end)
}

// resetBackend sends the backend of connection n a reset with each of two sequence numbers, or one if they are equal.
func (h aborter) resetBackend(n int, acked, end uint32) {
	c := &h.table.conns[n]
	to, port := h.snap.endpoint(c.endpoint)
	if to.Hop.State == HopReady {
		h.sendResets(&to.Hop, flow{h.snap.sourceOf(c), to.addr, c.sourcePort, port}, acked, end)
	}
}

// flow is the addresses and ports of a packet.
type flow struct {
	src, dst     addr
	sport, dport uint16
}

// sendResets sends a reset with each of two sequence numbers, or one if they are equal.
func (h aborter) sendResets(hop *Hop, f flow, acked, end uint32) {
	h.sendReset(hop, f, acked)
	if acked != end {
		h.sendReset(hop, f, end)
	}
}

// sendReset sends one reset. One that finds no room is lost, as any packet may be.
func (h aborter) sendReset(hop *Hop, f flow, seq uint32) {
	is4, link := f.src.is4(), linkLen(hop)
	p := h.resetFrame[:link+ipLen(is4)+wire.TCPLen]
	putLink(p, hop, h.snap.Devices[hop.Dev].MAC, etherType(is4))
	putOwn(p[link:], f.src, f.dst, wire.ProtoTCP, wire.TCPLen)
	tcp := p[link+ipLen(is4):]
	wire.AppendTCP(tcp[:0], &wire.TCPHeader{SrcPort: f.sport, DstPort: f.dport, Seq: seq, Flags: wire.FlagRST})
	wire.TCP(tcp).FillChecksum(f.src.pseudo(f.dst, wire.ProtoTCP, wire.TCPLen))
	if h.out.Send(hop.Dev, p) == nil {
		h.answerCounts.Add(answerDiscarded, 1)
	}
}

// maxResetFrame is the longest reset: a tagged IPv6 packet.
const maxResetFrame = wire.EthernetLen + wire.VLANLen + wire.IPv6Len + wire.TCPLen

// ResetAll resets the ends of the next connections of the table from at on, of at most so many, for a gateway that
// ends. It returns how many were reset, and where to go on; more is false at the end of the table. Only the loop may
// call it.
func (h *Handler) ResetAll(at, most int) (reset, next int, more bool) {
	h.refresh()
	for end := min(at+connPage, h.table.high); at < end && reset < most; at++ {
		if h.table.conns[at].state == stateFree {
			continue
		}
		h.kernelSide().takeBack(&h.table.conns[at], backEnded)
		if h.aborter().resettable(at) {
			h.aborter().resetEnds(at)
			reset++
		}
		h.evictor().forget(at)
	}
	h.publish()
	return reset, at, at < h.table.high
}

// endSwept aborts a connection that the sweep found to be over. One whose own time is over does not wait for the budget of resets.
func (h aborter) endSwept(n int) { h.abort(n, !h.table.conns[n].expired(h.now)) }

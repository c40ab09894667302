package datapath

import "github.com/millrace/millrace/wire"

// Sequence numbers are tracked as far as a middlebox can: Guido van Rooij, "Real Stateful TCP Packet Filtering in
// IP Filter" (2001), which Linux's conntrack follows too. A segment changes a connection (its state, its timeout,
// where replies go) only if it fits what both ends have sent:
//
//	  I  seq <= limit              it begins inside the window that the peer has offered
//	 II  end >= my end - peer's    it is no older than a window
//	           window
//	III  ack <= peer's end         it acknowledges what the peer has sent
//	 IV  ack >= peer's end -       and not much less than that
//	           max(window, 66000)
//
// A RST ends a connection only if its sequence number is exact (RFC 5961 3.2). Segments that do not fit are
// forwarded all the same and change nothing: the ends know their numbers better than the gateway, which may have
// missed a segment, and they discard or challenge what is forged (RFC 5961). A firewall would drop them.
//
// Direct modes show only what the client sends: see followDirect. What no window is known of is provisional: see pickup.go.

// The sides of a connection, as indices of sequences.
const (
	sideClient = iota
	sideBackend
)

// sequences records the sequence numbers of a TCP connection: 32 bytes, in an array beside the
// connections, so that UDP does not touch it.
type sequences [2]sequence

// sequence records the sequence numbers of one side. It is the zero value until the side has been seen.
type sequence struct {
	end    uint32 // one past the highest sequence number sent
	limit  uint32 // one past the highest that the peer lets it send
	window uint32 // the largest window that it has offered, bytes; at least 1
	acked  uint32 // the highest acknowledgement sent: what it expects next
}

const (
	// oldestAck is the distance that an acknowledgement may lie behind what the peer has sent, at least: van Rooij's 66000.
	oldestAck = 66000

	// unseenWindow stands for the window of a side that has not been seen: in direct modes, and when a connection is
	// picked up. A client that has more in flight is rare; where it loses all of that before the gateway, the
	// connection is not followed any more and expires.
	unseenWindow = 1 << 24

	largestWindow = 1 << 30 // RFC 7323 2.3
)

// noScale in Conn.scales is a SYN without the window scale option, or none yet. The client's scale is in the lower
// half, the backend's in the upper.
const noScale = 15

// after reports whether sequence number a follows b (RFC 9293 3.4).
func after(a, b uint32) bool { return int32(a-b) > 0 }

// segment holds the sequence numbers of a TCP segment.
type segment struct {
	seq, end, ack uint32
	window        uint32 // as sent
	flags         wire.TCPFlags
	tcp           wire.TCP
}

// segment reads the fields from the frame.
func (v *view) segment() segment {
	tcp := wire.TCP(v.p[v.d.L4:])
	seq := tcp.Seq()
	return segment{seq, seq + v.segmentLen(), tcp.Ack(), uint32(tcp.Window()), v.flags, tcp}
}

// follow reports whether a segment of a side fits connection n, and updates what is known of its sequence numbers
// by one that does.
func (h tracker) follow(n int, v *view, side int) bool {
	c, s := &h.table.conns[n], &h.table.sequences[n]
	if v.part != whole { // how much data it has is not known
		c.flags |= connLoose
		return false
	}
	seg := v.segment()
	me, peer := &s[side], &s[1-side]
	if c.provisional() {
		return h.syncSide().verify(n, v, &seg, side)
	}
	const kinds = wire.FlagSYN | wire.FlagACK | wire.FlagRST
	switch f := seg.flags & kinds; {
	case f&wire.FlagRST != 0:
		return s.exact(c, &seg, side)
	case c.direct():
		return me.followDirect(c, &seg)
	case f == wire.FlagSYN && side == sideClient:
		if c.state.confirmed() {
			h.noteSYN(n, &seg)
		}
		return s.followSYN(c, &seg)
	case f == wire.FlagSYN|wire.FlagACK && side == sideBackend:
		return h.reopen(n, &seg) || s.followSYNACK(c, &seg)
	case f != wire.FlagACK || c.state == stateSynSent:
		if f == wire.FlagACK && side == sideBackend { // it holds another connection, and expects this number: see abort
			me.end = seg.ack
		}
		return false // without ACK it is discarded (RFC 9293 3.10.7.4); before the SYN+ACK there is nothing else
	case c.state == stateAnswered && side == sideBackend && seg.ack == peer.end && !s.fits(c, &seg, side):
		// With SYN cookies SYN+ACKs have different numbers, and the client took another one than the last.
		*me = sequence{end: seg.end, limit: seg.end + peer.window, window: me.window, acked: seg.ack}
		return true
	case !s.fits(c, &seg, side):
		if s.overruns(c, &seg, side) {
			c.flags |= connLoose
		}
		return false
	}
	before := me.end
	s.update(c, &seg, side)
	h.syncSide().reportProgress(n, before, me.end)
	return true
}

// exact reports whether a RST has a sequence number that its receiver accepts: what that has acknowledged, or all
// that the sender has sent, which the receiver may have without having acknowledged it. In answer to a SYN it
// must acknowledge that (RFC 9293 3.10.7.3).
func (s *sequences) exact(c *Conn, seg *segment, side int) bool {
	me, peer := &s[side], &s[1-side]
	switch {
	case c.direct():
		return seg.seq == me.end || c.state == stateSynSent && seg.seq == me.limit // behind its SYN, without the data in it
	case c.state == stateSynSent && side == sideBackend:
		return seg.flags.Has(wire.FlagACK) && s.acknowledgesSYN(c, seg.ack)
	}
	return seg.seq == peer.acked || seg.seq == me.end
}

// acknowledgesSYN reports whether ack acknowledges the client's SYN, with or without the data in it (RFC 7413).
func (s *sequences) acknowledgesSYN(c *Conn, ack uint32) bool {
	me := &s[sideClient]
	return ack-me.end <= me.limit-me.end || c.flags&connOtherSYN != 0
}

// followSYN follows a SYN of the client. One that is sent again has the same number. Another number means another
// connection of the client's, or a forged SYN: the backend says by its SYN+ACK which one it takes.
func (s *sequences) followSYN(c *Conn, seg *segment) bool {
	me := &s[sideClient]
	switch {
	case c.state > stateAnswered:
		return false
	case me.window == 0:
		*me = sequence{end: seg.seq + 1, limit: seg.end, window: max(seg.window, 1)}
		s[sideBackend].acked = seg.seq + 1
		c.scales = noScale<<4 | scaleOf(seg.tcp)
		return true
	case seg.seq+1 != me.end:
		c.flags |= connOtherSYN
		return false
	}
	return true
}

// followSYNACK follows a SYN+ACK of the backend. One that is sent again may have another number: a SYN cookie is
// made anew for each.
func (s *sequences) followSYNACK(c *Conn, seg *segment) bool {
	me, peer := &s[sideBackend], &s[sideClient]
	switch c.state {
	case stateSynSent:
		if !s.acknowledgesSYN(c, seg.ack) {
			return false
		}
		c.scales = c.scales&0xf | scaleOf(seg.tcp)<<4
		if c.scale(sideClient) == noScale || c.scale(sideBackend) == noScale { // RFC 7323 2.2: both SYNs have it, or none counts
			c.scales = 0
		}
	case stateAnswered:
		if seg.ack != me.acked {
			return false
		}
	default:
		return false
	}
	*me = sequence{end: seg.end, limit: seg.end + peer.window, window: max(seg.window, 1), acked: seg.ack}
	peer.end, peer.limit, peer.acked = seg.ack, seg.ack+me.window, seg.seq+1
	return true
}

// fits reports whether a segment with ACK passes conditions I to IV. Of a connection whose segments the gateway has
// not all followed, acknowledgements may be ahead: up to what the peer may send, and another window (overruns).
func (s *sequences) fits(c *Conn, seg *segment, side int) bool {
	me, peer := &s[side], &s[1-side]
	sent := peer.end
	if most := peer.limit + me.window; c.flags&connLoose != 0 && after(most, sent) {
		sent = most
	}
	return !after(seg.seq, me.limit) && !after(me.end-peer.window, seg.end) &&
		!after(seg.ack, sent) && !after(peer.end-max(me.window, oldestAck), seg.ack)
}

// overruns reports whether a segment that does not fit begins beyond the window, by less than another window, and fits otherwise. Some
// hosts send more than they were offered, and some take it. Its acknowledgement would be one of what was never sent, as
// every later one: the connection would not be followed any more, and expire while it is used. Linux's conntrack allows
// for the same.
func (s *sequences) overruns(c *Conn, seg *segment, side int) bool {
	me, peer := &s[side], &s[1-side]
	inside := *seg
	inside.seq = me.limit
	return seg.end-me.limit < peer.window && s.fits(c, &inside, side)
}

// update takes note of a segment that fits.
func (s *sequences) update(c *Conn, seg *segment, side int) {
	me, peer := &s[side], &s[1-side]
	window := seg.window << c.scale(side)
	if window > me.window {
		me.window = window
	}
	if after(seg.end, me.limit) && peer.window < largestWindow { // its window is larger than known
		peer.window += seg.end - me.limit
	}
	if after(seg.end, me.end) {
		me.end = seg.end
	}
	if after(seg.ack, me.acked) {
		me.acked = seg.ack
	}
	if after(seg.ack, peer.end) {
		peer.end = seg.ack
	}
	if limit := seg.ack + max(window, 1); after(limit, peer.limit) { // 1: a probe of a closed window
		peer.limit = limit
	}
}

// followDirect follows a segment of a client whose backend is not seen: it must lie near what the client has sent
// and acknowledged before.
func (me *sequence) followDirect(c *Conn, seg *segment) bool {
	syn := seg.flags.Has(wire.FlagSYN)
	switch {
	case me.window == 0:
		*me = sequence{end: seg.end, limit: seg.seq + 1, window: unseenWindow, acked: seg.ack}
		return true
	case syn:
		return c.state == stateSynSent && seg.seq == me.end-(seg.end-seg.seq)
	case !seg.flags.Has(wire.FlagACK):
		return false
	case c.state == stateSynSent: // the first acknowledgement
		me.acked = seg.ack
	}
	if after(seg.end, me.end+me.window) || after(me.end-me.window, seg.end) ||
		after(seg.ack, me.acked+me.window) || after(me.acked-me.window, seg.ack) {
		return false
	}
	if after(seg.end, me.end) {
		me.end = seg.end
	}
	if after(seg.ack, me.acked) {
		me.acked = seg.ack
	}
	return true
}

// allAcknowledged reports whether both sides have acknowledged all that the other has sent.
func (s *sequences) allAcknowledged() bool {
	return s[sideClient].acked == s[sideBackend].end && s[sideBackend].acked == s[sideClient].end
}

// scale returns the shift of the windows that a side sends, but for that of its SYN (RFC 7323 2.2).
func (c *Conn) scale(side int) uint8 { return c.scales >> (4 * side) & 0xf }

// scaleOf returns the window scale that a SYN has, noScale without.
func scaleOf(tcp wire.TCP) uint8 {
	var o wire.TCPOptions
	if tcp.ParseOptions(&o); !o.HasWindowScale {
		return noScale
	}
	return o.WindowScale
}

// An open connection is over when both ends have forgotten it, after a crash or because the gateway never saw how it
// ended, and the client may use its port again. The gateway cannot tell by the SYN, which may be forged: the backend can.
// One that has the connection answers by a challenge ACK (RFC 9293 3.10.7.4, RFC 5961 4.2), and the connection goes on.
// One that has forgotten it answers by a SYN+ACK, which acknowledges the SYN. From then on the entry is that of the new
// connection: otherwise it would not be followed, and expire while it is used. Linux's conntrack does the same.

// newSYNs are the last SYNs of clients with open connections. A connection has one place, and may lose it to another: then
// it is not followed, as if this were not here.
type newSYNs [64]newSYN

type newSYN struct {
	conn   uint32
	client sequence
	scale  uint8
}

// noteSYN remembers a SYN of the client of connection n, which is open.
func (h tracker) noteSYN(n int, seg *segment) {
	h.table.conns[n].flags |= connNewSYN
	h.newSYNs[n%len(h.newSYNs)] = newSYN{
		uint32(n), sequence{end: seg.seq + 1, limit: seg.end, window: max(seg.window, 1)}, scaleOf(seg.tcp),
	}
}

// reopen makes connection n the one that the backend accepts by this SYN+ACK, if it answers the client's last SYN.
func (h tracker) reopen(n int, seg *segment) bool {
	c, s, syn := &h.table.conns[n], &h.table.sequences[n], &h.newSYNs[n%len(h.newSYNs)]
	if !h.reopens(n, seg.ack) {
		return false
	}
	if c.state.ending() {
		h.closing--
		h.tally(c.backend)[Ended]++
	}
	const over = connClientFIN | connBackendFIN | connTimeWait | connOtherSYN | connLoose | connNewSYN
	c.flags &^= over
	c.state, c.scales = stateSynSent, noScale<<4|syn.scale
	*s = sequences{sideClient: syn.client, sideBackend: {acked: syn.client.end}}
	s.followSYNACK(c, seg)
	c.state = stateAnswered
	return true
}

// reopens reports whether a SYN+ACK with an acknowledgement answers the last SYN of connection n, which was open then.
func (h tracker) reopens(n int, ack uint32) bool {
	c, syn := &h.table.conns[n], &h.newSYNs[n%len(h.newSYNs)]
	return c.flags&connNewSYN != 0 && !c.closed() && syn.conn == uint32(n) && ack-syn.client.end <= syn.client.limit-syn.client.end
}

package tcp

import (
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/internal/ports"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/tcp/auth"
	"github.com/millrace/millrace/tcp/ecn"
	"github.com/millrace/millrace/wire"
)

// timeWaitRecord is the rest of a connection in TIME-WAIT (RFC 9293 3.3.2): enough to
// acknowledge a FIN that its peer sends again, and to tell old duplicates from a new
// connection. It takes 76 bytes, a Conn some 300.
type timeWaitRecord struct {
	tuple      wire.Tuple
	sndNxt     uint32
	rcvNxt     uint32
	tsRecent   uint32
	since      uint32 // when it began, milliseconds
	until      uint32 // when it ends, milliseconds
	next       uint32 // link of the table
	newer      uint32 // slot+1 in the list by end
	older      uint32
	window     uint16    // as announced last
	ackSent    uint16    // when the last ACK left, milliseconds, low bits
	ace        ecn.Field // of every ACK (RFC 9768 3.2.2); 0 without accurate ECN
	timestamps bool      // negotiated
	hasAckSent bool
	protected  bool // its signature state is in signers
}

func (w *timeWaitRecord) key() *wire.Tuple { return &w.tuple }

func (w *timeWaitRecord) link() *uint32 { return &w.next }

// timeWaitTable holds the TIME-WAIT records of a Mux. All last equally long, so that a list
// in order of arrival is also in order of expiry, and no record needs a timer.
type timeWaitTable struct {
	records[timeWaitRecord, *timeWaitRecord]
	duration       time.Duration
	newest, oldest uint32                 // slot+1, 0 for none
	signers        map[uint32]*auth.State // by slot; nil where no connection signs
	searches       *ports.Searches        // for local ports, which learn of removed records
}

// Defaults of TIME-WAIT.
const (
	defaultTimeWait    = 60 * time.Second       // 2 MSL. RFC 9293 3.4.2 has 4 minutes; common stacks wait 60 s or less
	defaultMaxTimeWait = 1 << 16                // records
	timeWaitReply      = 500 * time.Millisecond // at most one ACK in that time: two records could acknowledge each other for ever (RFC 5961 7)
	timeWaitReuse      = time.Second            // after which our timestamp is surely larger, whatever its rounding
)

// milliseconds is the low 32 bits of t in milliseconds: enough to compare times within 24
// days.
func milliseconds(t clock.Time) uint32 { return uint32(t / clock.Time(time.Millisecond)) }

// add makes a record, in place of the oldest where the table is full: the oldest is the
// closest to its end anyway.
func (w *timeWaitTable) add(now clock.Time, t *wire.Tuple) *timeWaitRecord {
	if slot := w.find(t); slot != noSlot {
		w.drop(slot)
	}
	slot := w.insert(t)
	if slot == noSlot {
		if w.oldest == 0 {
			return nil
		}
		w.drop(w.oldest - 1)
		slot = w.insert(t)
	}
	r := w.at(slot)
	r.since = milliseconds(now)
	w.pushNewest(now, slot)
	return r
}

// sign sets the signature state for the record of t.
func (w *timeWaitTable) sign(t *wire.Tuple, a *auth.State) {
	slot := w.find(t)
	if w.signers == nil {
		w.signers = map[uint32]*auth.State{}
	}
	w.signers[slot] = a
	w.at(slot).protected = true
}

// pushNewest makes slot the newest of the list.
func (w *timeWaitTable) pushNewest(now clock.Time, slot uint32) {
	r := w.at(slot)
	r.until = milliseconds(now.Add(w.duration + time.Millisecond - 1))
	r.older, r.newer = w.newest, 0
	if w.newest != 0 {
		w.at(w.newest - 1).newer = slot + 1
	} else {
		w.oldest = slot + 1
	}
	w.newest = slot + 1
}

// unlink takes slot out of the list.
func (w *timeWaitTable) unlink(slot uint32) {
	r := w.at(slot)
	if r.older != 0 {
		w.at(r.older - 1).newer = r.newer
	} else {
		w.oldest = r.newer
	}
	if r.newer != 0 {
		w.at(r.newer - 1).older = r.older
	} else {
		w.newest = r.older
	}
}

// restart makes the record last as long as a new one: a FIN that comes again starts 2 MSL
// anew (RFC 9293 3.10.7.4).
func (w *timeWaitTable) restart(now clock.Time, slot uint32) {
	w.unlink(slot)
	w.pushNewest(now, slot)
}

// drop removes the record.
func (w *timeWaitTable) drop(slot uint32) {
	w.unlink(slot)
	delete(w.signers, slot)
	w.searches.Release(&w.at(slot).tuple)
	w.remove(slot)
}

// expire removes the records whose time is over and returns when it must be called next.
func (w *timeWaitTable) expire(now clock.Time) clock.Time {
	ms := milliseconds(now)
	for w.oldest != 0 {
		left := int32(w.at(w.oldest-1).until - ms)
		if left > 0 {
			return (now / clock.Time(time.Millisecond) * clock.Time(time.Millisecond)).Add(time.Duration(left) * time.Millisecond)
		}
		w.drop(w.oldest - 1)
	}
	return clock.Never
}

// timeWaitInput handles a segment for a TIME-WAIT record (RFC 9293 3.10.7.4). reopen means
// that it is a SYN that begins a new connection: the record is gone, and the new sequence
// numbers must be above last.
func (m *Mux) timeWaitInput(now clock.Time, slot uint32, s *Segment) (v packet.Verdict, last uint32, again bool) {
	w := &m.passive.timeWait
	r := w.at(slot)
	if r.protected && !w.signers[slot].Verify(s.Raw) {
		m.stats.AuthFailed++
		return packet.DropAuth, 0, false
	}
	// RFC 9293 3.10.7.4 with RFC 6191: only a SYN with a later timestamp or sequence number
	// opens anew. Everything else gets at most the last ACK again.
	n := segmentLen(s)
	stale := r.timestamps && s.Options.HasTimestamps && int32(s.Options.TSVal-r.tsRecent) < 0
	switch {
	case s.Flags.Has(wire.FlagRST):
		return packet.DropState, 0, false // RFC 1337 3, F1: it would end the wait early
	case s.Flags&(wire.FlagSYN|wire.FlagACK|wire.FlagFIN) == wire.FlagSYN && m.reopens(r, s): // what LISTEN takes
		last = r.sndNxt
		w.drop(slot)
		m.stats.TimeWaitReused++
		return 0, last, true
	case !stale && s.Flags&(wire.FlagSYN|wire.FlagFIN) == wire.FlagFIN && s.Seq+n == r.rcvNxt: // our ACK was lost
		w.restart(now, slot)
		m.timeWaitAck(now, slot)
		return packet.Deliver, 0, false
	case stale || n > 0 || s.Seq != r.rcvNxt || !s.Flags.Has(wire.FlagACK):
		if !r.acknowledgedLately(now) {
			m.timeWaitAck(now, slot)
		}
		return packet.DropSequence, 0, false
	}
	if s.Options.HasTimestamps {
		r.tsRecent = s.Options.TSVal
	}
	return packet.Deliver, 0, false
}

// reopens reports whether a SYN may begin a new connection (RFC 6191 2), for which there
// must be a listener. A later timestamp, or else a later sequence number, must tell the new
// connection's segments from duplicates of the old one.
func (m *Mux) reopens(r *timeWaitRecord, s *Segment) bool {
	l := m.passive.listenerFor(&r.tuple)
	if l == nil {
		return false
	}
	stamps := s.Options.HasTimestamps && !l.opts.NoTimestamps
	switch {
	case r.timestamps && stamps && s.Options.TSVal != r.tsRecent:
		return int32(s.Options.TSVal-r.tsRecent) > 0
	case !r.timestamps && stamps:
		return true
	}
	return int32(s.Seq-r.rcvNxt) > 0
}

// acknowledgedLately reports whether an ACK has just been sent.
func (r *timeWaitRecord) acknowledgedLately(now clock.Time) bool {
	return r.hasAckSent && time.Duration(uint16(milliseconds(now))-r.ackSent)*time.Millisecond < timeWaitReply
}

// timeWaitAck sends the last ACK of the connection again.
func (m *Mux) timeWaitAck(now clock.Time, slot uint32) {
	f := &m.passive
	r := f.timeWait.at(slot)
	r.hasAckSent, r.ackSent = true, uint16(milliseconds(now))
	if r.timestamps {
		f.options = wire.AppendTimestamps(wire.AppendNOP(f.options, 2), timestamp(now)+f.secrets.timestampOffset(&r.tuple), r.tsRecent)
	}
	head := wire.TCPHeader{Seq: r.sndNxt, Ack: r.rcvNxt, Flags: wire.FlagACK, Window: r.window}
	f.setACE(&head, r.ace)
	m.reply(now, &r.tuple, &head, f.timeWait.signers[slot], &m.cfg.Defaults)
}

// sequenceFor returns the initial sequence number of an active open; ok is whether its
// tuple is free. Where a TIME-WAIT record is left, the peer must be able to tell the
// connections apart by timestamps (RFC 6191 2, from the client's side); the record is then
// removed.
func (m *Mux) sequenceFor(now clock.Time, t *wire.Tuple) (iss uint32, ok bool) {
	f := &m.passive
	iss = f.secrets.initialSequence(now, t)
	slot := f.timeWait.find(t)
	if slot == noSlot {
		return iss, true
	}
	r := f.timeWait.at(slot)
	if !f.timeWait.reusable(now, r) {
		return 0, false
	}
	iss = sequenceAbove(iss, r.sndNxt)
	f.timeWait.drop(slot)
	m.stats.TimeWaitReused++
	return iss, true
}

// reusable reports whether an active open may use the tuple of r.
func (w *timeWaitTable) reusable(now clock.Time, r *timeWaitRecord) bool {
	return r.timestamps && w.age(now, r) > timeWaitReuse
}

// age returns for how long r has been a record.
func (w *timeWaitTable) age(now clock.Time, r *timeWaitRecord) time.Duration {
	return time.Duration(milliseconds(now)-r.since) * time.Millisecond
}

// reusableAt returns when an active open may use the tuple of r, Never where only the end
// of the record allows it.
func (w *timeWaitTable) reusableAt(now clock.Time, r *timeWaitRecord) clock.Time {
	if !r.timestamps {
		return clock.Never
	}
	return now.Add(timeWaitReuse - w.age(now, r) + 2*time.Millisecond)
}

// timeWait makes the record that replaces c.
func (m *Mux) timeWait(now clock.Time, c *Conn) {
	w := &m.passive.timeWait
	r := w.add(now, &c.tuple)
	if r == nil {
		return
	}
	r.sndNxt, r.rcvNxt, r.tsRecent, r.timestamps = c.nxt, c.rcvNxt, c.tsRecent, c.has(flagTimestamps)
	r.window = uint16(min((c.rcvAdv-c.rcvNxt)>>c.rcvScale, 0xffff))
	if a := c.accurate(); a != nil {
		r.ace = a.in.Field(false)
	}
	if c.auth != nil {
		w.sign(&c.tuple, c.auth)
	}
}

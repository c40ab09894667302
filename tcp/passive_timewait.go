package tcp

import (
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/tcp/auth"
	"github.com/millrace/millrace/wire"
)

// timeWaitRecord is what is left of a connection in TIME-WAIT (RFC 9293 3.3.2): enough to answer what its peer sends late.
type timeWaitRecord struct {
	tuple      wire.Tuple
	sndNxt     uint32
	rcvNxt     uint32
	tsRecent   uint32
	since      uint32 // entered, milliseconds
	until      uint32 // ends, milliseconds
	next       uint32 // record's link
	newer      uint32 // list by end, slot+1
	older      uint32
	window     uint16 // as announced last
	ackSent    uint16 // when the last ACK left, milliseconds, low bits
	timestamps bool   // timestamps were agreed
	hasAckSent bool
	protected  bool // in auths
}

func (w *timeWaitRecord) key() *wire.Tuple { return &w.tuple }

func (w *timeWaitRecord) link() *uint32 { return &w.next }

// timeWaitTable are the TIME-WAIT records of a Mux. All last equally long, so that a list has them in order.
type timeWaitTable struct {
	records[timeWaitRecord, *timeWaitRecord]
	duration       time.Duration
	newest, oldest uint32                 // slot+1
	signers        map[uint32]*auth.State // by slot; nil where no connection signs
}

// Defaults of TIME-WAIT.
const (
	defaultTimeWait    = 60 * time.Second       // 2 MSL; RFC 9293 3.4.2 has 4 minutes, nobody has
	defaultMaxTimeWait = 1 << 16                // records
	timeWaitReply      = 500 * time.Millisecond // at most one ACK in that time (RFC 5961 7)
	timeWaitReuse      = time.Second            // until when our timestamps have moved on for sure
)

func milliseconds(t clock.Time) uint32 { return uint32(t / clock.Time(time.Millisecond)) }

// add makes a record, in place of the oldest where there is no room for more.
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

// sign has a signs for the record of t.
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

// restart has the record last as long as a new one.
func (w *timeWaitTable) restart(now clock.Time, slot uint32) {
	w.unlink(slot)
	w.pushNewest(now, slot)
}

// drop removes the record.
func (w *timeWaitTable) drop(slot uint32) {
	w.unlink(slot)
	delete(w.signers, slot)
	w.remove(slot)
}

// expire removes what has lasted its time and returns when it wants to be called next.
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

// timeWaitInput takes a segment for a TIME-WAIT record (RFC 9293 3.10.7.4). again says that it is a SYN
// that begins a new connection, the record is gone, and sequence numbers must be above last.
func (m *Mux) timeWaitInput(now clock.Time, slot uint32, s *Segment) (v packet.Verdict, last uint32, again bool) {
	w := &m.passive.timeWait
	r := w.at(slot)
	if r.protected && !w.signers[slot].Verify(s.Raw) {
		m.stats.AuthFailed++
		return packet.DropAuth, 0, false
	}
	n := segmentLen(s)
	stale := r.timestamps && s.Options.HasTimestamps && int32(s.Options.TSVal-r.tsRecent) < 0
	switch {
	case s.Flags.Has(wire.FlagRST):
		return packet.DropState, 0, false // RFC 1337 3, F1: it would end the wait early
	case s.Flags&(wire.FlagSYN|wire.FlagACK) == wire.FlagSYN && m.reopens(r, s):
		last = r.sndNxt
		w.drop(slot)
		m.stats.TimeWaitReused++
		return 0, last, true
	case !stale && s.Flags.Has(wire.FlagFIN) && s.Seq+n == r.rcvNxt: // our ACK was lost
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

// reopens reports whether a SYN may begin a new connection (RFC 6191 2), for which there must be a listener. What came
// before it is then told from what comes after by timestamp or by sequence number.
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

// timeWaitAck says what the connection said last.
func (m *Mux) timeWaitAck(now clock.Time, slot uint32) {
	f := &m.passive
	r := f.timeWait.at(slot)
	r.hasAckSent, r.ackSent = true, uint16(milliseconds(now))
	if r.timestamps {
		f.options = wire.AppendTimestamps(wire.AppendNOP(f.options, 2), timestamp(now)+f.secrets.timestampOffset(&r.tuple), r.tsRecent)
	}
	m.reply(now, &r.tuple, &wire.TCPHeader{Seq: r.sndNxt, Ack: r.rcvNxt, Flags: wire.FlagACK, Window: r.window}, f.timeWait.signers[slot])
}

// sequenceFor returns the initial sequence number of a connection that we begin, and ok where its tuple is free: where a
// record of its last connection is left, timestamps must tell the two apart (RFC 6191 2, seen from the other
// side), and the record is gone then.
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

// reusable reports whether we may begin a connection with the tuple of r.
func (w *timeWaitTable) reusable(now clock.Time, r *timeWaitRecord) bool {
	return r.timestamps && time.Duration(milliseconds(now)-r.since)*time.Millisecond > timeWaitReuse
}

// timeWait makes the record that answers for c from now on.
func (m *Mux) timeWait(now clock.Time, c *Conn) {
	w := &m.passive.timeWait
	r := w.add(now, &c.tuple)
	if r == nil {
		return
	}
	r.sndNxt, r.rcvNxt, r.tsRecent, r.timestamps = c.nxt, c.rcvNxt, c.tsRecent, c.has(flagTimestamps)
	r.window = uint16(min((c.rcvAdv-c.rcvNxt)>>c.rcvScale, 0xffff))
	if c.auth != nil {
		w.sign(&c.tuple, c.auth)
	}
}

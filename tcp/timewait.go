package tcp

import (
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/tcp/auth"
	"github.com/millrace/millrace/wire"
)

// waiting is what is left of a connection in TIME-WAIT (RFC 9293 3.3.2): enough to answer what its peer sends late.
type waiting struct {
	tuple     wire.Tuple
	sndNxt    uint32
	rcvNxt    uint32
	tsRecent  uint32
	since     uint32 // entered, milliseconds
	until     uint32 // ends, milliseconds
	next      uint32 // record's link
	newer     uint32 // list by end, slot+1
	older     uint32
	window    uint16 // as announced last
	replied   uint16 // when the last ACK left, milliseconds, low bits
	stamps    bool   // timestamps were agreed
	hasReply  bool
	protected bool // in auths
}

func (w *waiting) where() *wire.Tuple { return &w.tuple }
func (w *waiting) link() *uint32      { return &w.next }

// waits are the TIME-WAIT records of a Mux. All last equally long, so that a list has them in order.
type waits struct {
	records[waiting, *waiting]
	length         time.Duration
	newest, oldest uint32                 // slot+1
	auths          map[uint32]*auth.State // by slot; nil where no connection signs
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
func (w *waits) add(now clock.Time, t *wire.Tuple) *waiting {
	if slot := w.find(t); slot != noSlot {
		w.end(slot)
	}
	slot := w.insert(t)
	if slot == noSlot {
		if w.oldest == 0 {
			return nil
		}
		w.end(w.oldest - 1)
		slot = w.insert(t)
	}
	r := w.at(slot)
	r.since = milliseconds(now)
	w.append(now, slot)
	return r
}

// keep has a signs for the record of t.
func (w *waits) keep(t *wire.Tuple, a *auth.State) {
	slot := w.find(t)
	if w.auths == nil {
		w.auths = map[uint32]*auth.State{}
	}
	w.auths[slot] = a
	w.at(slot).protected = true
}

// append makes slot the newest of the list.
func (w *waits) append(now clock.Time, slot uint32) {
	r := w.at(slot)
	r.until = milliseconds(now.Add(w.length + time.Millisecond - 1))
	r.older, r.newer = w.newest, 0
	if w.newest != 0 {
		w.at(w.newest - 1).newer = slot + 1
	} else {
		w.oldest = slot + 1
	}
	w.newest = slot + 1
}

// unlink takes slot out of the list.
func (w *waits) unlink(slot uint32) {
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
func (w *waits) restart(now clock.Time, slot uint32) {
	w.unlink(slot)
	w.append(now, slot)
}

// end removes the record.
func (w *waits) end(slot uint32) {
	w.unlink(slot)
	delete(w.auths, slot)
	w.remove(slot)
}

// expire removes what has lasted its time and returns when it wants to be called next.
func (w *waits) expire(now clock.Time) clock.Time {
	ms := milliseconds(now)
	for w.oldest != 0 {
		left := int32(w.at(w.oldest-1).until - ms)
		if left > 0 {
			return (now / clock.Time(time.Millisecond) * clock.Time(time.Millisecond)).Add(time.Duration(left) * time.Millisecond)
		}
		w.end(w.oldest - 1)
	}
	return clock.Never
}

// memory is what the records take, bytes.
func (w *waits) memory() int64 { return int64(len(w.all))*72 + int64(len(w.heads))*4 }

// timeWaitInput takes a segment for a TIME-WAIT record (RFC 9293 3.10.7.4). again says that it is a SYN
// that begins a new connection, the record is gone, and sequence numbers must be above last.
func (m *Mux) timeWaitInput(now clock.Time, slot uint32, s *Segment) (v packet.Verdict, last uint32, again bool) {
	w := &m.front.waits
	r := w.at(slot)
	if r.protected && !w.auths[slot].Verify(s.Raw) {
		m.stats.AuthFailed++
		return packet.DropAuth, 0, false
	}
	n := segmentLen(s)
	stale := r.stamps && s.Options.HasTimestamps && int32(s.Options.TSVal-r.tsRecent) < 0
	switch {
	case s.Flags.Has(wire.FlagRST):
		return packet.DropState, 0, false // RFC 1337 3, F1: it would end the wait early
	case s.Flags&(wire.FlagSYN|wire.FlagACK) == wire.FlagSYN && m.reopens(r, s):
		last = r.sndNxt
		w.end(slot)
		m.stats.TimeWaitReused++
		return 0, last, true
	case !stale && s.Flags.Has(wire.FlagFIN) && s.Seq+n == r.rcvNxt: // our ACK was lost
		w.restart(now, slot)
		m.timeWaitAck(now, slot)
		return packet.Deliver, 0, false
	case stale || n > 0 || s.Seq != r.rcvNxt || !s.Flags.Has(wire.FlagACK):
		if !r.recent(now) {
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
func (m *Mux) reopens(r *waiting, s *Segment) bool {
	l := m.front.listener(&r.tuple)
	if l == nil {
		return false
	}
	stamps := s.Options.HasTimestamps && !l.opts.NoTimestamps
	switch {
	case r.stamps && stamps && s.Options.TSVal != r.tsRecent:
		return int32(s.Options.TSVal-r.tsRecent) > 0
	case !r.stamps && stamps:
		return true
	}
	return int32(s.Seq-r.rcvNxt) > 0
}

// recent reports whether an ACK has just been sent.
func (r *waiting) recent(now clock.Time) bool {
	return r.hasReply && time.Duration(uint16(milliseconds(now))-r.replied)*time.Millisecond < timeWaitReply
}

// timeWaitAck says what the connection said last.
func (m *Mux) timeWaitAck(now clock.Time, slot uint32) {
	f := &m.front
	r := f.waits.at(slot)
	r.hasReply, r.replied = true, uint16(milliseconds(now))
	if r.stamps {
		f.options = wire.AppendTimestamps(wire.AppendNOP(f.options, 2), timestamp(now)+f.secrets.timestampOffset(&r.tuple), r.tsRecent)
	}
	m.answer(now, &r.tuple, &wire.TCPHeader{Seq: r.sndNxt, Ack: r.rcvNxt, Flags: wire.FlagACK, Window: r.window}, f.waits.auths[slot])
}

// sequenceFor returns the initial sequence number of a connection that we begin, and ok where its tuple is free: where a
// record of its last connection is left, timestamps must tell the two apart (RFC 6191 2, seen from the other
// side), and the record is gone then.
func (m *Mux) sequenceFor(now clock.Time, t *wire.Tuple) (iss uint32, ok bool) {
	f := &m.front
	iss = f.secrets.initialSequence(now, t)
	slot := f.waits.find(t)
	if slot == noSlot {
		return iss, true
	}
	r := f.waits.at(slot)
	if !f.waits.reusable(now, r) {
		return 0, false
	}
	iss = sequenceAbove(iss, r.sndNxt)
	f.waits.end(slot)
	m.stats.TimeWaitReused++
	return iss, true
}

// reusable reports whether we may begin a connection with the tuple of r.
func (w *waits) reusable(now clock.Time, r *waiting) bool {
	return r.stamps && time.Duration(milliseconds(now)-r.since)*time.Millisecond > timeWaitReuse
}

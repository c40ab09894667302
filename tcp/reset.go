package tcp

import (
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/wire"
)

// tokenBucket is a token bucket: how often something may be sent that anybody can make us send.
type tokenBucket struct {
	interval time.Duration // between two in the long run
	burst    int64
	fullAt   clock.Time // when the bucket will be full
}

// take reports whether one may be sent now.
func (l *tokenBucket) take(now clock.Time) bool {
	at := max(l.fullAt, now).Add(l.interval)
	if at.Sub(now) > time.Duration(l.burst)*l.interval {
		return false
	}
	l.fullAt = at
	return true
}

// Resets that answer segments for nobody, and ACKs that challenge: a thousand a second each, so that floods with forged
// sources come back thinned out. The bucket of challenges is shared, which would let a stranger count how many others cause
// (RFC 5961 7; Cao et al., 2016), did not what connections send have one for each.
const (
	replyInterval = time.Millisecond
	replyBurst    = 100
)

// reset answers a segment for which there is no connection (RFC 9293 3.10.7.1), with what its sender will believe.
func (m *Mux) reset(now clock.Time, t *wire.Tuple, s *Segment) {
	if s.Flags.Has(wire.FlagRST) || group(&t.Local) || group(&t.Remote) || !m.passive.resetLimit.take(now) {
		return
	}
	h := wire.TCPHeader{Flags: wire.FlagRST}
	if s.Flags.Has(wire.FlagACK) {
		h.Seq = s.Ack
	} else {
		h.Flags |= wire.FlagACK
		h.Ack = s.Seq + segmentLen(s)
	}
	if m.reply(now, t, &h, nil) {
		m.stats.ResetsOut++
	}
}

// segmentLen is SEG.LEN (RFC 9293 3.3.1): SYN and FIN count.
func segmentLen(s *Segment) uint32 {
	n := s.Len
	if s.Flags.Has(wire.FlagSYN) {
		n++
	}
	if s.Flags.Has(wire.FlagFIN) {
		n++
	}
	return n
}

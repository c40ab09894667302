package tcp

import (
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/tcp/auth"
	"github.com/millrace/millrace/tcp/syncookie"
	"github.com/millrace/millrace/wire"
)

// reply sends one segment without payload that belongs to no connection. Its options are in
// front.options, to which a, where not nil, adds a signature. Nothing is kept: what the Output has no
// room for is lost.
func (m *Mux) reply(now clock.Time, t *wire.Tuple, h *wire.TCPHeader, a *auth.State) bool {
	f := &m.passive
	o := &f.out
	o.Sign = nil
	if a != nil {
		f.options = a.AppendOption(f.options)
		o.Sign = a.Sign
	}
	h.SrcPort, h.DstPort, h.Options = t.LocalPort, t.RemotePort, f.options
	f.tuple = *t
	o.Tuple, o.Header = &f.tuple, *h
	sent := m.cfg.Output.Send(now, o)
	o.AE, f.options = false, f.options[:0]
	if sent {
		m.stats.SegmentsOut++
	}
	return sent
}

// synOptions are the options of a SYN or SYN-ACK.
type synOptions struct {
	mss            uint16
	scale          uint8
	scaling, sack  bool
	timestamps     bool
	tsVal, tsEcr   uint32
	fastOpen       bool
	fastOpenCookie []byte
}

// appendTo appends the options, as aligned as most stacks have them: at most 20 bytes and Fast Open's.
func (o *synOptions) appendTo(b []byte) []byte {
	b = wire.AppendMSS(b, o.mss)
	if o.sack {
		b = wire.AppendSACKPermitted(b)
	}
	if o.timestamps {
		b = wire.AppendTimestamps(b, o.tsVal, o.tsEcr)
	}
	if o.scaling {
		b = wire.AppendWindowScale(b, o.scale)
	}
	if o.fastOpen && len(b)+2+len(o.fastOpenCookie) <= wire.TCPMaxOptions {
		b = wire.AppendFastOpen(b, o.fastOpenCookie)
	}
	return b
}

// sendSynAck answers the SYN of h. stamp, where h has timestamps, are low bits that the timestamp has to have, plus 1.
func (m *Mux) sendSynAck(now clock.Time, l *Listener, h *halfOpen, a *auth.State, stamp *syncookie.Stamp) {
	f := &m.passive
	o := synOptions{
		mss: m.announcedMSS(&h.tuple, l.opts), scaling: h.terms.scaling(), scale: scaleFor(l.opts),
		sack: h.terms.sack(), timestamps: h.terms.timestamps(),
	}
	if o.timestamps {
		o.tsEcr, o.tsVal = h.tsRecent, timestamp(now)+f.secrets.timestampOffset(&h.tuple)
		if stamp != nil {
			o.tsVal = stamp.Timestamp(o.tsVal)
		}
	}
	if h.terms&termsFastOpen != 0 && a == nil {
		f.cookie = f.secrets.fastOpenCookie(now, &h.tuple, 0)
		o.fastOpen, o.fastOpenCookie = true, f.cookie[:]
	}
	f.options = o.appendTo(f.options)
	head := wire.TCPHeader{
		Seq: h.iss, Ack: h.irs + 1, Flags: wire.FlagSYN | wire.FlagACK, Window: uint16(m.synWindow(l.opts)),
	}
	f.out.AE = h.terms.markSynAck(&head)
	m.reply(now, &h.tuple, &head, a)
}

// markSynAck sets the bits that agree to ECN: ECE (RFC 3168 6.1.1), or what tells the peer how its SYN
// was marked (RFC 9768 3.1.2, Table 2).
func (t synTerms) markSynAck(h *wire.TCPHeader) (ae bool) {
	switch t.ecn() {
	case ecnClassic:
		h.Flags |= wire.FlagECE
	case ecnAccurate:
		switch t.synECN() {
		case wire.NotECT:
			h.Flags |= wire.FlagCWR
		case wire.ECT1:
			h.Flags |= wire.FlagCWR | wire.FlagECE
		case wire.ECT0:
			ae = true
		case wire.CE:
			h.Flags |= wire.FlagCWR
			ae = true
		}
	}
	return ae
}

// challenge says what is expected (RFC 5961 4.2), at a bounded rate.
func (m *Mux) challenge(now clock.Time, l *Listener, h *halfOpen, a *auth.State) {
	f := &m.passive
	if !f.challengeLimit.take(now) {
		return
	}
	if h.terms.timestamps() {
		f.options = wire.AppendTimestamps(wire.AppendNOP(f.options, 2), timestamp(now)+f.secrets.timestampOffset(&h.tuple), h.tsRecent)
	}
	m.stats.ChallengeAcks++
	shift := m.windowScale(l, h)
	window := (m.synWindow(l.opts) + 1<<shift - 1) >> shift // up: the SYN-ACK has told it all (RFC 9293 3.8.6)
	m.reply(now, &h.tuple, &wire.TCPHeader{
		Seq: h.iss + 1, Ack: h.irs + 1, Flags: wire.FlagACK, Window: uint16(window),
	}, a)
}

// windowScale is the scale of windows that we announce after the handshake.
func (m *Mux) windowScale(l *Listener, h *halfOpen) uint8 {
	if !h.terms.scaling() {
		return 0
	}
	return scaleFor(l.opts)
}

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

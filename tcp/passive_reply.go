package tcp

import (
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/tcp/auth"
	"github.com/millrace/millrace/tcp/ecn"
	"github.com/millrace/millrace/tcp/syncookie"
	"github.com/millrace/millrace/wire"
)

// reply sends one segment without payload that belongs to no connection. Its options are in
// passive.options, to which a, where not nil, adds a signature; p is about its IP header. Nothing is kept: what the
// Output has no room for is lost, as it could be on the way.
func (m *Mux) reply(now clock.Time, t *wire.Tuple, h *wire.TCPHeader, a *auth.State, p *Options) bool {
	f := &m.passive
	o := &f.out
	o.Sign = nil
	o.setHeader(p)
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
	accECN         bool
	reserved       int // bytes of options that follow
}

// appendTo appends the options in the order of most stacks, so that the 20 bytes need no
// padding; Fast Open follows where it fits into the 40 bytes of all options.
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
	if o.accECN {
		b = ecn.AppendInitial(b, wire.TCPMaxOptions-len(b)-o.reserved)
	}
	return b
}

// sendSynAck answers the SYN of h, and reports whether the Output had room. stamp, where not
// nil, belongs to a SYN cookie: the low bits of our timestamp carry it.
func (m *Mux) sendSynAck(now clock.Time, l *Listener, h *halfOpen, a *auth.State, stamp *syncookie.Stamp) (sent bool) {
	f := &m.passive
	o := synOptions{
		mss: m.announcedMSS(&h.tuple, l.opts), scaling: h.terms.scaling(), scale: scaleFor(l.synAckOptions),
		sack: h.terms.sack(), timestamps: h.terms.timestamps(),
	}
	if a != nil {
		o.reserved = a.OptionLen()
	}
	if o.timestamps {
		o.tsEcr, o.tsVal = h.tsRecent, timestamp(now)+f.secrets.timestampOffset(&h.tuple)
		if stamp != nil {
			o.tsVal = stamp.Timestamp(o.tsVal)
		}
	}
	if h.terms.ecn() == ecn.Accurate {
		if h.resent >= ecn.WithoutECN {
			h.terms |= termsNotECT
		}
		// A SYN that came again may show that the option was the reason (RFC 9768 3.2.3.2.2).
		o.accECN = h.resent < ecn.WithoutOption && h.terms&termsSYNRepeated == 0
	}
	if h.terms&termsFastOpen != 0 && a == nil {
		f.cookie = f.secrets.fastOpenCookie(now, &h.tuple, 0)
		o.fastOpen, o.fastOpenCookie = true, f.cookie[:]
	}
	f.options = o.appendTo(f.options)
	head := wire.TCPHeader{
		Seq: h.iss, Ack: h.irs + 1, Flags: wire.FlagSYN | wire.FlagACK, Window: uint16(m.synWindow(l.synAckOptions, h.terms)),
	}
	f.setACE(&head, h.terms.synAckField(int(h.resent)))
	return m.reply(now, &h.tuple, &head, a, l.opts)
}

// setACE puts the ACE field into a segment of reply: every segment of accurate ECN but SYNs has it (RFC 9768 3.2.2). A peer
// takes 0 for a path that clears it (section 3.2.2.4).
func (f *passive) setACE(h *wire.TCPHeader, ace ecn.Field) {
	flags, ae := ace.Flags()
	h.Flags |= flags
	f.out.AE = ae
}

// challenge sends an ACK with the number of the segment that is expected (RFC 5961 3.2 and 4.2), at a
// bounded rate.
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
	window := (m.synWindow(l.synAckOptions, h.terms) + 1<<shift - 1) >> shift // up: the SYN-ACK has announced all of it (RFC 9293 3.8.6)
	head := wire.TCPHeader{Seq: h.iss + 1, Ack: h.irs + 1, Flags: wire.FlagACK, Window: uint16(window)}
	if h.terms.ecn() == ecn.Accurate {
		f.setACE(&head, ecn.Unmarked)
	}
	m.reply(now, &h.tuple, &head, a, l.opts)
}

// windowScale is the shift of the windows that we announce after the handshake.
func (m *Mux) windowScale(l *Listener, h *halfOpen) uint8 {
	if !h.terms.scaling() {
		return 0
	}
	return scaleFor(l.synAckOptions)
}

// tokenBucket bounds how often something is sent that anybody can make us send.
type tokenBucket struct {
	interval time.Duration // between two, in the long run
	burst    int64
	fullAt   clock.Time // when the bucket will be full again: the level in one number
}

// take takes a token, and reports whether there was one.
func (l *tokenBucket) take(now clock.Time) bool {
	at := max(l.fullAt, now).Add(l.interval)
	if at.Sub(now) > time.Duration(l.burst)*l.interval {
		return false
	}
	l.fullAt = at
	return true
}

// Resets of stray segments, and challenge ACKs of records: a thousand a second each, so
// that floods with forged sources are not reflected at full rate. Challenge ACKs of
// connections are not counted here: a bucket that all connections share would let an
// attacker learn from its own challenges how many others were sent (RFC 5961 7; Cao et al.,
// 2016).
const (
	replyInterval = time.Millisecond
	replyBurst    = 100
)

// reset answers a segment for which there is no connection (RFC 9293 3.10.7.1), with
// numbers that its sender accepts: SEQ is what it acknowledged, or else the RST
// acknowledges all of the segment.
func (m *Mux) reset(now clock.Time, t *wire.Tuple, s *Segment) {
	if s.Flags.Has(wire.FlagRST) || notUnicast(&t.Local) || notUnicast(&t.Remote) || !m.passive.resetLimit.take(now) {
		return
	}
	h := wire.TCPHeader{Flags: wire.FlagRST}
	if s.Flags.Has(wire.FlagACK) {
		h.Seq = s.Ack
	} else {
		h.Flags |= wire.FlagACK
		h.Ack = s.Seq + segmentLen(s)
	}
	if m.reply(now, t, &h, nil, &m.cfg.Defaults) {
		m.stats.ResetsOut++
	}
}

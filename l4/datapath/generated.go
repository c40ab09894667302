package datapath

import (
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/internal/random"
	"github.com/millrace/millrace/ip"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// The kinds of answers, as they are counted.
const (
	answerTooBig      = iota // packet too big, fragmentation needed
	answerTimeout            // time exceeded
	answerUnreachable        // to UDP where no backend is left, or behind a tunnel
	answerReset              // TCP
	answerEcho               // echo replies
	answerUnknown            // TCP resets to segments of no connection
	answerDiscarded          // TCP resets to the ends of a connection that the gateway aborts, to the backend alone of a half-open one
	answerFull               // TCP resets because backends have as many connections as they may
	answerClosed             // TCP resets and port unreachable to ports without a service
	answerLimited            // answers that the rate forbade
	answerKinds
)

// AnswerKinds are the names of the kinds of answers, in metrics and in the status.
var AnswerKinds = [answerKinds]string{
	answerTooBig: "too_big", answerTimeout: "time_exceeded", answerUnreachable: "unreachable",
	answerReset: "reset", answerEcho: "echo_reply", answerUnknown: "reset_unknown", answerDiscarded: "reset_discarded",
	answerFull: "reset_full", answerClosed: "closed_port",
	answerLimited: "rate_limited",
}

// Answers of the gateway's own (ICMP errors, echo replies, resets) are bounded, so that it amplifies no flood of
// packets with forged sources (RFC 1812 4.3.2.8, RFC 4443 2.4 (f)). Each kind has budgets of its own: a flood of pings
// takes no reset and no packet too big from anyone.
//
//   - Of a destination, an IPv4 address or an IPv6 /64, for each kind: one host that asks too much leaves the answers
//     of others alone.
//   - Of a loop, for each kind but packet too big. A sender that does not learn of a smaller MTU stalls for good, so no
//     other sender may use its budget up. Linux exempts these messages too (icmp_ratemask, "No rate limit on PMTU
//     discovery"). An answer is smaller than the packet that asks for it, which is larger than the MTU of a link, so
//     it amplifies nothing.
//
// Answers to ARP and neighbour solicitations are not limited: without them no packet reaches the gateway.
const (
	answerRate  = 10_000 // a second, of a loop and kind
	answerBurst = 1000   // after a pause

	answerHostRate  = 1000 // a second, of a destination, loop and kind
	answerHostBurst = 200 * time.Millisecond
	answerHosts     = 4096 // destinations and kinds that a loop tracks at once, 16 bytes each
)

// answerLimiter bounds the answers of a loop.
type answerLimiter struct {
	kinds   [answerKinds]ip.RateLimiter
	hosts   *meters
	perHost allowance
}

func newAnswerLimiter(seed *random.Source) answerLimiter {
	l := answerLimiter{hosts: newMeters(answerHosts, newHashKey(seed)), perHost: newAllowance(answerHostRate, answerHostBurst)}
	for kind := range l.kinds {
		l.kinds[kind] = ip.NewRateLimiter(answerRate, answerBurst, 0)
	}
	return l
}

// take takes an answer of a kind to a destination from its budgets; false, and nothing is taken, when the destination's
// is used up. What the loop's budget refuses counts for the destination all the same, which only lets it wait longer.
func (l *answerLimiter) take(now clock.Time, kind int, to addr) bool {
	at := moment(now)
	if !l.perHost.take(&l.hosts.find(to, uint32(kind), at).packets, at) {
		return false
	}
	return kind == answerTooBig || l.kinds[kind].Take(now, 1)
}

// mayAnswer reports whether the loop may send another answer of a kind to a host now, which it then does. Both are
// counted.
func (h responder) mayAnswer(kind int, to addr) bool {
	if !h.answers.take(h.clock, kind, to) {
		h.answerCounts.Add(answerLimited, 1)
		return false
	}
	h.answerCounts.Add(kind, 1)
	return true
}

// ownTTL is the TTL or hop limit of packets that the gateway makes itself (RFC 1700).
const ownTTL = 64

// putOwn writes the IP header of a packet of the gateway, with n bytes of proto behind it.
func putOwn(b []byte, from, to addr, proto uint8, n int) {
	if from.is4() {
		wire.AppendIPv4(b[:0], &wire.IPv4Header{
			Src: from.as4(), Dst: to.as4(), Proto: proto, TTL: ownTTL, DontFragment: true, PayloadLen: n,
		})
		return
	}
	wire.AppendIPv6(b[:0], &wire.IPv6Header{
		Src: from.as16(), Dst: to.as16(), NextHeader: proto, HopLimit: ownTTL, PayloadLen: n,
	})
}

// ipLen returns the length of an IP header without options.
func ipLen(is4 bool) int {
	if is4 {
		return wire.IPv4Len
	}
	return wire.IPv6Len
}

// answerKind returns the kind that a message is counted as. The type numbers of both families do not collide in
// what is sent here: type 3 is unreachable with code 1 or 3 in IPv4, and time exceeded with code 0 in IPv6.
func answerKind(m ip.ICMPMessage) int {
	switch {
	case m.Rest != 0: // an MTU
		return answerTooBig
	case m.Type == wire.ICMPTimeExceeded || m.Type == wire.ICMPv6TimeExceeded && m.Code == 0:
		return answerTimeout
	}
	return answerUnreachable
}

// icmpReport is an ICMP error of the gateway about a packet that lies in a frame.
type icmpReport struct {
	ip.ICMPMessage
	from, to addr // a gateway address; the packet's sender
	at, n    int  // where the packet lies, from the frame's first byte, and how long it is
}

// writeICMPError makes the frame of d the error m, which leaves by hop. The quote stays where it is; the new headers
// go in front of it. Of a packet of several frames only the first is quoted. It reports false, and has changed nothing, when there is no room.
func (h responder) writeICMPError(d *packet.Desc, m *icmpReport, hop *Hop) bool {
	is4, link := m.from.is4(), linkLen(hop)
	grow, proto := ipLen(is4)+wire.ICMPLen, wire.ProtoICMPv6
	if is4 {
		proto = wire.ProtoICMP
	}
	start := m.at - grow - link // of the frame, from its present first byte
	if h.arena.Headroom(d)+start < 0 {
		return false
	}
	d.Off, d.Len = uint32(int(d.Off)+start), uint16(link+grow+min(m.n, int(d.Len)-m.at, ip.MaxQuote(is4)))
	d.L3, d.L4, d.Payload = uint8(link), uint16(link+ipLen(is4)), uint16(link+grow)
	d.Flags = packet.FlagIPv6
	if is4 {
		d.Flags = packet.FlagIPv4
	}
	d.Port, d.Proto = hop.Dev, proto
	p := h.arena.Bytes(d)
	message := p[d.L4:]
	m.Append(message[:0], m.from.as16(), m.to.as16(), message[wire.ICMPLen:])
	putOwn(p[link:], m.from, m.to, proto, len(message))
	putLink(p, hop, h.snap.Devices[hop.Dev].MAC, etherType(is4))
	return true
}

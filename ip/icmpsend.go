package ip

import (
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// Reject sends an ICMP error about a packet that came in on dev: PortUnreachable, ProtoUnreachable, HostUnreachable,
// NetUnreachable or Prohibited. pkt is the packet from its IP header on, or as much of its start as there is; it is
// borrowed. Nothing is sent where an error must not be (RFC 1122 3.2.2, RFC 4443 2.4 (e)), or where the rate limit is
// reached.
func (n *Node) Reject(now clock.Time, dev uint8, pkt []byte, k ErrorKind) {
	n.setNow(now)
	g := Datagram{Dev: dev, Packet: pkt}
	switch {
	case wire.IPv4(pkt).ValidHeader():
		g.Src, g.Dst = wire.AddrFrom4(wire.IPv4(pkt).Src()), wire.AddrFrom4(wire.IPv4(pkt).Dst())
	case wire.IPv6(pkt).ValidHeader():
		g.Src, g.Dst = wire.IPv6(pkt).Src(), wire.IPv6(pkt).Dst()
	default:
		return
	}
	g.Kind = n.Local(dev, g.Dst)
	n.reject(&g, k)
}

// reject sends the error k about g. Over IPv6 an unknown protocol is a parameter problem, which points at the octet that
// names it (RFC 1122 3.2.2.1, RFC 4443 3.4).
func (n *Node) reject(g *Datagram, k ErrorKind) {
	m := k.Message(g.Dst.Is4())
	if k == ProtoUnreachable && !g.Dst.Is4() {
		m.Rest = uint32(lastNextHeader(g.Packet))
	}
	n.sendICMPError(g, m)
}

// lastNextHeader returns the offset of the octet that names the upper layer of an IPv6 packet.
func lastNextHeader(b []byte) int {
	from := 6
	for it := wire.ExtHeaders(b); it.Next() && extended(it.Proto()); {
		from = it.Offset() - len(it.Header())
	}
	return from
}

// parameterProblem reports an IPv6 header that cannot be taken, by the offset of the octet (RFC 4443 3.4).
func (n *Node) parameterProblem(g *Datagram, code uint8, off int) {
	n.sendICMPError(g, ICMPMessage{wire.ICMPv6ParamProblem, code, uint32(off)})
}

// sendICMPError sends the error m about g, if it may be sent. Its source is the address that the packet was for, so that
// the sender can relate the two (RFC 1122 3.2.2, RFC 4443 2.2). A packet to a group has no such address, and the error
// comes from the one that source chooses. The rate limit comes after the other checks, so that errors that may not be sent
// take no tokens.
func (n *Node) sendICMPError(g *Datagram, m ICMPMessage) {
	if !n.errorAllowed(g, m) {
		return
	}
	if !n.errors.Take(n.now, 1) {
		n.stats.ErrorsLimited++
		return
	}
	src := g.Dst
	if g.Kind != Unicast {
		own, ok := n.source(g.Src, g.Dev)
		if !ok {
			return
		}
		src = own
	}
	h := Header{Src: src, Dst: g.Src, Proto: wire.ProtoICMP}
	if !src.Is4() {
		h.Proto = wire.ProtoICMPv6
	}
	quote := g.Packet[:min(len(g.Packet), MaxQuote(src.Is4()))]
	n.parts = [2][]byte{m.Append(n.head[:0], src, g.Src, quote), quote}
	if p, _ := n.reversePath(g); p != nil && n.send(p, &h, n.parts[:]) == packet.Forward {
		n.stats.Errors++
	}
}

// errorAllowed reports whether m may be sent about g: ErrorAllowed, and what only this host knows. A directed broadcast as
// source is no single host. A packet to a group or broadcast address gets no error, since every receiver would send one,
// with one exception: unknown options of IPv6 that ask for it (RFC 4443 2.4 (e.3)). This host may send errors to its own
// loopback address.
func (n *Node) errorAllowed(g *Datagram, m ICMPMessage) bool {
	if g.Src.Multicast() || g.Src == wire.Broadcast4 || g.Src.Unspecified() || n.isDirectedBroadcast(g.Src, g.Dev) {
		return false
	}
	toMany := m.Type == wire.ICMPv6ParamProblem && m.Code == icmp6UnknownOption && !g.Dst.Is4()
	return (g.Kind == Unicast || toMany) && ErrorAllowed(g.Packet)
}

// RateLimiter is a token bucket: it limits what other hosts can make this one do or send, such as ICMP errors (RFC 1812
// 4.3.2.8, RFC 4443 2.4 (f)), new neighbour resolutions (RFC 6583 7.1) and router advertisements. Its arithmetic is
// exact in integers: a token is 1e9 units, of which rate arrive each nanosecond. So no rate is lost to rounding, however
// often Take is called. It has no lock and belongs to the loop of its owner.
type RateLimiter struct {
	rate   int64      // tokens a second, above 0
	burst  int64      // tokens that a full bucket has
	tokens int64      // available, in units of 1/1e9 tokens; never more than burst
	last   clock.Time // until which tokens have been added
}

// errorBurst is the number of ICMP errors that may be sent at once, after a pause: a traceroute sends several probes together.
const errorBurst = 50

// NewRateLimiter returns a full bucket.
func NewRateLimiter(rate, burst int, now clock.Time) RateLimiter {
	return RateLimiter{rate: int64(rate), burst: int64(burst), tokens: int64(burst) * int64(time.Second), last: now}
}

// Take takes k tokens and reports true, or takes none. A time before the last one adds nothing. After a long pause the
// bucket is filled without the multiplication, which could overflow.
func (b *RateLimiter) Take(now clock.Time, k int64) bool {
	if d := int64(now.Sub(b.last)); d > 0 {
		b.last = now
		if d >= b.burst*int64(time.Second)/b.rate {
			b.tokens = b.burst * int64(time.Second)
		} else {
			b.tokens = min(b.tokens+d*b.rate, b.burst*int64(time.Second))
		}
	}
	if b.tokens < k*int64(time.Second) {
		return false
	}
	b.tokens -= k * int64(time.Second)
	return true
}

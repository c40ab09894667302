package host

import (
	"errors"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/ip"
	"github.com/millrace/millrace/wire"
)

// letter is something that another loop of the group is to do.
type letter struct {
	to *Host
	f  func(now clock.Time, h *Host)
}

// tell has another loop do something, soon.
func (h *Host) tell(to *Host, f func(now clock.Time, h *Host)) {
	h.letters = append(h.letters, letter{to, f})
	h.post()
}

// post gives what waits to the mailboxes; what finds one full waits on, in order.
func (h *Host) post() {
	for i, l := range h.letters {
		if !l.to.Do(func() { l.f(l.to.Now(), l.to) }) {
			h.letters = h.letters[:copy(h.letters, h.letters[i:])]
			h.output.RequestTick()
			return
		}
	}
	clear(h.letters)
	h.letters = h.letters[:0]
}

// change tells the other loops, and who asked for it, what one node has learned.
func (h *Host) change(now clock.Time, c ip.Change) {
	for _, o := range h.group.Hosts {
		if o != h {
			h.tell(o, func(now clock.Time, o *Host) { o.IP.Apply(now, &c) })
		}
	}
	if h.changed != nil {
		h.changed(now, c)
	}
}

// icmp tells a transport of an ICMP error: that of the loop which the flow belongs to. It reports whether
// the transport vouches for the packet that the error is about; another loop's does so later.
func (h *Host) icmp(now clock.Time, e *ip.ICMPError) bool {
	if e.Proto != wire.ProtoTCP && e.Proto != wire.ProtoUDP || len(e.Quote) < wire.UDPLen {
		return false
	}
	owner := h.group.Owner(&e.Tuple)
	anyone := e.Proto == wire.ProtoUDP && e.Kind == ip.TooBig // unconnected sockets send by any loop
	if (owner == h || anyone) && h.hear(now, e) {
		return true
	}
	for _, o := range h.group.Hosts {
		if o != h && (o == owner || anyone) && len(h.letters) < maxLetters {
			h.pass(o, e)
		}
	}
	return false
}

// maxLetters is how many letters may wait before ICMP errors, of which anybody may send any number, are
// no longer passed on.
const maxLetters = 1024

// pass tells another loop of an ICMP error.
func (h *Host) pass(to *Host, e *ip.ICMPError) {
	c := *e
	c.Quote = append([]byte(nil), e.Quote...)
	h.tell(to, func(now clock.Time, o *Host) {
		if o.hear(now, &c) && c.Kind == ip.TooBig {
			m := ip.Change{Kind: ip.PathMTU, Addr: c.Tuple.Remote, MTU: c.MTU}
			o.IP.Apply(now, &m)
			o.change(now, m)
		}
	})
}

func (h *Host) hear(now clock.Time, e *ip.ICMPError) bool {
	if e.Proto == wire.ProtoUDP {
		return h.UDP.ICMP(now, e)
	}
	return h.TCP.ICMP(now, &e.Tuple, e.Seq(), *e)
}

// groups is the host as udp's sockets see it when they join groups.
type groups struct{ h *Host }

var errNoInterface = errors.New("no such interface")

// Listen implements udp.Groups.
func (g groups) Listen(now clock.Time, socket uint32, iface uint32, group wire.Addr, include bool, sources []wire.Addr) error {
	port := uint8(iface - 1)
	if iface == 0 {
		p, _ := g.h.way(now, &wire.Tuple{Remote: group}, ip.AnyPort, nil)
		if p == nil {
			return errNoInterface
		}
		port = p.Port
	} else if iface > uint32(len(g.h.macs)) {
		return errNoInterface
	}
	return g.h.IP.Listen(now, socket, port, group, include, sources)
}

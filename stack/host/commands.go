package host

import (
	"errors"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/ip"
	"github.com/millrace/millrace/wire"
)

// command is something that another loop of the group is to do.
type command struct {
	to *Host
	f  func(now clock.Time, h *Host)
}

// command has another loop do something, soon.
func (h *Host) command(to *Host, f func(now clock.Time, h *Host)) {
	h.pending = append(h.pending, command{to, f})
	h.flushCommands()
}

// flushCommands gives what waits to the mailboxes; what finds one full waits on, in order.
func (h *Host) flushCommands() {
	for i, l := range h.pending {
		if !l.to.Do(func() { l.f(l.to.Now(), l.to) }) {
			h.pending = h.pending[:copy(h.pending, h.pending[i:])]
			h.output.RequestTick()
			return
		}
	}
	clear(h.pending)
	h.pending = h.pending[:0]
}

// onChange tells the other loops, and who asked for it, what one node has learned.
func (h *Host) onChange(now clock.Time, c ip.Change) {
	for _, o := range h.group.Hosts {
		if o != h {
			h.command(o, func(now clock.Time, o *Host) { o.IP.Apply(now, &c) })
		}
	}
	if h.changed != nil {
		h.changed(now, c)
	}
}

// onICMP tells a transport of an ICMP error: that of the loop which the flow belongs to. It reports whether
// the transport vouches for the packet that the error is about; another loop's does so later.
func (h *Host) onICMP(now clock.Time, e *ip.ICMPError) bool {
	if e.Proto != wire.ProtoTCP && e.Proto != wire.ProtoUDP || len(e.Quote) < wire.UDPLen {
		return false
	}
	owner := h.group.Owner(&e.Tuple)
	anyone := e.Proto == wire.ProtoUDP && e.Kind == ip.TooBig // unconnected sockets send by any loop
	if (owner == h || anyone) && h.inputICMP(now, e) {
		return true
	}
	for _, o := range h.group.Hosts {
		if o != h && (o == owner || anyone) && len(h.pending) < maxPending {
			h.forwardICMP(o, e)
		}
	}
	return false
}

// maxPending is how many letters may wait before ICMP errors, of which anybody may send any number, are
// no longer passed on.
const maxPending = 1024

// forwardICMP tells another loop of an ICMP error.
func (h *Host) forwardICMP(to *Host, e *ip.ICMPError) {
	c := *e
	c.Quote = append([]byte(nil), e.Quote...)
	h.command(to, func(now clock.Time, o *Host) {
		if o.inputICMP(now, &c) && c.Kind == ip.TooBig {
			m := ip.Change{Kind: ip.PathMTU, Addr: c.Tuple.Remote, MTU: c.MTU}
			o.IP.Apply(now, &m)
			o.onChange(now, m)
		}
	})
}

func (h *Host) inputICMP(now clock.Time, e *ip.ICMPError) bool {
	if e.Proto == wire.ProtoUDP {
		return h.UDP.ICMP(now, e)
	}
	return h.TCP.ICMP(now, &e.Tuple, e.Seq(), *e)
}

// udpGroups is the host as udp's sockets see it when they join groups.
type udpGroups struct{ h *Host }

var errNoInterface = errors.New("no such interface")

// Listen implements udp.Groups.
func (g udpGroups) Listen(now clock.Time, socket uint32, iface uint32, group wire.Addr, include bool, sources []wire.Addr) error {
	port := uint8(iface - 1)
	if iface == 0 {
		p, _ := g.h.route(now, &wire.Tuple{Remote: group}, ip.AnyPort, nil)
		if p == nil {
			return errNoInterface
		}
		port = p.Port
	} else if iface > uint32(len(g.h.macs)) {
		return errNoInterface
	}
	return g.h.IP.Listen(now, socket, port, group, include, sources)
}

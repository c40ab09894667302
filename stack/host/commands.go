package host

import (
	"errors"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/ip"
	"github.com/millrace/millrace/wire"
)

// command is a function that runs on the loop of another host of the group.
type command struct {
	to *Host
	f  func(now clock.Time, h *Host)
}

// command queues f for another loop. It never blocks: two loops that wait for each other would never go on.
func (h *Host) command(to *Host, f func(now clock.Time, h *Host)) {
	h.pending = append(h.pending, command{to, f})
	h.flushCommands()
}

// flushCommands passes what waits to the command queues of the loops. The first that finds a queue full waits on with all
// that follow, because changes have to arrive in order: a route may rest on the address that was added before it. What a
// command has caused, such as the report of an error to the owner of a socket, needs a Tick of its loop.
func (h *Host) flushCommands() {
	for i, l := range h.pending {
		run := func() {
			l.f(l.to.Now(), l.to)
			l.to.RequestTick()
		}
		if !l.to.Do(run) {
			h.pending = h.pending[:copy(h.pending, h.pending[i:])]
			h.output.RequestTick()
			return
		}
	}
	clear(h.pending)
	h.pending = h.pending[:0]
}

// onChange reports what one ip.Node has learned to those of the other loops, and to Config.Changed.
func (h *Host) onChange(now clock.Time, c ip.Change) {
	for _, o := range h.group.Hosts {
		if o != h {
			h.command(o, func(now clock.Time, o *Host) { o.IP.Apply(now, &c) })
		}
		if c.Kind == ip.LinkMTU6 { // behind Apply, and never within a method of the node that reports
			h.command(o, func(now clock.Time, o *Host) { o.TCP.PathsChanged(now) })
		}
	}
	if h.changed != nil {
		h.changed(now, c)
	}
}

// onICMP passes an ICMP error to the transport on the loop of the flow. It reports whether the transport
// has validated the quoted packet as its own (RFC 5927 4); that of another loop does so later.
func (h *Host) onICMP(now clock.Time, e *ip.ICMPError) bool {
	if e.Proto != wire.ProtoTCP && e.Proto != wire.ProtoUDP || len(e.Quote) < wire.UDPLen {
		return false
	}
	owner := h.group.Owner(&e.Tuple)
	// An unconnected UDP socket sends on any loop, so each of them may have sent the packet.
	anyone := e.Proto == wire.ProtoUDP
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

// maxPending is the number of commands that wait before ICMP errors are dropped instead: an attacker may send any
// number of them.
const maxPending = 1024

// forwardICMP passes a copy of an ICMP error to another loop. The path MTU is recorded only after the
// transport there has validated the quoted packet, on all loops, because each routes by itself.
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

// inputICMP passes an ICMP error to this loop's transport.
func (h *Host) inputICMP(now clock.Time, e *ip.ICMPError) bool {
	if e.Proto == wire.ProtoUDP {
		return h.UDP.ICMP(now, e)
	}
	return h.TCP.ICMP(now, &e.Tuple, e.Seq(), *e)
}

// udpGroups implements udp.Groups: sockets join multicast groups by it.
type udpGroups struct{ h *Host }

var errNoInterface = errors.New("no such interface")

// Listen implements udp.Groups.
func (g udpGroups) Listen(now clock.Time, socket uint32, iface uint32, group wire.Addr, include bool, sources []wire.Addr) error {
	dev := uint8(iface - 1)
	if iface == 0 { // the interface of the route to the group (RFC 3678 2.1)
		p, _ := g.h.route(now, &wire.Tuple{Remote: group}, ip.AnyDev, nil)
		if p == nil {
			return errNoInterface
		}
		dev = p.Dev
	} else if iface > uint32(len(g.h.macs)) {
		return errNoInterface
	}
	return g.h.IP.Listen(now, socket, dev, group, include, sources)
}

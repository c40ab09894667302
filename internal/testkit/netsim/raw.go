package netsim

import (
	"github.com/millrace/millrace/wire"
)

// Raw is a node without TCP: an attacker, or a peer that a test plays by hand. It sees each packet that
// arrives and sends what it likes, from any address.
type Raw struct {
	Addr wire.Addr

	// Receive is called with each packet, which it borrows; nil throws them away.
	Receive func(b []byte)

	net  *Net
	ways map[wire.Addr][]*Pipe
}

// Raw adds such a node.
func (n *Net) Raw() *Raw {
	r := &Raw{net: n, Addr: n.addr(), ways: map[wire.Addr][]*Pipe{}}
	n.add(r.Addr, r)
	return r
}

func (r *Raw) address() wire.Addr { return r.Addr }

func (r *Raw) way(to wire.Addr, hops []*Pipe) { r.ways[to] = hops }

// arrive implements node.
func (r *Raw) arrive(p *Packet) {
	r.net.report(Arrived, p, "")
	if r.Receive != nil {
		r.Receive(p.Bytes)
	}
	r.net.release(p)
}

// Also has packets to address a arrive at r too, which has no node: one address of a flood, say.
func (r *Raw) Also(a wire.Addr) { r.net.add(a, r) }

// Send sends an IP packet to a node, whatever addresses it names. Without a path it arrives at once.
func (r *Raw) Send(to Endpoint, b []byte) {
	p := r.net.packet(r.Addr)
	p.Bytes = append(p.Bytes, b...)
	r.net.send(p, to.address(), r.ways[to.address()])
}

// Package netsim is a network in virtual time, between any number of tcp.Mux: for tests that must
// see years of bad networks in seconds, and the same ones again.
//
// Nothing here reads a clock, sleeps, or runs beside something else. A Net is a heap of events;
// Run takes them out one after the other, and time is that of the event. All randomness comes
// from the seed, so two runs with one seed are the same to the last bit of the last packet.
//
// Packets are whole IP packets in bytes, with checksums: what the profile word corrupt damages is
// found by the receiver's checksum, or not at all. What a link does is said by the words of
// pmd.Profile, in the same order and with the same meaning as on a real device.
//
//	n := netsim.New(7)
//	a, b := n.Host(netsim.HostConfig{}), n.Host(netsim.HostConfig{})
//	n.Join(a, b, netsim.MustProfile("delay=10ms loss=1% rate=100mbit queue=64"))
//	f := n.Flow(netsim.FlowConfig{From: a, To: b, Bytes: 1 << 20})
//	n.Run(time.Minute)
//	f.Done(), f.Err(), f.Took()
package netsim

import (
	"fmt"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/wire"
)

// start is when a Net begins. It is not 0, so that code which takes 0 for "never" is found out.
const start = clock.Time(1000 * time.Second)

// Net is a network: nodes, pipes between them, and what is going to happen.
type Net struct {
	now    clock.Time
	seed   uint64
	events events
	nodes  map[wire.Addr]node
	count  int // hosts made
	flows  uint16
	pipes  int // pipes made
	watch  []func(*Event)
	free   []*Packet
	steps  uint64
}

// node is what packets are sent to.
type node interface {
	arrive(p *Packet)
}

// New returns a network without nodes.
func New(seed uint64) *Net {
	return &Net{now: start, seed: seed, nodes: map[wire.Addr]node{}}
}

// MustProfile parses a profile that is part of the program; it panics where that is wrong.
func MustProfile(text string) pmd.Profile {
	p, err := pmd.ParseProfile(text)
	if err != nil {
		panic(err)
	}
	return p
}

// Now returns the virtual time.
func (n *Net) Now() clock.Time { return n.now }

// Elapsed returns the virtual time since the network was made.
func (n *Net) Elapsed() time.Duration { return n.now.Sub(start) }

// Steps returns how many events have happened: a measure of work that is the same in each run.
func (n *Net) Steps() uint64 { return n.steps }

// At has f called at time t, or now where t has passed.
func (n *Net) At(t clock.Time, f func()) { n.events.push(event{at: max(t, n.now), call: f}) }

// After has f called when d has passed.
func (n *Net) After(d time.Duration, f func()) { n.At(n.now.Add(d), f) }

// Run lets d pass.
func (n *Net) Run(d time.Duration) { n.RunUntil(d, func() bool { return false }) }

// RunUntil lets time pass until done reports true, which is asked after each event, and d at most.
// It reports whether it was done.
func (n *Net) RunUntil(d time.Duration, done func() bool) bool {
	end := n.now.Add(d)
	for n.events.next() <= end {
		n.step()
		if done() {
			return true
		}
	}
	n.now = end
	return done()
}

// step lets the next event happen.
func (n *Net) step() {
	e := n.events.pop()
	n.now = e.at
	n.steps++
	switch {
	case e.packet != nil:
		n.forward(e.packet)
	case e.host != nil:
		e.host.wake(e.at)
	default:
		e.call()
	}
}

// Path has packets from one address to another pass these pipes, in order. Without a pipe they
// arrive at once.
func (n *Net) Path(from, to Endpoint, pipes ...*Pipe) { from.way(to.address(), pipes) }

// Join connects two nodes by a pipe in each direction, and returns them: tx of the profile is what
// a sends, rx what it receives.
func (n *Net) Join(a, b Endpoint, p pmd.Profile) (ab, ba *Pipe) {
	ab, ba = n.Pipe(p.Tx, p.Seed), n.Pipe(p.Rx, p.Seed)
	n.Path(a, b, ab)
	n.Path(b, a, ba)
	return ab, ba
}

// Dumbbell connects each node on the left with each on the right by one pipe in each direction,
// which all of them share.
func (n *Net) Dumbbell(left, right []Endpoint, p pmd.Profile) (lr, rl *Pipe) {
	lr, rl = n.Pipe(p.Tx, p.Seed), n.Pipe(p.Rx, p.Seed)
	for _, a := range left {
		for _, b := range right {
			n.Path(a, b, lr)
			n.Path(b, a, rl)
		}
	}
	return lr, rl
}

// Endpoint is a node that packets can be sent from and to: a Host or a Raw.
type Endpoint interface {
	node
	address() wire.Addr
	way(to wire.Addr, pipes []*Pipe)
}

// addr returns the address of the next node.
func (n *Net) addr() wire.Addr {
	n.count++
	if n.count > 0x1fffe {
		panic("netsim: too many nodes")
	}
	return wire.AddrFrom4([4]byte{198, byte(18 + n.count>>16), byte(n.count >> 8), byte(n.count)})
}

// add gives a node its address.
func (n *Net) add(a wire.Addr, x node) {
	if n.nodes[a] != nil {
		panic(fmt.Sprintf("netsim: two nodes have the address %v", a))
	}
	n.nodes[a] = x
}

// mix makes one seed out of two.
func mix(a, b uint64) uint64 {
	x := a ^ b*0x9e3779b97f4a7c15
	x ^= x >> 32
	x *= 0xd6e8feb86659fd93
	return x ^ x>>32
}

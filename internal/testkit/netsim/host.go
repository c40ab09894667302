package netsim

import (
	"math/rand/v2"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/tcp"
	"github.com/millrace/millrace/wire"
)

const (
	defaultMTU     = 1500
	defaultOffload = 65_535 - 60 - 40
	refusedWait    = 50 * time.Microsecond // until a host polls again whose output had no room
	maxTurns       = 10_000                // of a host without time passing: more is a loop without end
)

// HostConfig describes a Host. The zero value is an IPv4 host with an Ethernet MTU that merges what
// it receives and has what it sends cut, as package host does.
type HostConfig struct {
	// TCP configures the Mux. Output and Now are the net's; Seed and Secret follow from the seed of
	// the net where they are zero.
	TCP tcp.Config

	IPv6     bool
	MTU      int           // of its interface; 0 is 1500
	Offload  int           // payload of one Outgoing at most, bytes; 0 is what fits into 64 KiB
	NoGRO    bool          // hand every segment to the Mux on its own
	Coalesce time.Duration // how long the first packet of a burst waits for others
	Refuse   pmd.Percent   // how often the output has no room
}

// Host is a Mux with an address, and stands for all that is around a Mux in a real host.
type Host struct {
	TCP  *tcp.Mux
	Addr wire.Addr

	// Verdicts counts what became of packets that arrived.
	Verdicts [packet.Verdicts]uint64

	net    *Net
	cfg    HostConfig
	ways   map[wire.Addr]*way
	inbox  []*Packet
	pollAt clock.Time // of the event that is pending, Never for none
	turns  int        // at this time
	last   clock.Time
	merge  merger
	cut    tcp.Segmenter
	rng    rand.PCG
	refuse pmd.Probability
}

// way is how packets get to a destination.
type way struct {
	hops []*Pipe
	mtu  int // what is known of it
}

// Host adds a host to the network.
func (n *Net) Host(cfg HostConfig) *Host {
	h := &Host{net: n, cfg: cfg, Addr: n.addr(), ways: map[wire.Addr]*way{}, pollAt: clock.Never, refuse: pmd.NewProbability(cfg.Refuse)}
	if cfg.IPv6 {
		h.Addr = v6(h.Addr)
	}
	if h.cfg.MTU == 0 {
		h.cfg.MTU = defaultMTU
	}
	if h.cfg.Offload == 0 {
		h.cfg.Offload = defaultOffload
	}
	h.rng.Seed(n.seed, uint64(n.count)<<16)
	n.add(h.Addr, h)
	h.TCP = tcp.NewMux(h.config(cfg.TCP))
	return h
}

// config completes the configuration of the Mux.
func (h *Host) config(c tcp.Config) tcp.Config {
	c.Output, c.Now = h, h.net.now
	if c.Seed == 0 {
		c.Seed = h.rng.Uint64()
	}
	if c.Secret == ([32]byte{}) {
		for i := range c.Secret {
			c.Secret[i] = byte(h.rng.Uint64())
		}
	}
	return c
}

// v6 returns the IPv6 address of the host that has a as its IPv4 address.
func v6(a wire.Addr) wire.Addr {
	x := wire.Addr{0x20, 0x01, 0x0d, 0xb8}
	copy(x[12:], a[12:])
	return x
}

func (h *Host) address() wire.Addr { return h.Addr }

func (h *Host) way(to wire.Addr, hops []*Pipe) { h.ways[to] = &way{hops, h.cfg.MTU} }

// SetMTU changes the largest IP packet that the host's interface takes, and forgets what was learned
// of paths.
func (h *Host) SetMTU(mtu int) {
	h.cfg.MTU = mtu
	for _, w := range h.ways {
		w.mtu = mtu
	}
}

// Kick has the host poll its Mux at the present time: needed after calls of connections' methods that
// were made outside of Owner.Ready.
func (h *Host) Kick() { h.pollBy(h.net.now) }

// pollBy has the host polled at t, or earlier.
func (h *Host) pollBy(t clock.Time) {
	if t < h.pollAt {
		h.pollAt = t
		h.net.events.push(event{at: t, host: h})
	}
}

// arrive implements node.
func (h *Host) arrive(p *Packet) {
	h.inbox = append(h.inbox, p)
	h.pollBy(h.net.now.Add(h.cfg.Coalesce))
}

// wake runs the host if the event is the one that it waits for; others were overtaken.
func (h *Host) wake(at clock.Time) {
	if at == h.pollAt {
		h.pollAt = clock.Never
		h.poll()
	}
}

// poll is one iteration of a loop: everything that has arrived, then timers, output, and the owners.
func (h *Host) poll() {
	now := h.net.now
	if h.turns++; now != h.last {
		h.turns, h.last = 0, now
	}
	if h.turns > maxTurns {
		panic("netsim: a Mux asks to be polled for ever, at one time")
	}
	for i, p := range h.inbox {
		h.receive(p)
		h.inbox[i] = nil
	}
	h.flush()
	h.inbox = h.inbox[:0]
	h.pollBy(max(h.TCP.Poll(now), now))
}

// receive checks a packet and passes it on, alone or with those that follow it.
func (h *Host) receive(p *Packet) {
	t, seg, ecn, v := Parse(p.Bytes)
	if v == packet.Deliver && t.Local != h.Addr {
		v = packet.DropNotOurs
	}
	if v != packet.Deliver {
		h.Verdicts[v]++
		h.net.report(Refused, p, v.String())
		h.net.release(p)
		return
	}
	h.net.report(Arrived, p, "")
	if h.cfg.NoGRO {
		h.flush()
	}
	if !h.merge.take(p, &t, seg, ecn) {
		h.flush()
		h.merge.take(p, &t, seg, ecn)
	}
}

// flush passes the segment that is being put together to the Mux.
func (h *Host) flush() {
	m := &h.merge
	if len(m.packets) == 0 {
		return
	}
	v := h.TCP.Input(h.net.now, &m.tuple, &m.Segment)
	h.Verdicts[v] += uint64(len(m.packets))
	for _, p := range m.packets {
		if v.Dropped() {
			h.net.report(Dropped, p, v.String())
		}
		h.net.release(p)
	}
	m.packets = m.packets[:0]
}

// Send implements tcp.Output.
func (h *Host) Send(now clock.Time, o *tcp.Outgoing) bool {
	w := h.ways[o.Tuple.Remote]
	if w == nil {
		return true // no way: lost, as behind any router
	}
	if h.refuse != (pmd.Probability{}) && h.refuse.Sample(h.rng.Uint64()) {
		h.pollBy(now.Add(refusedWait))
		return false
	}
	for h.cut.Begin(o, Pseudo(o.Tuple, 0)); h.cut.Size() > 0; {
		p := h.net.packet(h.Addr)
		p.Bytes = appendSegment(p.Bytes, &h.cut, o)
		h.net.send(p, o.Tuple.Remote, w.hops)
	}
	return true
}

// MTU implements tcp.Output.
func (h *Host) MTU(t *wire.Tuple) int {
	if w := h.ways[t.Remote]; w != nil {
		return w.mtu
	}
	return 0
}

// LinkMTU implements tcp.Output.
func (h *Host) LinkMTU(*wire.Tuple) int { return h.cfg.MTU }

// Offload implements tcp.Output.
func (h *Host) Offload() int { return h.cfg.Offload }

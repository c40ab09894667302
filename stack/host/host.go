package host

import (
	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/ip"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/ring"
	"github.com/millrace/millrace/stack"
	"github.com/millrace/millrace/tcp"
	"github.com/millrace/millrace/udp"
	"github.com/millrace/millrace/wire"
)

// Host is the part of a host that one loop has: all of it where there is one loop. Its parts belong to
// the owner of the loop: another goroutine calls Enter before and Exit after.
//
//	now := h.Enter()
//	n := conn.Write(now, b)
//	h.Exit()
type Host struct {
	IP  *ip.Node
	TCP *tcp.Mux
	UDP *udp.Mux

	output   *stack.Output
	lock     *stack.LoopLock
	commands *stack.CommandQueue

	group         *Group
	self          int // place in the group
	pool          *ring.Pool
	arena         *packet.Arena
	macs          []wire.MAC // by port
	tso           []bool     // by port: its device cuts large packets
	maxMTU        int        // largest IP packet that one burst has frames for
	seed          uint64
	otherProtocol func(now clock.Time, h *Host, g *ip.Datagram) packet.Verdict
	changed       func(now clock.Time, c ip.Change)
	pending       []command

	// For received packets.
	gro      gro
	datagram ip.Datagram
	single   groSlot // of a datagram that is not merged
	linear   []byte  // a packet in one piece

	// For packets that are made here.
	segmenter      tcp.Segmenter
	udpSegmenter   udp.Segmenter
	header         headerTemplate
	id             uint16 // identification of the next IPv4 packet; none of them is fragmented (RFC 6864 4.1)
	tx             []packet.Desc
	ipFrame        ipFrame
	loopbackEngine *gpukern.CPU // for what comes back to this host
	loopback       packet.Batch
	txDropped      [packet.Verdicts]uint64
}

// newHost makes the host of loop i.
func newHost(g *Group, i int, cfg *Config) *Host {
	l := cfg.Loops[i]
	h := &Host{
		output: l.Output(), lock: l.Lock(), commands: l.Commands(),
		group: g, self: i, pool: l.Output().Pool(), arena: l.Output().Arena(), seed: cfg.Seed, id: uint16(cfg.Seed >> 16),
		otherProtocol: cfg.Other, changed: cfg.Changed,
		loopbackEngine: gpukern.NewCPU(gpukern.Config{HashKey: cfg.HashKey, Depth: 1}),
	}
	h.loopback.Arena = h.arena
	for p, drv := range l.Devices() {
		h.macs = append(h.macs, cfg.Links[p].MAC)
		h.tso = append(h.tso, drv.Info().Caps&pmd.CapOffload != 0)
	}
	h.maxMTU = h.frameRoom() * 32
	h.build(cfg)
	if !cfg.Dispatched {
		l.SetHandler(h)
	}
	return h
}

// build makes the layers.
func (h *Host) build(cfg *Config) {
	now := h.Enter()
	defer h.Exit()
	var owns func(*wire.Tuple) bool
	if len(cfg.Loops) > 1 {
		owns = func(t *wire.Tuple) bool { return h.group.Owner(t) == h }
	}
	seed := cfg.Seed + uint64(h.self)*0x9e3779b97f4a7c15
	n, t, u := cfg.IP, cfg.TCP, cfg.UDP
	n.Now, n.Seed, n.Secret, n.Links, n.Output = now, seed, cfg.Secret, cfg.Links, ipOutput{h}
	n.Follower, n.ID, n.Changed, n.Error = h.self > 0, uint32(h.self), h.onChange, h.onICMP
	h.IP = ip.New(n)
	t.Now, t.Seed, t.Secret, t.Output, t.Owns = now, seed, cfg.Secret, tcpOutput{h}, owns
	h.TCP = tcp.NewMux(t)
	u.Seed, u.Output, u.Groups, u.Owns = seed, udpOutput{h}, udpGroups{h}, owns
	h.UDP = udp.NewMux(u)
}

// Enter makes the calling goroutine the owner of the loop until Exit, and returns the time. It must not
// be called by the owner, which those are already who are called by the loop: tcp.Owner.Ready and the
// like.
func (h *Host) Enter() clock.Time { return h.lock.Enter() }

// Exit gives the loop back. What is to be sent leaves now where the loop sleeps, else with its turn.
func (h *Host) Exit() { h.lock.Exit() }

// ExitReader is Exit for those who have done nothing but read from TCP connections.
func (h *Host) ExitReader() {
	if h.TCP.Idle() {
		h.lock.ExitUnchanged()
	} else {
		h.lock.Exit()
	}
}

// Now returns the loop's time: that of its iteration, or of the last Enter that found it asleep. It
// belongs to the holder of the loop.
func (h *Host) Now() clock.Time { return h.output.Now() }

// Do has f run by the loop's goroutine, between two iterations; false means that too many commands
// wait already. Any goroutine may call it.
func (h *Host) Do(f func()) bool { return h.commands.Do(f) }

// Group returns the group that h is of.
func (h *Host) Group() *Group { return h.group }

// Index returns the place of h in its group.
func (h *Host) Index() int { return h.self }

// Tick implements stack.Handler: timers, output, and then events.
func (h *Host) Tick(now clock.Time) clock.Time {
	next := h.IP.Poll(now)
	next = min(next, h.TCP.Poll(now))
	next = min(next, h.UDP.Poll(now))
	if len(h.pending) > 0 {
		h.flushCommands()
		next = now
	}
	return next
}

// Lost returns how many packets the layers gave up that they had made, by reason: they had no way, or
// their neighbour does not answer. They are no packets of the loop.
func (h *Host) Lost() [packet.Verdicts]uint64 { return h.txDropped }

package host

import (
	"math/bits"

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

// Host is the part of a host on one loop: all of it where there is one loop. Its parts belong to the
// goroutine that polls the loop or holds its lock: another goroutine calls Enter before it uses them
// and Exit after.
//
//	now := h.Enter()
//	n := conn.Write(now, b)
//	h.Exit()
type Host struct {
	IP  *ip.Node
	TCP *tcp.Mux
	UDP *udp.Mux

	loop     *stack.Loop
	output   *stack.Output
	lock     *stack.LoopLock
	commands *stack.CommandQueue

	group         *Group
	self          int // place in the group, and in the mesh of the loops
	pool          *ring.Pool
	arena         *packet.Arena
	macs          []wire.MAC // by device
	tso, uso      []bool     // by device: it segments large packets of TCP (TSO), of UDP (USO)
	maxMTU        int        // largest IP packet that maxChain frames hold
	seed          uint64
	otherProtocol func(now clock.Time, h *Host, g *ip.Datagram) packet.Verdict
	changed       func(now clock.Time, c ip.Change)
	pending       []command // for other loops, whose queues were full
	user          func(now clock.Time) clock.Time
	depth         int // of the receive rings, as asked for last

	// For received packets.
	gro      gro
	datagram ip.Datagram
	single   groSlot // of a datagram of the slow path, which is not merged
	linear   []byte  // scratch: a packet of several frames in one piece

	// For packets that this host originates.
	segmenter      tcp.Segmenter
	udpSegmenter   udp.Segmenter
	train          train // that may still grow
	header         headerTemplate
	id             uint16 // identification of the next IPv4 packet, which is never fragmented (RFC 6864 4.1)
	tx             []packet.Desc
	ipFrame        ipFrame
	loopbackEngine *gpukern.CPU // for packets to this host itself: the loop's does not see them
	loopback       packet.Batch
	txDropped      [packet.Verdicts]uint64
}

// maxChain bounds the frames of an originated packet, so that one burst holds several.
const maxChain = 32

// newHost makes the host of loop i, and makes it the loop's handler unless that is dispatched.
func newHost(g *Group, i int, cfg *Config) *Host {
	l := cfg.Loops[i]
	h := &Host{
		loop: l, output: l.Output(), lock: l.Lock(), commands: l.Commands(),
		group: g, self: i, pool: l.Output().Pool(), arena: l.Output().Arena(), seed: cfg.Seed, id: uint16(cfg.Seed >> 16),
		otherProtocol: cfg.Other, changed: cfg.Changed,
		loopbackEngine: gpukern.NewCPU(gpukern.Config{HashKey: cfg.HashKey, Depth: 1}),
	}
	h.loopback.Arena = h.arena
	for i, drv := range l.Devices() {
		h.macs = append(h.macs, cfg.Links[i].MAC)
		h.tso = append(h.tso, drv.Info().Caps&pmd.CapOffload != 0)
		h.uso = append(h.uso, drv.Info().Caps&pmd.CapOffloadUDP != 0)
	}
	h.maxMTU = h.frameRoom() * maxChain
	h.build(cfg)
	if !cfg.Dispatched {
		l.SetHandler(h)
	}
	return h
}

// build makes the layers. The loop does not run yet: Enter returns the time, and Exit makes its first
// iteration call Tick. All loops but the first follow it: they learn addresses, routes and
// neighbours by onChange. Each loop has a seed of its own for random delays. The secret is the same for all,
// because flows may move between loops.
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
	if t.ReceiveRing == 0 {
		t.ReceiveRing = h.receiveRing(cfg.Links)
	}
	h.TCP = tcp.NewMux(t)
	u.Seed, u.Output, u.Groups, u.Owns = seed, udpOutput{h}, udpGroups{h}, owns
	h.UDP = udp.NewMux(u)
}

// receiveRing returns how many bytes of full segments wait in the rings of the devices at most; 0 where a driver does not know.
func (h *Host) receiveRing(links []ip.Link) (n int64) {
	for i, drv := range h.loop.Devices() {
		packets := drv.Info().RxRing
		if packets == 0 {
			return 0
		}
		n += int64(packets) * int64(links[i].MTU-wire.IPv4Len-wire.TCPLen)
	}
	return n
}

// Enter makes the calling goroutine the holder of the loop until Exit, and returns the time. A holder must
// not call it again: callbacks of the loop, such as tcp.Owner.Ready, hold it already. See
// stack.LoopLock.
func (h *Host) Enter() clock.Time { return h.lock.Enter() }

// DeviceInfo returns what the drivers of the loop's devices report, by device.
func (h *Host) DeviceInfo() []pmd.Info {
	var list []pmd.Info
	for _, d := range h.loop.Devices() {
		list = append(list, d.Info())
	}
	return list
}

// Exit ends what Enter began. Output leaves now where the loop sleeps, else with its next iteration.
func (h *Host) Exit() { h.lock.Exit() }

// ExitReader is Exit for a caller that has only read from TCP connections. Mostly that causes neither a
// segment nor a timer, and the loop need not be woken. A read that opened the window has to send an update (RFC 9293
// 3.8.6.2.2), and then it is Exit.
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

// Group returns the group of h.
func (h *Host) Group() *Group { return h.group }

// Index returns the place of h in its group.
func (h *Host) Index() int { return h.self }

// Tick implements stack.Handler: timers, output, and then events for owners of sockets. Commands that found a queue full
// are tried again in every iteration. It returns the time of the next timer.
func (h *Host) Tick(now clock.Time) clock.Time {
	h.setDepth()
	next := h.IP.Poll(now)
	next = min(next, h.TCP.Poll(now))
	next = min(next, h.UDP.Poll(now))
	if len(h.pending) > 0 {
		h.flushCommands()
		next = now
	}
	if h.user != nil {
		next = min(next, h.tickUser(now))
	}
	return next
}

// Receive rings are as deep as the connections need: each may bring an initial window, ten segments, and as many ACKs of what
// is sent to it, before the loop gets a core. A few connections have windows that TCP bounds (tcp.Config.ReceiveRing).
const (
	leastDepth    = 2048 // packets
	depthPerConn  = 32
	depthMostConn = 1 << 20 // connections that count, so that the product stays an int32
)

// setDepth asks the drivers for the depth. It changes by powers of two, so rarely.
func (h *Host) setDepth() {
	depth := depthOf(h.TCP.Len(), h.depth)
	if depth == h.depth {
		return
	}
	h.depth = depth
	for _, drv := range h.loop.Devices() {
		if d := drv.Info().RxDepth; d != nil {
			d.Set(h.depth)
		}
	}
}

// depthOf returns the depth for so many connections where it was so many packets.
func depthOf(conns, was int) int {
	n := leastDepth + depthPerConn*min(conns, depthMostConn)
	if n <= was && n >= was/2 {
		return was
	}
	return 1 << bits.Len(uint(n-1))
}

// SetTick makes each Tick call f last, when the layers have reported their events: what f causes leaves with the same
// Tick. f returns when it must be called again at the latest. Nil ends that. It belongs to the holder of the loop, and
// a host has one f.
func (h *Host) SetTick(f func(now clock.Time) clock.Time) {
	h.user = f
	h.output.RequestTick()
}

// tickUser calls f of SetTick, sends what it has caused, and calls it for the events of that.
func (h *Host) tickUser(now clock.Time) clock.Time {
	next := h.user(now)
	if h.TCP.Idle() {
		return next
	}
	next = min(h.TCP.Poll(now), h.user(now))
	if !h.TCP.Idle() {
		return now
	}
	return next
}

// RequestTick makes the loop call Tick in this iteration, or in the next. A command calls it that has used connections.
// It belongs to the holder of the loop.
func (h *Host) RequestTick() { h.output.RequestTick() }

// Watch makes the loop call f when a file is ready: see stack.Loop.Watch. It belongs to the holder of the loop.
func (h *Host) Watch(fd int, want stack.FileEvents, f func(ev stack.FileEvents)) (*stack.FileWatch, error) {
	return h.loop.Watch(fd, want, f)
}

// AddPoller adds memory that the loop polls: see stack.Loop.AddPoller. It belongs to the holder of the loop.
func (h *Host) AddPoller(p stack.Poller) { h.loop.AddPoller(p) }

// After makes the loop call f once it has sent what this iteration causes: see stack.Loop.After. It belongs to the holder of the
// loop.
func (h *Host) After(f func()) { h.loop.After(f) }

// AtEnd makes the loop call f once, when it ends. It belongs to the holder of the loop.
func (h *Host) AtEnd(f func()) { h.output.AtEnd(f) }

// TxDropped counts the packets that the layers originated but never gave to the loop, by reason: no
// route, no frame, or a neighbour that does not answer. The loop's counters do not have them.
func (h *Host) TxDropped() [packet.Verdicts]uint64 { return h.txDropped }

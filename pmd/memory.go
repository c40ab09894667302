package pmd

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/ring"
)

// MemoryConfig describes a pair of memory drivers.
type MemoryConfig struct {
	// A and B are the pools of the two ends, cut from one arena. They may be the same pool where
	// one goroutine drives both ends.
	A, B  *ring.Pool
	Name  string // Info.Device, with /a or /b behind it; "" is "memory"
	Slots int    // descriptors that each direction holds, rounded up to a power of two; 0 is 1024
	MTU   int    // Info.MTU, not enforced; 0 is 1500
	// Offload passes large packets whole (CapOffload, CapOffloadUDP), as loopback and veth of Linux do.
	Offload bool
}

// Memory is one end of a wire between two loops of one process. What one end sends the other
// receives, without a copy.
//
// For each frame that crosses the wire the receiver returns a free frame of its own to the sender's
// pool, because a pool has no lock and only its own loop may put frames into it. So no pool drains,
// whichever way the traffic goes, and a receiver without a free frame stops receiving until it has one:
// the sender's ring fills and Tx takes no more.
//
//	sender's pool -> Tx -> data ring     -> Rx -> receiver
//	sender's pool <- Rx <- returned ring <- receiver's pool
//
// Each end belongs to one goroutine; both may belong to the same, as in virtual time.
type Memory struct {
	_        pad // wires are made one after the other, for loops on different cores
	name     string
	mtu      int
	offload  bool
	mac      [6]byte
	pool     *ring.Pool
	in, out  *pipe
	count    Counters
	peer     *Memory // only its counters and its notifier may be used from here
	notifier Notifier
	closed   bool
	_        pad
}

// pad keeps what two cores write on different cache lines, as that of package ring does.
type pad [128]byte

// pipe is one direction. The sender owns every frame in it: those that it has sent and the receiver has
// not taken (data, then stage), and those that the receiver has returned.
type pipe struct {
	_        pad
	data     *ring.SPSC[packet.Desc]
	returned *ring.SPSC[uint32]

	// mu keeps Close of the sender, which empties the pipe, out of Rx of the receiver. No other method
	// takes it, so it is uncontended while both ends are open.
	mu     sync.Mutex
	stage  []packet.Desc // taken out of data, not yet received: a packet may be there in part
	closed atomic.Bool   // one end is closed
	_      pad
}

func newPipe(slots int) *pipe {
	p := &pipe{data: ring.NewSPSC[packet.Desc](slots), returned: ring.NewSPSC[uint32](slots)}
	p.stage = make([]packet.Desc, 0, p.data.Cap())
	return p
}

// NewMemory returns the two ends of a wire. It borrows the pools until both ends are closed.
func NewMemory(cfg MemoryConfig) (a, b *Memory, err error) {
	if cfg.A == nil || cfg.B == nil || cfg.A.Arena() != cfg.B.Arena() {
		return nil, nil, &OpError{Op: "open", Device: "memory", Err: errors.New("both ends need a pool of the same arena")}
	}
	if cfg.Name == "" {
		cfg.Name = "memory"
	}
	if cfg.Slots <= 0 {
		cfg.Slots = 1024
	}
	if cfg.MTU == 0 {
		cfg.MTU = 1500
	}
	ab, ba := newPipe(cfg.Slots), newPipe(cfg.Slots)
	// Locally administered unicast addresses (IEEE 802): no vendor assigns them.
	a = &Memory{name: cfg.Name + "/a", mtu: cfg.MTU, offload: cfg.Offload, mac: [6]byte{2, 0, 0, 0, 0, 0xA}, pool: cfg.A, in: ba, out: ab}
	b = &Memory{name: cfg.Name + "/b", mtu: cfg.MTU, offload: cfg.Offload, mac: [6]byte{2, 0, 0, 0, 0, 0xB}, pool: cfg.B, in: ab, out: ba}
	a.peer, b.peer = b, a
	return a, b, nil
}

// Rx implements Driver. Packets arrive at now. A packet of several descriptors waits until b and the
// pool have room for all of it; one that an empty b has no room for counts as RxInvalid. Once the
// peer is closed it returns ErrGone.
func (m *Memory) Rx(now clock.Time, b *packet.Batch) (int, error) {
	if err := m.poll("rx"); err != nil {
		return 0, err
	}
	b.Base = int64(now)
	first := len(b.D)
	m.in.mu.Lock()
	m.receive(b)
	m.in.mu.Unlock()
	got := b.D[first:]
	keep := packet.FlagMore
	if m.offload {
		keep |= packet.FlagOffload
	}
	for i := range got {
		d := &got[i]
		// Findings and verdict are the sender's: the receiver's engine starts from a clean descriptor.
		*d = packet.Desc{Off: d.Off, Len: d.Len, Flags: d.Flags & keep, Stamp: uint32(now)}
	}
	if len(got) > 0 {
		m.count.Rx(got)
	}
	return len(got), nil
}

// receive moves whole packets to b and returns a frame of the own pool for each of theirs.
func (m *Memory) receive(b *packet.Batch) {
	p := m.in
	limit := min(b.Room(), m.pool.Free(), p.returned.Room(), cap(p.stage))
	if have := len(p.stage); have < limit {
		p.stage = p.stage[:have+p.data.Pop(p.stage[have:limit])]
	}
	n := packet.Whole(p.stage, limit)
	if n == 0 && limit > 0 && limit == cap(b.D) && len(p.stage) >= limit {
		m.rejectLong()
		return
	}
	var off [1]uint32
	for _, d := range p.stage[:n] {
		off[0], _ = m.pool.Get()
		p.returned.Push(off[:])
		b.Append(d)
	}
	rest := copy(p.stage, p.stage[n:])
	p.stage = p.stage[:rest]
}

// rejectLong returns the frames of the first packet, which is longer than the caller's batch: left in
// place it would block the wire. All of it is in the pipe, because Tx passes whole packets.
func (m *Memory) rejectLong() {
	p := m.in
	have := len(p.stage)
	p.stage = p.stage[:have+p.data.Pop(p.stage[have:cap(p.stage)])]
	n := packet.Chain(p.stage)
	if n > p.returned.Room() {
		return // until the sender has reclaimed
	}
	var off [1]uint32
	for _, d := range p.stage[:n] {
		off[0] = d.Off
		p.returned.Push(off[:])
	}
	m.count.RxInvalid.Add(1)
	p.stage = p.stage[:copy(p.stage, p.stage[n:])]
}

// Tx implements Driver. Once the peer is closed it returns ErrGone and takes nothing.
func (m *Memory) Tx(_ clock.Time, b *packet.Batch) (int, error) {
	if err := m.poll("tx"); err != nil {
		return 0, err
	}
	n := packet.Whole(b.D, m.out.data.Room())
	if n == 0 {
		return m.reject(b), nil
	}
	m.count.Tx(b.D[:n])
	m.out.data.Push(b.D[:n])
	m.peer.notifier.Notify()
	return n, nil
}

// reject takes the first packet where it has more descriptors than the ring will ever hold: the caller
// would offer it again for ever.
func (m *Memory) reject(b *packet.Batch) int {
	n := packet.Chain(b.D)
	if n <= m.out.data.Cap() {
		return 0
	}
	m.count.Tx(b.D[:n])
	m.count.Refuse(b.D[:n])
	for i := range b.D[:n] {
		m.pool.Put(b.D[i].Off)
	}
	return n
}

// poll reclaims returned frames and returns an error unless both ends are open.
func (m *Memory) poll(op string) error {
	if m.closed {
		return &OpError{Op: op, Device: m.name, Err: ErrClosed}
	}
	m.reclaim()
	if m.in.closed.Load() {
		m.withdraw()
		return &OpError{Op: op, Device: m.name, Err: ErrGone, Remedy: "the other end was closed"}
	}
	return nil
}

// reclaim puts the frames that the peer has returned into the pool.
func (m *Memory) reclaim() {
	var offs [64]uint32
	for {
		n := m.out.returned.Pop(offs[:])
		for _, off := range offs[:n] {
			m.pool.Put(off)
		}
		if n < len(offs) {
			return
		}
	}
}

// withdraw takes back the packets that were sent and not received. The peer counts them as missed.
func (m *Memory) withdraw() {
	p := m.out
	p.mu.Lock()
	defer p.mu.Unlock()
	m.lose(p.stage)
	p.stage = p.stage[:0]
	var lost [64]packet.Desc
	for n := p.data.Pop(lost[:]); n > 0; n = p.data.Pop(lost[:]) {
		m.lose(lost[:n])
	}
	m.reclaim()
}

func (m *Memory) lose(d []packet.Desc) {
	m.peer.count.RxMissed.Add(packet.Packets(d))
	for i := range d {
		m.pool.Put(d[i].Off)
	}
}

// Info implements Driver.
func (m *Memory) Info() Info {
	i := Info{
		Driver: "memory", Device: m.name, MTU: m.mtu, MAC: m.mac, FD: -1, Notifier: &m.notifier,
		Caps: CapZeroCopy | CapMultiBuf, Negotiated: "in process, frames change hands", Stats: m.count.Stats(),
	}
	if m.offload {
		i.Caps |= CapOffload | CapOffloadUDP
		i.Negotiated += ", large packets pass whole"
	}
	return i
}

// Close implements Driver. It takes back what the peer has not received yet; the peer counts those
// packets as RxMissed and sees ErrGone from then on.
func (m *Memory) Close() error {
	if m.closed {
		return nil
	}
	m.closed = true
	m.in.closed.Store(true)
	m.out.closed.Store(true)
	m.withdraw()
	return nil
}

// Holds implements ring.Holder: the frames that this end has sent and the peer has not received,
// and those that the peer has returned and this end has not reclaimed. Both ends must be idle.
func (m *Memory) Holds(visit func(off uint32)) {
	p := m.out
	for i := range p.stage {
		visit(p.stage[i].Off)
	}
	p.data.Visit(func(d packet.Desc) { visit(d.Off) })
	p.returned.Visit(visit)
}

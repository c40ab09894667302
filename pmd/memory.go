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
	Name  string // told in Info.Device; "" is "memory"
	Slots int    // descriptors that each direction holds, rounded up to a power of two; 0 is 1024
	MTU   int    // told in Info, not enforced; 0 is 1500
}

// Memory is one end of a wire between two loops of one process. What one end sends the other
// receives, without a copy.
//
// A frame that crosses the wire is paid for with a frame of the receiver, which travels back to
// the sender's pool. So no pool drains, whichever way the traffic goes, and a receiver without a
// free frame stops receiving until it has one: the sender's ring fills and Tx takes no more.
//
// Each end belongs to one goroutine; both may belong to the same, as in virtual time.
type Memory struct {
	name     string
	mtu      int
	mac      [6]byte
	pool     *ring.Pool
	in, out  *pipe
	count    Counters
	peer     *Memory // only its counters and its bell are touched from here
	notifier Notifier
	closed   bool
}

// pipe is one direction. The sender owns every frame in it: what it has sent and the receiver has
// not looked at (data, then stage), and what the receiver has paid (paid).
type pipe struct {
	data *ring.SPSC[packet.Desc]
	paid *ring.SPSC[uint32]

	// mu keeps Close of the sender, which empties the pipe, out of Rx of the receiver. Nobody else
	// takes it.
	mu    sync.Mutex
	stage []packet.Desc // taken out of data, not yet received: a packet may be there in part
	stop  atomic.Bool   // one end is closed
}

func newPipe(slots int) *pipe {
	p := &pipe{data: ring.NewSPSC[packet.Desc](slots), paid: ring.NewSPSC[uint32](slots)}
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
	// Locally administered addresses (IEEE 802): nobody else on the wire has them.
	a = &Memory{name: cfg.Name + "/a", mtu: cfg.MTU, mac: [6]byte{2, 0, 0, 0, 0, 0xA}, pool: cfg.A, in: ba, out: ab}
	b = &Memory{name: cfg.Name + "/b", mtu: cfg.MTU, mac: [6]byte{2, 0, 0, 0, 0, 0xB}, pool: cfg.B, in: ab, out: ba}
	a.peer, b.peer = b, a
	return a, b, nil
}

// Rx implements Driver. Packets arrive at now. A packet of several descriptors waits until b and the
// pool have room for all of it; one that an empty b has no room for counts as RxInvalid. Once the
// peer is closed it returns ErrGone.
func (m *Memory) Rx(now clock.Time, b *packet.Batch) (int, error) {
	if err := m.check("rx"); err != nil {
		return 0, err
	}
	b.Base = int64(now)
	first := len(b.D)
	m.in.mu.Lock()
	m.receive(b)
	m.in.mu.Unlock()
	got := b.D[first:]
	for i := range got {
		d := &got[i]
		// What the sender's engine found says nothing to the receiver.
		*d = packet.Desc{Off: d.Off, Len: d.Len, Flags: d.Flags & packet.FlagMore, Stamp: uint32(now)}
	}
	if len(got) > 0 {
		m.count.Rx(got)
	}
	return len(got), nil
}

// receive moves whole packets to b and pays for each frame with one of the own pool.
func (m *Memory) receive(b *packet.Batch) {
	p := m.in
	limit := min(b.Room(), m.pool.Free(), p.paid.Room(), cap(p.stage))
	if have := len(p.stage); have < limit {
		p.stage = p.stage[:have+p.data.Pop(p.stage[have:limit])]
	}
	n := packet.Whole(p.stage, limit)
	if n == 0 && limit > 0 && limit == cap(b.D) && len(p.stage) >= limit {
		m.refuseLong()
		return
	}
	var pay [1]uint32
	for _, d := range p.stage[:n] {
		pay[0], _ = m.pool.Get()
		p.paid.Push(pay[:])
		b.Append(d)
	}
	rest := copy(p.stage, p.stage[n:])
	p.stage = p.stage[:rest]
}

// refuseLong sends the frames of the first packet, which no batch of the caller's can hold, home.
// All of it is in the pipe, because the sender has sent it at once.
func (m *Memory) refuseLong() {
	p := m.in
	have := len(p.stage)
	p.stage = p.stage[:have+p.data.Pop(p.stage[have:cap(p.stage)])]
	n := packet.Chain(p.stage)
	if n > p.paid.Room() {
		return // until the sender has collected
	}
	var home [1]uint32
	for _, d := range p.stage[:n] {
		home[0] = d.Off
		p.paid.Push(home[:])
	}
	m.count.RxInvalid.Add(1)
	p.stage = p.stage[:copy(p.stage, p.stage[n:])]
}

// Tx implements Driver. Once the peer is closed it returns ErrGone and takes nothing.
func (m *Memory) Tx(_ clock.Time, b *packet.Batch) (int, error) {
	if err := m.check("tx"); err != nil {
		return 0, err
	}
	n := packet.Whole(b.D, m.out.data.Room())
	if n == 0 {
		return m.refuse(b), nil
	}
	m.count.Tx(b.D[:n])
	m.out.data.Push(b.D[:n])
	m.peer.notifier.Notify()
	return n, nil
}

// refuse takes the first packet where it has more descriptors than the ring will ever hold.
func (m *Memory) refuse(b *packet.Batch) int {
	n := packet.Chain(b.D)
	if n <= m.out.data.Cap() {
		return 0
	}
	m.count.Tx(b.D[:n])
	m.count.TxInvalid.Add(1)
	for i := range b.D[:n] {
		m.pool.Put(b.D[i].Off)
	}
	return n
}

// check brings paid frames home and tells whether both ends are open.
func (m *Memory) check(op string) error {
	if m.closed {
		return &OpError{Op: op, Device: m.name, Err: ErrClosed}
	}
	m.collect()
	if m.in.stop.Load() {
		m.empty()
		return &OpError{Op: op, Device: m.name, Err: ErrGone, Remedy: "the other end was closed"}
	}
	return nil
}

// collect puts the frames that the peer has paid into the pool.
func (m *Memory) collect() {
	var home [64]uint32
	for {
		n := m.out.paid.Pop(home[:])
		for _, off := range home[:n] {
			m.pool.Put(off)
		}
		if n < len(home) {
			return
		}
	}
}

// empty takes back what was sent and not received; the peer counts the packets as lost.
func (m *Memory) empty() {
	p := m.out
	p.mu.Lock()
	defer p.mu.Unlock()
	m.lose(p.stage)
	p.stage = p.stage[:0]
	var lost [64]packet.Desc
	for n := p.data.Pop(lost[:]); n > 0; n = p.data.Pop(lost[:]) {
		m.lose(lost[:n])
	}
	m.collect()
}

func (m *Memory) lose(d []packet.Desc) {
	m.peer.count.RxMissed.Add(packet.Packets(d))
	for i := range d {
		m.pool.Put(d[i].Off)
	}
}

// Info implements Driver.
func (m *Memory) Info() Info {
	return Info{
		Driver: "memory", Device: m.name, MTU: m.mtu, MAC: m.mac, FD: -1, Notifier: &m.notifier,
		Caps: CapZeroCopy | CapMultiBuf, Negotiated: "in process, frames change hands", Stats: m.count.Stats(),
	}
}

// Close implements Driver. It takes back what the peer has not received yet; the peer counts those
// packets as RxMissed and sees ErrGone from then on.
func (m *Memory) Close() error {
	if m.closed {
		return nil
	}
	m.closed = true
	m.in.stop.Store(true)
	m.out.stop.Store(true)
	m.empty()
	return nil
}

// Holds implements ring.Holder: the frames that this end has sent and the peer has not received,
// and those that the peer has paid and this end has not collected. Both ends must stand still.
func (m *Memory) Holds(visit func(off uint32)) {
	p := m.out
	for i := range p.stage {
		visit(p.stage[i].Off)
	}
	p.data.Visit(func(d packet.Desc) { visit(d.Off) })
	p.paid.Visit(visit)
}

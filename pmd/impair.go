package pmd

import (
	"errors"
	"fmt"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/ring"
)

// ImpairConfig describes an Impair wrapper.
type ImpairConfig struct {
	Profile Profile
	Pool    *ring.Pool // the pool that the wrapped driver was opened with
	Hold    int        // frames that each direction may hold; 0 is a quarter of the pool
}

// Impair is a Driver around a Driver that treats packets as a bad network would: it delays, loses,
// reorders, duplicates and corrupts them by its Profile, in each direction on its own. The words
// and models are those of Linux tc-netem(8).
//
// Time is the now that Rx and Tx are given and nothing else, so the same profile works in virtual
// and in real time; the same packets at the same times with the same seed give the same result.
// Packets that are held move on when Rx or Tx is called at or after the time that Next returns.
//
// It owns the frames that it holds. It loses nothing but what the profile loses: where more frames are
// held than Hold allows, Tx takes no more and Rx leaves packets with the wrapped driver. A link that
// carries rate x delay needs that many frames.
type Impair struct {
	inner      Driver
	pool       *ring.Pool
	profile    string
	rx, tx     *link
	received   *packet.Batch // what the wrapped driver has just received, behind what is held: in buf
	receiveBuf []packet.Desc
	ready      *packet.Batch // due, and not taken by the wrapped driver yet
	now        clock.Time    // of the last call
	count      Counters      // what the caller sees
	closed     bool
}

// NewImpair wraps a driver, which it closes with itself. It borrows the pool.
func NewImpair(inner Driver, cfg ImpairConfig) (*Impair, error) {
	text := cfg.Profile.String()
	if err := cfg.Profile.check(); err != nil {
		return nil, &OpError{Op: "impair", Device: inner.Info().Device, Err: err}
	}
	hold := cfg.Hold
	if hold <= 0 {
		hold = max(1, cfg.Pool.Size()/4)
	}
	arena := cfg.Pool.Arena().View()
	return &Impair{
		inner: inner, pool: cfg.Pool, profile: text,
		rx:       newLink(cfg.Profile.Rx, cfg.Pool, hold, NewRandomSource(cfg.Profile.Seed, 0)),
		tx:       newLink(cfg.Profile.Tx, cfg.Pool, hold, NewRandomSource(cfg.Profile.Seed, 1)),
		received: packet.NewBatch(arena, 0), receiveBuf: make([]packet.Desc, packet.BatchSize), ready: packet.NewBatch(arena, packet.BatchSize),
	}, nil
}

// check applies the bounds of the parser to a profile that was not parsed.
func (p Profile) check() error {
	again, err := ParseProfile(p.String())
	if err == nil && again != p {
		err = errors.New("values without effect: a shape without jitter, or a detail of an impairment that is off")
	}
	if err != nil {
		return fmt.Errorf("profile %q: %w", p, err)
	}
	return nil
}

// Rx implements Driver. Packets are stamped with the time at which they were due. An error of the
// wrapped driver is returned once no packet is held any more.
func (m *Impair) Rx(now clock.Time, b *packet.Batch) (int, error) {
	if m.closed {
		return 0, m.closedError("rx")
	}
	m.now = now
	_ = m.flush(now) // the next Tx returns its error
	full := min(m.rx.limit, packet.BatchSize)
	taken := max(0, full-m.rx.room()) // room is reduced by filling: a batch of less capacity would make the driver drop packets that fit later
	m.received.D = m.receiveBuf[:taken:full]
	n, err := m.inner.Rx(now, m.received)
	m.rx.admit(now, m.received.D[taken:][:n])
	b.Base = int64(now)
	n = m.rx.release(now, b)
	m.count.Rx(b.D[b.Len()-n:])
	if n > 0 || len(m.rx.held.entries) > 0 {
		err = nil
	}
	return n, err
}

// Tx implements Driver. What is not due yet goes to the wrapped driver in a later call of Rx or Tx.
func (m *Impair) Tx(now clock.Time, b *packet.Batch) (int, error) {
	if m.closed {
		return 0, m.closedError("tx")
	}
	m.now = now
	if err := m.flush(now); err != nil {
		return 0, err
	}
	n := packet.Whole(b.D, m.tx.room()-m.ready.Len())
	if n == 0 && packet.Chain(b.D) > m.tx.limit {
		n = packet.Chain(b.D) // never fits: the link counts it as too large
	}
	m.count.Tx(b.D[:n])
	m.tx.admit(now, b.D[:n])
	return n, m.flush(now)
}

// flush hands packets that are due to the wrapped driver, as far as it takes them.
func (m *Impair) flush(now clock.Time) error {
	for {
		m.tx.release(now, m.ready)
		if m.ready.Len() == 0 {
			return nil
		}
		n, err := m.inner.Tx(now, m.ready)
		m.ready.Consume(n)
		if err != nil || n == 0 {
			return err
		}
	}
}

// release moves packets that are due to b and returns the number of descriptors. A packet that not
// even an empty b would hold is lost.
func (l *link) release(now clock.Time, b *packet.Batch) int {
	before, packets := b.Len(), uint64(0)
	for l.held.due() <= now {
		if l.held.pop(b) {
			packets++
			continue
		}
		if l.held.firstLen() <= cap(b.D) {
			break
		}
		l.held.free(l.pool)
		l.count.mtu.Add(1)
		l.count.tooLong.Add(1)
	}
	if packets > 0 {
		l.count.passed.Add(packets)
	}
	return b.Len() - before
}

// Next returns when the next held packet is due, clock.Never when none is held. A time that is not
// after the last call's means that a packet waits for room: in the batch given to Rx, or in the
// wrapped driver.
func (m *Impair) Next() clock.Time {
	if m.ready.Len() > 0 {
		return m.now
	}
	return min(m.rx.held.due(), m.tx.held.due())
}

// Counts returns the counters of each direction. Any goroutine may call it.
func (m *Impair) Counts() (rx, tx ImpairStats) { return m.rx.count.load(), m.tx.count.load() }

// Info implements Driver. Packets lost on receive count as RxMissed, or as
// RxInvalid where no batch holds it, on transmit as TxInvalid.
func (m *Impair) Info() Info {
	i := m.inner.Info()
	rx, tx := m.Counts()
	i.Caps |= CapTimed
	i.Placer = nil // packets are held, and their frames copied
	i.Caps &^= CapExternal
	if i.Negotiated != "" {
		i.Negotiated += "; "
	}
	i.Negotiated += "impaired: " + m.profile
	s, c := &i.Stats, m.count.Stats()
	s.RxPackets, s.RxBytes, s.TxPackets, s.TxBytes = c.RxPackets, c.RxBytes, c.TxPackets, c.TxBytes
	long := m.rx.count.tooLong.Load()
	s.RxMissed += rx.Lost() - long
	s.RxInvalid += long
	s.TxInvalid += tx.Lost()
	return i
}

// Close implements Driver: packets that are held are dropped, their frames go to the pool, and the
// wrapped driver is closed.
func (m *Impair) Close() error {
	if m.closed {
		return nil
	}
	m.closed = true
	m.rx.discard()
	m.tx.discard()
	packets := packet.Packets(m.ready.D)
	m.tx.count.passed.Add(-packets)
	m.tx.count.discarded.Add(packets)
	m.pool.PutBatch(m.ready)
	return m.inner.Close()
}

// discard gives every held frame to the pool.
func (l *link) discard() {
	l.count.discarded.Add(uint64(len(l.held.entries)))
	l.held.visit(l.pool.Put)
	l.held = newHeap(0)
}

// Holds implements ring.Holder: the frames held by the wrapper, and not those of the wrapped driver.
func (m *Impair) Holds(visit func(off uint32)) {
	m.rx.held.visit(visit)
	m.tx.held.visit(visit)
	for i := range m.ready.D {
		visit(m.ready.D[i].Off)
	}
}

func (m *Impair) closedError(op string) error {
	return &OpError{Op: op, Device: m.inner.Info().Device, Queue: m.inner.Info().Queue, Err: ErrClosed}
}

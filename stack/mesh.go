package stack

import (
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/ring"
)

// Mesh joins loops, so that a packet can be decided by another loop than the one that received it:
// a device spreads packets over queues as it likes, but both directions of a flow have to meet the
// same tables. A Handler returns packet.Handover, and the loop that Desc.Flow names (by its place in
// Join) passes the packet to its own Handler, with the engine's findings and the device it came by.
//
//	loop 0 --- data: descriptors, a burst at once ---> loop 1 ---> Handler, devices of loop 1
//	pool 0 <-- returned: free frames, one for each --- pool 1
//
// For each pair of loops and direction there is one ring of descriptors and one of frames: nothing
// is shared by more than two, nothing is locked and nothing is allocated. The receiver returns a
// free frame for each that it takes over, so no pool drains, whichever way the traffic goes. A loop
// receives from its devices only while every ring has room for what it would hand over, so that
// packets wait in the device's ring and not here, but no longer than maxCongestion. It always takes
// over, so no two loops wait for each other. Where a ring is full nevertheless, or no frame is free,
// the packet is dropped (packet.DropHandover).
//
// The upper byte of Flow goes along: see handedBy.
//
// A packet may be handed over twice, for instance to where the fragments of a datagram meet and from
// there to their flow. The third loop decides for good, so no packet circulates.
type Mesh struct {
	loops      []*Loop
	quiescence *quiescence
}

// meshWindow is about how many packets one loop may have handed over, to all others together, that
// they have not taken over: 1 ms at 2 Mpps.
const meshWindow = 2048

// maxCongestion is the longest time that a loop does not receive because another one takes nothing over: longer than some
// time slices of the scheduler, for loops that share a CPU. A loop that stands still for longer costs the others
// their packets for it, and not their own.
const maxCongestion = 100 * time.Millisecond

// peer is another loop as one loop sees it.
type peer struct {
	loop     *Loop
	to, from *pipe         // nil in a loop's entry for itself
	out      []packet.Desc // decided in this batch
	credits  int           // frames handed over that have not been returned

	congested int        // credits when the ring was found without room; 0 is not
	since     clock.Time // when it was found so, or last seen to move
}

// pipe is one direction between two loops. The frames in it are the sender's: those of packets that
// the receiver has not taken over (data), and those that it has returned (returned).
//
// The two rings order their contents by themselves (SPSC, release and acquire). The flags serve the
// end of a loop alone, and are sequentially consistent.
type pipe struct {
	data     *ring.SPSC[packet.Desc]
	returned *ring.SPSC[uint32]
	credits  int // how many frames the sender may hand over in advance: as many fit into either ring

	_      [128]byte   // the flags of the receiver and of the sender lie on cache lines of their own
	taking atomic.Bool // by the receiver: it is between Peek and the return of frames
	_      [128]byte
	end    atomic.Int32 // by the receiver: one of the constants below
	shut   atomic.Bool  // by the sender: the receiver must take no more, since the sender takes back
}

// The values of pipe.end.
const (
	pipeOpen    = iota
	pipeClosing // the receiver takes what is there, nothing may be added
	pipeLeft    // the receiver will take nothing any more
)

// loopMask are the bits of Desc.Flow that name a loop, with the verdict Handover.
const loopMask = 1<<targetShift - 1

// Join joins loops with different pools of one arena, before they run. All of them have to run: one
// whose devices have ended goes on for the others.
func Join(loops ...*Loop) (*Mesh, error) {
	pools, burst := map[*ring.Pool]bool{}, 0
	for i, l := range loops {
		switch {
		case l.peers != nil:
			return nil, fmt.Errorf("join: loop %d is joined already", i)
		case pools[l.cfg.Pool]:
			return nil, fmt.Errorf("join: loop %d shares its pool: each loop needs its own", i)
		case l.cfg.Pool.Arena() != loops[0].cfg.Pool.Arena():
			return nil, fmt.Errorf("join: the pool of loop %d is cut from another arena", i)
		}
		pools[l.cfg.Pool] = true
		burst = max(burst, l.cfg.Burst)
	}
	if len(loops) == 0 {
		return nil, errors.New("join: no loops")
	}
	m := &Mesh{loops: loops}
	m.quiescence = newQuiescence(len(loops), m.pending)
	for i, l := range loops {
		l.mesh, l.self, l.activity = m, i, m.quiescence.loops[i]
		l.out.mesh = m
		l.peers = make([]peer, len(loops))
		l.taken = packet.NewBatch(l.cfg.Pool.Arena().View(), burst)
	}
	for i, a := range loops {
		for j, b := range loops {
			if i != j {
				p := newPipe(max(meshWindow/len(loops), 4*burst))
				a.peers[j].loop, a.peers[j].to = b, p
				a.peers[j].out = make([]packet.Desc, 0, burst)
				b.peers[i].from = p
			}
		}
	}
	return m, nil
}

func newPipe(credits int) *pipe {
	return &pipe{data: ring.NewSPSC[packet.Desc](credits), returned: ring.NewSPSC[uint32](credits), credits: credits}
}

// Loops borrows the loops of the mesh, in the order of Join.
func (m *Mesh) Loops() []*Loop { return m.loops }

// pending reports whether packets are between two loops.
func (m *Mesh) pending() bool {
	for _, l := range m.loops {
		if l.handedOver() {
			return true
		}
	}
	return false
}

// handOver collects packets for the loops that they name. A packet that names none, its own, or has
// been handed over twice, is unsupported.
func (l *Loop) handOver(d []packet.Desc) {
	for len(d) > 0 {
		n := max(1, packet.Chain(d))
		to, by := uint64(d[0].Flow&loopMask), d[0].Flow&^loopMask
		if to >= uint64(len(l.peers)) || int(to) == l.self || d[0].Flags.Has(packet.FlagHandedAgain) {
			l.out.drop(d[:n], packet.DropUnsupported)
			d = d[n:]
			continue
		}
		mark := packet.FlagHanded | d[0].Flags&packet.FlagHanded<<1 // FlagHandedAgain is the next bit
		p := &l.peers[to]
		at := len(p.out)
		p.out = l.out.appendInFrames(p.out, d[:n], p.to.credits, packet.DropHandover)
		for i := range p.out[at:] {
			o := &p.out[at+i]
			o.Flags |= mark
			o.Verdict, o.Flow = packet.Undecided, by
		}
		d = d[n:]
	}
}

// flushPeers hands over what the batch had for other loops, a burst for each, and wakes those that
// sleep.
func (l *Loop) flushPeers() {
	for i := range l.peers {
		p := &l.peers[i]
		if len(p.out) == 0 {
			continue
		}
		n := 0
		if p.to.end.Load() == pipeOpen {
			if p.to.credits-p.credits < len(p.out) {
				l.reclaim(p)
			}
			n = packet.Whole(p.out, p.to.credits-p.credits)
		}
		if n > 0 {
			p.to.data.Push(p.out[:n])
			p.credits += n
			l.count.HandedOver += packet.Packets(p.out[:n])
			p.loop.notifier.wake()
		}
		l.out.drop(p.out[n:], packet.DropHandover)
		p.out = p.out[:0]
	}
}

// congested reports whether some ring may have too little room for the next burst and those inside the engine.
func (l *Loop) congested(now clock.Time) bool {
	need, is := l.burstFrames()*(l.inside+1), false
	for i := range l.peers {
		p := &l.peers[i]
		if p.to != nil {
			need = min(need, p.to.credits)
		}
		if p.to == nil || p.to.credits-p.credits >= need {
			p.congested = 0
			continue
		}
		l.reclaim(p)
		switch {
		case p.to.credits-p.credits >= need || p.to.end.Load() != pipeOpen:
			p.congested = 0
			continue
		case p.congested == 0 || p.credits < p.congested: // new, or it moves
			p.since = now
		}
		p.congested = max(p.credits, 1)
		is = is || now.Sub(p.since) < maxCongestion
	}
	return is
}

// exchange takes over what the other loops have for this one, a burst of each, and reclaims returned
// frames.
func (l *Loop) exchange(now clock.Time) int {
	moved := 0
	for i := range l.peers {
		p := &l.peers[i]
		if p.credits > 0 {
			l.reclaim(p)
			if p.to.end.Load() == pipeLeft {
				l.takeBack(p)
			}
		}
		if p.from != nil {
			moved += l.takeOver(now, p.from)
		}
	}
	return moved
}

// takeOver passes a burst that another loop handed over to the handler.
//
// The sender may end at the same time and take back what is in the ring. taking and shut decide who
// has it (Dekker's protocol): each side sets its own flag and then reads the other's.
func (l *Loop) takeOver(now clock.Time, p *pipe) int {
	if p.data.Len() == 0 || p.end.Load() == pipeLeft {
		return 0
	}
	l.activity.busy()
	b := l.taken
	p.taking.Store(true)
	if p.shut.Load() {
		p.taking.Store(false)
		return 0
	}
	b.D = b.D[:packet.Whole(b.D[:cap(b.D)], p.data.Peek(b.D[:cap(b.D)]))]
	p.data.Skip(len(b.D))
	dropped := l.returnFrames(p, b)
	p.taking.Store(false)

	n := len(b.D) + dropped
	b.Base = int64(now)
	if len(b.D) > 0 {
		l.count.TakenOver += packet.Packets(b.D)
		l.handle(now, b)
		b.Reset()
	}
	return n
}

// returnFrames returns a free frame to the sender for each descriptor of b. Packets for which there is no
// frame are dropped: their own frames go back. It returns how many descriptors those were.
func (l *Loop) returnFrames(p *pipe, b *packet.Batch) (dropped int) {
	n := packet.Whole(b.D, l.cfg.Pool.Free())
	p.returned.Push(l.cfg.Pool.GetBatch(n))
	rest := b.D[n:]
	b.D = b.D[:n]
	for i := range rest {
		p.returned.Push([]uint32{rest[i].Off})
	}
	lost := packet.Packets(rest)
	l.count.TakenOver += lost
	l.count.Dropped[packet.DropHandover] += lost
	return len(rest)
}

// reclaim puts the frames that a peer has returned into the pool.
func (l *Loop) reclaim(p *peer) {
	for {
		n := p.to.returned.Pop(l.returned[:])
		for _, off := range l.returned[:n] {
			l.cfg.Pool.Put(off)
		}
		p.credits -= n
		if n < len(l.returned) {
			return
		}
	}
}

// takeBack drops what was handed over to a peer that will not take it. The peer does not touch the
// pipe any more.
func (l *Loop) takeBack(p *peer) {
	l.reclaim(p)
	for p.credits > 0 {
		n := p.to.data.Pop(l.taken.D[:cap(l.taken.D)])
		d := l.taken.D[:n]
		l.count.TakenOver += packet.Packets(d)
		l.out.drop(d, packet.DropHandover)
		p.credits -= n
	}
}

// leave ends a loop's part in the mesh: it decides what was handed to it and takes back what it
// handed over and no loop has taken. It waits for no loop but one that is just taking a burst.
func (l *Loop) leave() {
	if l.mesh == nil {
		return
	}
	for i := range l.peers {
		if p := l.peers[i].from; p != nil {
			p.end.Store(pipeClosing)
		}
	}
	for l.exchange(l.out.now) > 0 {
		l.out.flush()
	}
	for i := range l.peers {
		p := &l.peers[i]
		if p.to == nil {
			continue
		}
		p.from.end.Store(pipeLeft)
		p.to.shut.Store(true)
		for p.to.taking.Load() {
			runtime.Gosched()
		}
		l.takeBack(p)
	}
	l.activity.idle()
}

// handedOver reports whether another loop has packets for this one.
func (l *Loop) handedOver() bool {
	for i := range l.peers {
		if p := l.peers[i].from; p != nil && p.data.Len() > 0 {
			return true
		}
	}
	return false
}

// hasCredits reports whether a peer has frames of this loop.
func (l *Loop) hasCredits() bool {
	for i := range l.peers {
		if l.peers[i].credits > 0 {
			return true
		}
	}
	return false
}

// Holds implements ring.Holder: the frames between two loops. The loops must stand still.
func (m *Mesh) Holds(visit func(off uint32)) {
	for _, l := range m.loops {
		for i := range l.peers {
			if p := l.peers[i].from; p != nil {
				p.holds(visit)
			}
		}
	}
}

// holds visits the frames of both rings.
func (p *pipe) holds(visit func(off uint32)) {
	p.data.Visit(func(d packet.Desc) { visit(d.Off) })
	p.returned.Visit(visit)
}

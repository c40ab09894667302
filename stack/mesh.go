package stack

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/ring"
)

// Mesh joins loops, so that a packet can be decided by another loop than the one that received it:
// a device spreads packets over queues as it likes, but both directions of a flow are to meet the
// same tables. A Handler says packet.Handover, and the loop that Desc.Flow names (by its place in
// Join) gives the packet to its own Handler, with what the engine found and the port it came by.
//
//	loop 0 --- data: descriptors, a burst at once ---> loop 1 ---> Handler, ports of loop 1
//	pool 0 <-- paid: free frames, one for each ------- pool 1
//
// For each pair of loops and direction there is one ring of descriptors and one of frames: nothing
// is shared by more than two, nothing is locked and nothing is allocated. A frame that changes
// hands is paid for with a free one, so no pool drains, whichever way the traffic goes. Where the ring
// is full or no frame is free the packet is dropped (packet.DropHandover): a loop never waits for another.
//
// A packet may be handed over twice, for instance to where the fragments of a datagram meet and from
// there to their flow. The third loop decides for good, so no packet wanders for ever.
type Mesh struct{ loops []*Loop }

// inFlight is about how many packets one loop may have handed over, to all others together, that
// they have not looked at: 1 ms at 2 Mpps.
const inFlight = 2048

// peer is another loop as one loop sees it.
type peer struct {
	loop     *Loop
	to, from *pipe         // nil in a loop's entry for itself
	out      []packet.Desc // decided in this batch
	owed     int           // frames handed over that have not been paid back
}

// pipe is one direction between two loops. The frames in it are the sender's: those of packets that
// the receiver has not looked at (data), and those that it has paid (paid).
type pipe struct {
	data *ring.SPSC[packet.Desc]
	paid *ring.SPSC[uint32]
	most int // frames that the sender may be owed: as many fit into either ring

	_      [128]byte
	taking atomic.Bool // by the receiver: it is between Peek and the payment
	_      [128]byte
	end    atomic.Int32 // by the receiver: one of the constants below
	shut   atomic.Bool  // by the sender: the receiver must take no more, since the sender takes back
}

// The values of pipe.end.
const (
	pipeOpen    = iota
	pipeClosing // the receiver takes what is there, nothing may be added
	pipeLeft    // the receiver will not look again
)

// Join joins loops with different pools of one arena, before they run. All of them are to be run:
// one whose ports have ended goes on for the others.
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
	m := &Mesh{loops}
	for i, l := range loops {
		l.mesh, l.self = m, i
		l.peers = make([]peer, len(loops))
		l.taken = packet.NewBatch(l.cfg.Pool.Arena().View(), burst)
		l.looks = make([]uint32, len(loops))
	}
	for i, a := range loops {
		for j, b := range loops {
			if i != j {
				p := newPipe(max(inFlight/len(loops), 4*burst))
				a.peers[j].loop, a.peers[j].to = b, p
				a.peers[j].out = make([]packet.Desc, 0, burst)
				b.peers[i].from = p
			}
		}
	}
	return m, nil
}

func newPipe(most int) *pipe {
	return &pipe{data: ring.NewSPSC[packet.Desc](most), paid: ring.NewSPSC[uint32](most), most: most}
}

// hand sorts packets to be handed over by their loop. What no loop can get is unsupported.
func (l *Loop) hand(d []packet.Desc) {
	for len(d) > 0 {
		n := max(1, packet.Chain(d))
		to := uint64(d[0].Flow)
		if to >= uint64(len(l.peers)) || int(to) == l.self || d[0].Flags.Has(packet.FlagHandedAgain) {
			l.drop(d[:n], packet.DropUnsupported)
			d = d[n:]
			continue
		}
		mark := packet.FlagHanded | d[0].Flags&packet.FlagHanded<<1 // FlagHandedAgain is the next bit
		p := &l.peers[to]
		at := len(p.out)
		p.out = append(p.out, d[:n]...)
		for i := range p.out[at:] {
			o := &p.out[at+i]
			o.Flags |= mark
			o.Verdict, o.Flow = packet.Undecided, 0
		}
		d = d[n:]
	}
}

// flush hands over what the batch had for other loops, a burst for each, and wakes those that sleep.
func (l *Loop) flush() {
	for i := range l.peers {
		p := &l.peers[i]
		if len(p.out) == 0 {
			continue
		}
		n := 0
		if p.to.end.Load() == pipeOpen {
			if p.to.most-p.owed < len(p.out) {
				l.collect(p)
			}
			n = packet.Whole(p.out, p.to.most-p.owed)
		}
		if n > 0 {
			p.to.data.Push(p.out[:n])
			p.owed += n
			l.count.Handed += packet.Packets(p.out[:n])
			p.loop.mail.wake()
		}
		l.drop(p.out[n:], packet.DropHandover)
		p.out = p.out[:0]
	}
}

// exchange takes what the other loops have for this one, a burst of each, and collects payments.
func (l *Loop) exchange(now clock.Time) int {
	moved := 0
	for i := range l.peers {
		p := &l.peers[i]
		if p.owed > 0 {
			l.collect(p)
			if p.to.end.Load() == pipeLeft {
				l.takeBack(p)
			}
		}
		if p.from != nil {
			moved += l.take(now, p.from)
		}
	}
	return moved
}

// take decides a burst that another loop handed over.
func (l *Loop) take(now clock.Time, p *pipe) int {
	if p.data.Len() == 0 || p.end.Load() == pipeLeft {
		return 0
	}
	l.quiet.stir()
	b := l.taken
	p.taking.Store(true)
	if p.shut.Load() {
		p.taking.Store(false)
		return 0
	}
	b.D = b.D[:packet.Whole(b.D[:cap(b.D)], p.data.Peek(b.D[:cap(b.D)]))]
	p.data.Skip(len(b.D))
	unpaid := l.pay(p, b)
	p.taking.Store(false)

	n := len(b.D) + unpaid
	b.Base = int64(now)
	if len(b.D) > 0 {
		l.count.Taken += packet.Packets(b.D)
		l.handle(now, b)
		b.Reset()
	}
	return n
}

// pay gives the sender a free frame for each descriptor of b. Packets that there is no frame for are
// dropped: their own frames go back. It returns how many descriptors those were.
func (l *Loop) pay(p *pipe, b *packet.Batch) (unpaid int) {
	n := packet.Whole(b.D, l.cfg.Pool.Free())
	p.paid.Push(l.cfg.Pool.GetBatch(n))
	rest := b.D[n:]
	b.D = b.D[:n]
	for i := range rest {
		p.paid.Push([]uint32{rest[i].Off})
	}
	lost := packet.Packets(rest)
	l.count.Taken += lost
	l.count.Dropped[packet.DropHandover] += lost
	return len(rest)
}

// collect puts the frames that a peer has paid into the pool.
func (l *Loop) collect(p *peer) {
	for {
		n := p.to.paid.Pop(l.home[:])
		for _, off := range l.home[:n] {
			l.cfg.Pool.Put(off)
		}
		p.owed -= n
		if n < len(l.home) {
			return
		}
	}
}

// takeBack drops what was handed to a peer that will not look at it. The peer stands away from the
// pipe for good.
func (l *Loop) takeBack(p *peer) {
	l.collect(p)
	for p.owed > 0 {
		n := p.to.data.Pop(l.taken.D[:cap(l.taken.D)])
		d := l.taken.D[:n]
		l.count.Taken += packet.Packets(d)
		l.drop(d, packet.DropHandover)
		p.owed -= n
	}
}

package afxdp

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/pmd/vnet"
	"github.com/millrace/millrace/ring"
)

// Queue is one queue of a Device: a pmd.Driver. It belongs to one loop, as its pool does.
//
// Rx, Tx and batches count descriptors; Stats count packets, which may have several of them.
type Queue struct {
	socket // the four rings; see the package comment

	rxHeld    frameSet    // in fill or rx
	txHeld    frameSet    // in tx or comp
	pool      *ring.Pool  // frames that are received go to the caller, those that were sent come back here
	arena     *ring.Arena // the UMEM: addresses in the rings are offsets into it
	frame     uint32      // bytes of a frame
	maxPacket uint32      // bytes of a packet that the device takes
	rxTarget  int         // frames that rxHeld shall hold
	rxMost    int         // the most that it may: rxTarget follows depth
	depth     pmd.RxDepth

	// dev is never used: it keeps the program attached while the queue is in use. A bpf_link that the garbage collector
	// finds unreachable is closed, and the interface would then go silent without an error.
	dev *Device

	large *vnet.Sender // sends large packets; nil where the queue takes none

	id        int
	closed    bool
	unsent    bool       // the kernel stopped sending (EAGAIN, ENOBUFS): kick again
	linkErr   error      // state of the link at the last probe or kick; nil is up
	nextProbe clock.Time // when an idle Rx asks for the state of the link again

	stat counters
	info pmd.Info // what does not change

	mu         sync.Mutex         // guards fd and final: Info against Close
	finalStats unix.XDPStatistics // what the kernel had counted when the socket was closed
}

// A queue is audited as a holder: the kernel does not report which frames it has.
var (
	_ pmd.Driver  = (*Queue)(nil)
	_ ring.Holder = (*Queue)(nil)
)

// counters are written by the loop, once a batch, and read by Info in any goroutine. They are not
// pmd.Counters because the hot loops have counted packets and bytes already.
type counters struct {
	rxPackets, rxBytes, rxInvalid atomic.Uint64
	txPackets, txBytes, txInvalid atomic.Uint64
	txInvalidBytes                atomic.Uint64
	wakeups, starved              atomic.Uint64
}

func newQueue(cfg *Config, s *socket, id int, pool *ring.Pool) *Queue {
	a := pool.Arena()
	return &Queue{
		socket: *s, id: id, pool: pool, arena: a,
		rxHeld: newFrameSet(a), txHeld: newFrameSet(a),
		frame:    uint32(a.FrameSize()),
		rxTarget: cfg.rxFrames(pool), rxMost: cfg.rxFrames(pool),
	}
}

// Info implements pmd.Driver. RxMissed counts packets for which the kernel found no frame, no room
// in the rx ring or, without multi-buffer, no frame that is large enough.
func (q *Queue) Info() pmd.Info {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.fd >= 0 {
		q.finalStats = kernelStats(q.fd)
	}
	k, s := &q.finalStats, &q.stat
	info := q.info
	info.FD, info.RxDepth = q.fd, &q.depth
	info.Stats = pmd.Stats{
		RxPackets: s.rxPackets.Load(),
		RxBytes:   s.rxBytes.Load(),
		TxPackets: s.txPackets.Load(),
		TxBytes:   s.txBytes.Load(),
		RxMissed:  k.Rx_dropped + k.Rx_ring_full,
		RxInvalid: s.rxInvalid.Load() + k.Rx_invalid_descs,
		TxInvalid: s.txInvalid.Load() + k.Tx_invalid_descs,
		Wakeups:   s.wakeups.Load(),

		TxInvalidBytes: s.txInvalidBytes.Load(),
	}
	return info
}

// Starved returns how often the queue needed frames for its fill ring and the pool had too few: the pool
// is too small, or frames are held elsewhere. Any goroutine may call it.
func (q *Queue) Starved() uint64 { return q.stat.starved.Load() }

// Holds implements ring.Holder: the frames that the kernel holds.
func (q *Queue) Holds(visit func(off uint32)) {
	q.rxHeld.Holds(visit)
	q.txHeld.Holds(visit)
}

// Close implements pmd.Driver. It waits up to 50 ms for packets that Tx took to be sent, and returns every
// frame to the pool.
func (q *Queue) Close() error {
	if q.closed {
		return nil
	}
	q.closed = true
	q.drain()
	// Info must not use a closed descriptor, whose number may be another file's by now.
	q.mu.Lock()
	q.finalStats = kernelStats(q.fd)
	err := q.socket.close()
	q.mu.Unlock()
	if q.large != nil {
		err = errors.Join(err, q.large.Close())
	}
	// Only now the kernel cannot write to the frames any more.
	q.Holds(q.pool.Put)
	q.rxHeld, q.txHeld = frameSet{}, frameSet{}
	return err
}

// drainTries bounds how long Close waits for packets in the tx ring, in milliseconds.
const drainTries = 50

// drain sends what the tx ring holds. Frames that remain go back to the pool unsent: a link that is down would hold them
// for ever.
func (q *Queue) drain() {
	for range drainTries {
		if q.reap(); q.txHeld.n == 0 || q.kick() != nil {
			return
		}
		if q.reap(); q.txHeld.n == 0 {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// fail wraps an error with the device and the queue.
func (q *Queue) fail(op string, err error) error {
	return &pmd.OpError{Op: op, Device: q.info.Device, Queue: q.id, Err: err}
}

// frameSet is the set of frames that the kernel holds for one purpose, a byte for each frame of the
// arena. A bit for each would be smaller, but changes of neighbouring frames would wait for each other:
// each would read the word that the one before has just written. The hot loops count n themselves.
type frameSet struct {
	held  []bool
	shift uint8 // of the frame size
	n     int   // frames held
}

// newFrameSet returns an empty set for the frames of a.
func newFrameSet(a *ring.Arena) frameSet {
	return frameSet{held: make([]bool, a.Frames()), shift: a.Shift}
}

// add puts the frame of an address into the set; false means that it was there or that there is no
// such frame. The caller adds to n.
func (l *frameSet) add(addr uint64) bool {
	f := addr >> l.shift
	if f >= uint64(len(l.held)) || l.held[f] {
		return false
	}
	l.held[f] = true
	return true
}

// remove takes the frame of an address out of the set; false means that it was not there. The
// caller subtracts from n.
func (l *frameSet) remove(addr uint64) bool {
	f := addr >> l.shift
	if f >= uint64(len(l.held)) || !l.held[f] {
		return false
	}
	l.held[f] = false
	return true
}

// Holds implements ring.Holder.
func (l *frameSet) Holds(visit func(off uint32)) {
	for f, held := range l.held {
		if held {
			visit(uint32(f) << l.shift)
		}
	}
}

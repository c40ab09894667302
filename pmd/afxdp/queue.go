package afxdp

import (
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/ring"
)

// Queue is one queue of a Device: a pmd.Driver. It belongs to one loop, as its pool does.
//
// Counts of packets that span several frames: Rx, Tx and batches count descriptors, Stats count
// packets.
type Queue struct {
	socket // frames for packets go down fill and come back by rx; packets go down tx, their frames come back by comp

	rxHeld  lent // in fill or rx
	txHeld  lent // in tx or comp
	pool    *ring.Pool
	arena   *ring.Arena
	frame   uint32 // bytes of a frame
	longest uint32 // bytes of a packet that the device takes
	rxMost  int    // frames that rxHeld shall hold

	id        int
	closed    bool
	unsent    bool       // the kernel stopped sending for want of something: kick again
	linkErr   error      // what the last probe said
	nextProbe clock.Time // when an idle Rx asks for the state of the link again

	stat counters
	info pmd.Info // what does not change

	mu    sync.Mutex         // guards fd and final: Info against Close
	final unix.XDPStatistics // what the kernel had counted when the socket was closed
}

var (
	_ pmd.Driver  = (*Queue)(nil)
	_ ring.Holder = (*Queue)(nil)
)

// counters are written by the loop, once a batch, and read by Info.
type counters struct {
	rxPackets, rxBytes, rxInvalid atomic.Uint64
	txPackets, txBytes, txInvalid atomic.Uint64
	wakeups, starved              atomic.Uint64
}

func newQueue(cfg *Config, s *socket, id int, pool *ring.Pool) *Queue {
	a := pool.Arena()
	return &Queue{
		socket: *s, id: id, pool: pool, arena: a,
		rxHeld: newLent(a), txHeld: newLent(a),
		frame:  uint32(a.FrameSize()),
		rxMost: cfg.rxFrames(pool),
	}
}

// Info implements pmd.Driver. RxDropped counts packets for which the kernel found no frame, no room
// in the rx ring or, without multi-buffer, no frame that is large enough.
func (q *Queue) Info() pmd.Info {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.fd >= 0 {
		q.final = kernelStats(q.fd)
	}
	k, s := &q.final, &q.stat
	info := q.info
	info.FD = q.fd
	info.Stats = pmd.Stats{
		RxPackets: s.rxPackets.Load(),
		RxBytes:   s.rxBytes.Load(),
		TxPackets: s.txPackets.Load(),
		TxBytes:   s.txBytes.Load(),
		RxMissed:  k.Rx_dropped + k.Rx_ring_full,
		RxInvalid: s.rxInvalid.Load() + k.Rx_invalid_descs,
		TxInvalid: s.txInvalid.Load() + k.Tx_invalid_descs,
		Wakeups:   s.wakeups.Load(),
	}
	return info
}

// Starved returns how often the queue wanted free frames for the kernel and its pool was empty. Any
// goroutine may call it.
func (q *Queue) Starved() uint64 { return q.stat.starved.Load() }

// Holds implements ring.Holder: the frames that the kernel holds.
func (q *Queue) Holds(visit func(off uint32)) {
	q.rxHeld.Holds(visit)
	q.txHeld.Holds(visit)
}

// Close implements pmd.Driver. It gives the device a moment to send what Tx took, and returns every
// frame to the pool.
func (q *Queue) Close() error {
	if q.closed {
		return nil
	}
	q.closed = true
	q.drain()
	q.mu.Lock()
	q.final = kernelStats(q.fd)
	err := q.socket.close()
	q.mu.Unlock()
	q.Holds(q.pool.Put)
	q.rxHeld, q.txHeld = lent{}, lent{}
	return err
}

// drainTries bounds how long Close waits for packets on their way out, in milliseconds.
const drainTries = 50

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

// fail wraps an error with the place.
func (q *Queue) fail(op string, err error) error {
	return &pmd.OpError{Op: op, Device: q.info.Device, Queue: q.id, Err: err}
}

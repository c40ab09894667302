package exception

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/pmd/tap"
	"github.com/millrace/millrace/ring"
)

// kernelEvery is the interval at which a queue reads what the kernel sends: a system call, so not with every poll of a
// busy loop. An idle loop of a device without a file polls as often.
const kernelEvery = 100 * time.Microsecond

// Queue is one queue of a Path: a pmd.Driver around the device's. It belongs to one loop.
type Queue struct {
	path *Path
	dev  pmd.Driver
	tap  *tap.Queue
	pool *ring.Pool

	up   *packet.Batch // to the kernel; empty between two calls
	down *packet.Batch // from the kernel, and not taken by the device yet

	partial    bool       // the device leaves checksums to us
	nextKernel clock.Time // of the next look at what the kernel sends
	noCarrier  bool       // the device is down, and the kernel knows
	closed     bool

	toKernel, toKernelBytes, fromKernel, fromKernelBytes, lost, matched atomic.Uint64
}

// A queue is audited as a holder: packets of the kernel wait in it for the device.
var (
	_ pmd.Driver  = (*Queue)(nil)
	_ ring.Holder = (*Queue)(nil)
)

func newQueue(p *Path, dev pmd.Driver, t *tap.Queue, pool *ring.Pool) *Queue {
	view := pool.Arena().View()
	return &Queue{
		path: p, dev: dev, tap: t, pool: pool, up: packet.NewBatch(view, batchSize), down: packet.NewBatch(view, batchSize),
		partial: dev.Info().Caps&pmd.CapPartialChecksums != 0,
	}
}

// Rx implements pmd.Driver: it receives what rules claim. The rest goes to the kernel, and what the kernel sends to the
// device.
func (q *Queue) Rx(now clock.Time, b *packet.Batch) (int, error) {
	had := len(b.D)
	_, err := q.dev.Rx(now, b)
	q.carry(err)
	q.split(now, b, had)
	if now >= q.nextKernel || q.nextKernel > now.Add(2*kernelEvery) { // the clock was set back
		q.nextKernel = now.Add(kernelEvery)
		q.send(now)
	}
	return len(b.D) - had, err
}

// split leaves the claimed packets of b.D[from:] in b, in order, and passes the others to the kernel.
func (q *Queue) split(now clock.Time, b *packet.Batch, from int) {
	m, keep, matched := q.path.matcher.Load(), from, uint64(0)
	for i := from; i < len(b.D); {
		n := packet.Chain(b.D[i:])
		claimed := b.D[i].Rule == packet.RuleClaimed // by a rule of the device
		if !claimed && m.Claims(b.Bytes(i)) {
			claimed = true
			matched++
		}
		if b.D[i].Rule = 0; claimed {
			keep += copy(b.D[keep:], b.D[i:i+n])
		} else {
			q.except(now, b.D[i:i+n])
		}
		i += n
	}
	b.D = b.D[:keep]
	if matched > 0 {
		q.matched.Add(matched)
	}
	q.flush(now)
}

// except queues a packet for the kernel.
func (q *Queue) except(now clock.Time, d []packet.Desc) {
	if len(d) > q.up.Room() {
		q.flush(now)
	}
	if q.partial && len(d) == 1 {
		completeChecksum(q.up.Arena.Bytes(&d[0]))
	}
	q.up.D = append(q.up.D, d...)
}

// flush gives the kernel what waits for it. What it does not take is lost, as where the queue of an interface is full: the
// loop cannot wait for the kernel.
func (q *Queue) flush(now clock.Time) {
	if q.up.Len() == 0 {
		return
	}
	n, _ := q.tap.Tx(now, q.up) // an interface that is down or deleted takes nothing
	packets, bytes := packet.Count(q.up.D[:n])
	q.toKernel.Add(packets)
	q.toKernelBytes.Add(bytes)
	q.drop(q.up.D[n:])
	q.up.Reset()
}

// drop frees packets and counts them as lost.
func (q *Queue) drop(d []packet.Desc) {
	packets, bytes := packet.Count(d)
	q.lost.Add(packets)
	q.toKernel.Add(packets) // the caller of Rx has not seen them
	q.toKernelBytes.Add(bytes)
	for i := range d {
		q.pool.Put(d[i].Off)
	}
}

// send passes to the device what the kernel sends. It reads no more while the device has not taken all of it: the rest
// waits in the interface's queue, which tells its senders.
func (q *Queue) send(now clock.Time) {
	if q.down.Len() == 0 {
		_, _ = q.tap.Rx(now, q.down) // an interface that is down or deleted sends nothing
		for i := range q.down.D {
			q.down.D[i].Flags &= packet.FlagMore
		}
	}
	if q.down.Len() == 0 {
		return
	}
	n, err := q.dev.Tx(now, q.down)
	packets, bytes := packet.Count(q.down.D[:n])
	q.fromKernel.Add(packets)
	q.fromKernelBytes.Add(bytes)
	q.down.Consume(n)
	if err != nil { // the device is down, or gone: an interface without a carrier loses packets too
		for i := range q.down.D {
			q.pool.Put(q.down.D[i].Off)
		}
		q.lost.Add(packet.Packets(q.down.D))
		q.down.Reset()
	}
}

// carry makes the TAP interface lose its carrier while the device is down, so that the kernel and its routing daemons
// know. Each queue does when it finds out: the last one leaves the carrier as the link is.
func (q *Queue) carry(err error) {
	down := errors.Is(err, pmd.ErrDown)
	if down == q.noCarrier {
		return
	}
	if q.tap.SetCarrier(!down) == nil {
		q.noCarrier = down
	}
}

// Tx implements pmd.Driver.
func (q *Queue) Tx(now clock.Time, b *packet.Batch) (int, error) { return q.dev.Tx(now, b) }

// Info implements pmd.Driver. Its packets are those of the loop; ToKernel and FromKernel count the others.
func (q *Queue) Info() pmd.Info {
	i := q.dev.Info()
	to, from := q.toKernel.Load(), q.fromKernel.Load()
	i.Stats.RxPackets -= min(to, i.Stats.RxPackets)
	i.Stats.RxBytes -= min(q.toKernelBytes.Load(), i.Stats.RxBytes)
	i.Stats.TxPackets -= min(from, i.Stats.TxPackets)
	i.Stats.TxBytes -= min(q.fromKernelBytes.Load(), i.Stats.TxBytes)
	i.Stats.ToKernel, i.Stats.FromKernel, i.Stats.KernelLost = to, from, q.lost.Load()
	i.Stats.SteeredSoftware = q.matched.Load()
	i.Negotiated += ", unclaimed packets to " + q.path.cfg.Interface
	return i
}

// Holds implements ring.Holder.
func (q *Queue) Holds(visit func(off uint32)) {
	for i := range q.down.D {
		visit(q.down.D[i].Off)
	}
	if h, ok := q.dev.(ring.Holder); ok {
		h.Holds(visit)
	}
}

// Close implements pmd.Driver. The TAP interface stays until Path.Close.
func (q *Queue) Close() error {
	if q.closed {
		return nil
	}
	q.closed = true
	for i := range q.down.D {
		q.pool.Put(q.down.D[i].Off)
	}
	q.down.Reset()
	return q.dev.Close()
}

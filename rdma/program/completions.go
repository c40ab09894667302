package program

import (
	"math/bits"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/rdma"
	"github.com/millrace/millrace/rdma/transport"
	"github.com/millrace/millrace/shim/ring"
)

// zeroTime is no deadline.
var zeroTime time.Time

// cq is a completion queue: the node produces, and the program consumes.
type cq struct {
	*rdma.CQ
	p          *program
	number     uint32
	generation uint32
	channel    uint32 // none, or its number
	notify     int    // descriptor of the channel, -1 is none
	mem        *shared
	queue      *ring.QueueProducer
	overrun    bool
	entry      ring.Entry
}

func (p *program) createChannel(_ *request, r *reply) ([]int, error) {
	if p.chans.full() {
		return nil, syscall.ENOMEM
	}
	read, write, err := pipe()
	if err != nil {
		return nil, err
	}
	r.object, _ = p.chans.add(&channel{fd: write})
	return []int{read}, nil
}

func (p *program) destroyChannel(q *request, _ *reply) ([]int, error) {
	c, ok := p.chans.get(q.object)
	switch {
	case !ok:
		return nil, syscall.EINVAL
	case c.uses > 0:
		return nil, syscall.EBUSY
	}
	unix.Close(c.fd)
	p.chans.remove(q.object)
	return nil, nil
}

func (p *program) createCQ(q *request, r *reply) ([]int, error) {
	if q.depth < 1 || q.depth > mostCQE {
		return nil, syscall.EINVAL
	}
	slots := max(16, 1<<bits.Len32(q.depth-1))
	if p.cqs.full() || p.entries+slots > mostEntries {
		return nil, syscall.ENOMEM
	}
	ch, ok := p.chans.get(q.channel)
	if q.channel != none && !ok {
		return nil, syscall.EINVAL
	}
	mem, err := newShared("millrace-cq", slots, 0)
	if err != nil {
		return nil, syscall.ENOMEM
	}
	c := &cq{p: p, channel: q.channel, notify: -1, mem: mem}
	c.queue, _ = ring.NewQueueProducer(mem.b) // it has just been made
	if ch != nil {
		ch.uses++
		c.notify = ch.fd
	}
	c.CQ = p.s.cfg.Context.CreateSink(c.put)
	p.entries += slots
	c.number, c.generation = p.cqs.add(c)
	r.object, r.slots, r.generation = c.number, uint32(slots), c.generation
	fd := c.mem.fd
	c.mem.fd = -1 // the caller closes it
	return []int{fd}, nil
}

func (p *program) destroyCQ(q *request, _ *reply) ([]int, error) {
	c, ok := p.cqs.get(q.object)
	if !ok {
		return nil, syscall.EINVAL
	}
	if err := c.Destroy(); err != nil {
		return nil, err
	}
	if ch, ok := p.chans.get(c.channel); ok && c.notify >= 0 {
		ch.uses--
	}
	p.entries -= c.slots()
	p.cqs.remove(q.object)
	c.mem.close()
	return nil, nil
}

// slots returns the number of entries.
func (c *cq) slots() int {
	return (len(c.mem.b) - ring.QueueSize(0)) / (ring.QueueSize(1) - ring.QueueSize(0))
}

// put appends a completion. The holder of the loop calls it.
func (c *cq) put(k rdma.Completion, isRecv bool) {
	v := completion{
		id: k.ID, status: uint32(k.Status), op: uint32(k.Op), bytes: k.Bytes, qpn: k.QPN, srcQP: k.SrcQP, imm: k.Imm, flags: uint32(k.Flags), done: k.Done,
	}
	if k.Flags&transport.WithInv != 0 {
		v.imm = k.InvKey
	}
	if isRecv {
		v.flags |= completionRecv
	}
	c.entry.Connection = c.p.byQPN[k.QPN]
	c.entry.Length = uint8(store(c.entry.Data[:], &v))
	ok, err := c.queue.Put(&c.entry)
	switch {
	case err != nil:
		c.p.violate()
	case !ok && !c.overrun:
		c.overrun = true
		c.p.send(c.p.events, event{kind: eventCQError, object: c.number, generation: c.generation})
	}
	if ok && c.notify >= 0 && c.queue.Wakes(k.Flags&transport.SolicitsEvent != 0 || k.Status != transport.Success) {
		c.p.send(c.notify, event{kind: eventCompletion, object: c.number, generation: c.generation})
	}
}

// send writes an event to a pipe. Where the program has not read 4096 of them, one more is lost.
func (p *program) send(fd int, e event) {
	_, _ = unix.Write(fd, unsafe.Slice((*byte)(unsafe.Pointer(&e)), unsafe.Sizeof(e)))
}

// report passes on an event of an object. The holder of the loop calls it.
func (p *program) report(e rdma.Event) {
	switch e.Kind {
	case rdma.QPFatal:
		if number, ok := p.byQPN[e.QP.QPN()]; ok {
			p.send(p.events, event{kind: eventQPFatal, object: number, generation: p.qps.list[number].generation})
		}
	case rdma.SRQLimit:
		for i := range p.srqs.list {
			if o := &p.srqs.list[i]; o.used && o.v.SRQ == e.SRQ {
				p.send(p.events, event{kind: eventSRQLimit, object: o.number, generation: o.generation})
			}
		}
	}
}

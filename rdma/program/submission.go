package program

import (
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/rdma"
	"github.com/millrace/millrace/rdma/transport"
	"github.com/millrace/millrace/shim/ring"
	"github.com/millrace/millrace/stack"
)

const (
	submissionSlots = 512
	stagingSize     = submissionSlots * transport.MaxInline // bytes of short requests: each entry has its own
	stagingUnit     = 16

	// drainMost bounds the entries that a program gets done in one iteration.
	drainMost = 128

	// activeTime bounds the polling of a program after its last entry; then its next one wakes the loop.
	activeTime = time.Millisecond
)

// submission is the queue of what a program posts. The loop guards the fields.
type submission struct {
	mem      *shared
	queue    *ring.QueueConsumer
	doorbell int // an eventfd
	watch    *stack.FileWatch
	byQPN    map[uint32]uint32 // numbers of queue pairs
	list     []rdma.SGE        // of the entry that follows
	entry    ring.Entry
	wr       rdma.SendWR
	recv     rdma.RecvWR
	active   bool // in poller.active
	armed    bool
	stopped  bool
	last     clock.Time // an entry was found
}

// start makes the queue and has the loop watch it. It returns the descriptors for the program: of the memory and of the doorbell.
func (p *program) start() ([]int, error) {
	mem, err := newShared("millrace-submission", submissionSlots, stagingSize)
	if err != nil {
		return nil, err
	}
	bell, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		mem.close()
		return nil, err
	}
	theirs, err := unix.FcntlInt(uintptr(bell), unix.F_DUPFD_CLOEXEC, 0)
	if err == nil {
		p.queue, err = ring.NewQueueConsumer(mem.b[:ring.QueueSize(submissionSlots)])
	}
	p.mem, p.doorbell = mem, bell
	if err == nil {
		h := p.s.cfg.Context.Enter()
		p.watch, err = h.Watch(bell, stack.FileReadable, func(rdma.Held, stack.FileEvents) { p.rung() })
		p.armed = true
		p.queue.Arm(false)
		h.Exit()
	}
	if err != nil {
		return nil, err // release closes the rest
	}
	fd := mem.fd
	mem.fd = -1
	return []int{fd, theirs}, nil
}

// stop ends what start began.
func (p *program) stop() {
	if p.mem == nil {
		return
	}
	h := p.s.cfg.Context.Enter()
	p.stopped = true
	if p.watch != nil {
		p.watch.Remove()
	}
	p.s.poller.remove(p)
	h.Exit()
	p.mem.close()
	unix.Close(p.doorbell)
}

// rung is called by the loop when the program has woken it.
func (p *program) rung() {
	var b [8]byte
	_, _ = unix.Read(p.doorbell, b[:])
	p.armed = false // once for each time
	if !p.active && !p.stopped {
		p.active = true
		p.s.poller.active = append(p.s.poller.active, p)
	}
}

// poller looks at the queues of programs that have posted lately.
type poller struct {
	held   rdma.Held
	active []*program
}

// Poll implements stack.Poller.
func (o *poller) Poll(now clock.Time) (n int) {
	for i := 0; i < len(o.active); {
		p := o.active[i]
		found := p.drain(o.held)
		n += found
		switch {
		case found > 0:
			if p.last = now; p.armed {
				p.armed = false
				p.queue.Suppress()
			}
		case p.armed && now.Sub(p.last) > activeTime || p.stopped:
			o.remove(p)
			continue
		case now.Sub(p.last) > activeTime: // one more look finds what comes before this
			p.arm()
		}
		i++
	}
	return n
}

// Arm implements stack.Poller.
func (o *poller) Arm() clock.Time {
	for _, p := range o.active {
		p.arm()
	}
	return clock.Never
}

func (p *program) arm() {
	if !p.armed {
		p.armed = true
		p.queue.Arm(false)
	}
}

func (o *poller) remove(p *program) {
	for i := range o.active {
		if o.active[i] == p {
			last := len(o.active) - 1
			o.active[i], o.active[last] = o.active[last], nil
			o.active = o.active[:last]
			break
		}
	}
	p.active = false
}

// drain does what the program has posted.
func (p *program) drain(h rdma.Held) (n int) {
	for n < drainMost && !p.stopped {
		ok, err := p.queue.Take(&p.entry)
		if err == nil && ok {
			err = p.submit(h)
		}
		if err != nil {
			p.stopped = true
			p.violate()
		}
		if !ok || err != nil {
			return n
		}
		n++
	}
	return n
}

// drainAll does all that the program has posted, unless it goes on posting.
func (p *program) drainAll(h rdma.Held) {
	for n := 0; n < 2*submissionSlots; {
		found := p.drain(h)
		if found == 0 {
			return
		}
		n += found
	}
}

// submit does one entry. One for an object that is not there has no effect: another thread has just destroyed it. The error is ring.ErrViolation for what no library writes.
func (p *program) submit(h rdma.Held) error {
	switch p.entry.Operation {
	case submitList:
		v := load[list](p.entry.Data[:])
		n, size := int(p.entry.Length), int(unsafe.Sizeof(v.elements[0]))
		if n%size != 0 || n/size > listElements || len(p.list)+n/size > transport.MaxSGE {
			return ring.ErrViolation
		}
		for _, e := range v.elements[:n/size] {
			p.list = append(p.list, e.sge())
		}
		return nil
	case submitSend:
		return p.submitSend(h)
	case submitRecv, submitShared:
		return p.submitRecv(h)
	}
	return ring.ErrViolation
}

// elements returns the list of a request with n elements: those of the entries before it, and the rest of its own.
func (p *program) elements(n int, own []element) ([]rdma.SGE, bool) {
	before := p.list
	p.list = p.list[:0]
	if n < len(before) || n-len(before) > len(own) || n > transport.MaxSGE {
		return nil, false
	}
	for _, e := range own[:n-len(before)] {
		before = append(before, e.sge())
	}
	return before, true
}

func (p *program) submitSend(h rdma.Held) error {
	v := load[send](p.entry.Data[:])
	w := &p.wr
	var ok bool
	*w = rdma.SendWR{
		ID: v.id, Op: rdma.Op(v.op), Flags: transport.SendFlags(v.flags) &^ rdma.Inline, RemoteAddr: v.remote, RKey: v.rkey, Imm: v.imm, InvKey: v.imm,
		Compare: v.compare, Swap: v.swap, Path: uint32(v.compare), DestQP: uint32(v.compare >> 32), QKey: uint32(v.swap),
	}
	if w.List, ok = p.elements(int(v.elements), v.list[:]); !ok {
		return ring.ErrViolation
	}
	if v.inlined != 0 {
		at := uint64(p.entry.Offset) * stagingUnit
		if v.elements != 0 || uint64(v.length) > transport.MaxInline || at > stagingSize || at+uint64(v.length) > stagingSize {
			return ring.ErrViolation
		}
		at += uint64(ring.QueueSize(submissionSlots))
		w.Flags |= rdma.Inline
		w.Inlined = p.mem.b[at : at+uint64(v.length)] // PostSend copies it
	}
	if o, ok := p.qps.get(p.entry.Connection); ok && h.PostSend(o.QP, w) != nil {
		p.refuse(h, o, v.id, false)
	}
	w.Inlined = nil
	return nil
}

func (p *program) submitRecv(h rdma.Held) error {
	v := load[recv](p.entry.Data[:])
	var ok bool
	p.recv.ID = v.id
	if v.elements > transport.MaxSGE {
		return ring.ErrViolation
	}
	if p.recv.List, ok = p.elements(int(v.elements), v.list[:]); !ok {
		return ring.ErrViolation
	}
	if p.entry.Operation == submitShared {
		s, ok := p.srqs.get(p.entry.Connection)
		if ok && h.PostShared(s.SRQ, &p.recv) != nil {
			return ring.ErrViolation
		}
		return nil
	}
	if o, ok := p.qps.get(p.entry.Connection); ok && h.PostRecv(o.QP, &p.recv) != nil {
		p.refuse(h, o, v.id, true)
	}
	return nil
}

// refuse completes a request that cannot be posted, which the program learns too late for an error of its call, and ends the queue pair.
func (p *program) refuse(h rdma.Held, o *qp, id uint64, isRecv bool) {
	n := h.Counters(o.QP)
	k := rdma.Completion{ID: id, Status: transport.LocalQPOperation, QPN: o.QPN(), Done: uint32(n.CompletedSends)}
	q := o.sends
	if isRecv {
		k.Done, q = uint32(n.CompletedRecvs), o.recvs
	}
	q.put(k, isRecv)
	h.Fail(o.QP)
}

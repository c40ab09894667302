package program

import (
	"encoding/binary"
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/rdma"
	"github.com/millrace/millrace/wire"
)

// handlers do the operations, but for HELLO. They return descriptors for the program, which the caller closes.
var handlers = [ops]func(p *program, q *request, r *reply) ([]int, error){
	opAllocPD:        (*program).allocPD,
	opDeallocPD:      (*program).deallocPD,
	opRegMR:          (*program).regMR,
	opDeregMR:        (*program).deregMR,
	opCreateChannel:  (*program).createChannel,
	opDestroyChannel: (*program).destroyChannel,
	opCreateCQ:       (*program).createCQ,
	opDestroyCQ:      (*program).destroyCQ,
	opCreateSRQ:      (*program).createSRQ,
	opModifySRQ:      (*program).modifySRQ,
	opDestroySRQ:     (*program).destroySRQ,
	opCreateQP:       (*program).createQP,
	opModifyQP:       (*program).modifyQP,
	opQueryQP:        (*program).queryQP,
	opDestroyQP:      (*program).destroyQP,
	opCreateAH:       (*program).createAH,
	opDestroyAH:      (*program).destroyAH,
	opAllocMW:        (*program).allocMW,
	opDeallocMW:      (*program).deallocMW,
}

// do does a request.
func (p *program) do(q *request, r *reply, fds []int) ([]int, error) {
	if op(q.op) == opHello {
		return p.hello(r, fds[0])
	}
	h := p.s.cfg.Context.Enter()
	p.drainAll(h) // what was posted before comes before
	h.Exit()
	return handlers[q.op](p, q, r)
}

// hello makes the memory of the program known, and the submission queue.
func (p *program) hello(r *reply, mem int) ([]int, error) {
	m, err := openImage(mem)
	if err != nil {
		unix.Close(mem)
		return nil, errHello
	}
	p.image = m
	_ = p.c.SetReadDeadline(zeroTime)
	events, toProgram, err := pipe()
	if err != nil {
		return nil, err
	}
	p.events = toProgram
	list, err := p.start()
	if err != nil {
		unix.Close(events)
		return nil, err
	}
	ctx := p.s.cfg.Context
	addr := wire.AddrFrom(ctx.Addr())
	r.slots, r.staging, r.gid, r.maxMTU = submissionSlots, stagingSize, addr, ctx.MaxMTU()
	r.maxQPs, r.maxRegions = mostQPs, mostRegions
	p.mtu = r.maxMTU
	r.guid = 2<<56 | uint64(binary.BigEndian.Uint32(addr[12:])) // an EUI-64 of local administration
	return append(list, events), nil
}

// pipe returns a pipe for events: the program reads, and a write does not block.
func pipe() (read, write int, err error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return -1, -1, err
	}
	if err := unix.SetNonblock(fds[1], true); err != nil {
		closeAll(fds[:])
		return -1, -1, err
	}
	return fds[0], fds[1], nil
}

func (p *program) allocPD(_ *request, r *reply) ([]int, error) {
	if p.pds.full() {
		return nil, syscall.ENOMEM
	}
	r.object, _ = p.pds.add(p.s.cfg.Context.AllocPDFor(p.report))
	return nil, nil
}

func (p *program) deallocPD(q *request, _ *reply) ([]int, error) {
	pd, ok := p.pds.get(q.object)
	if !ok {
		return nil, syscall.EINVAL
	}
	if err := pd.Dealloc(); err != nil {
		return nil, err
	}
	p.pds.remove(q.object)
	return nil, nil
}

// rights are those of verbs' access flags: LOCAL_WRITE, REMOTE_WRITE, REMOTE_READ, REMOTE_ATOMIC, MW_BIND. Those that hints are do not matter.
func rights(flags uint32) (a rdma.Access) {
	for i, r := range []rdma.Access{rdma.LocalWrite, rdma.RemoteWrite, rdma.RemoteRead, rdma.RemoteAtomic, rdma.WindowBind} {
		if flags>>i&1 != 0 {
			a |= r
		}
	}
	return a
}

func (p *program) regMR(q *request, r *reply) ([]int, error) {
	pd, ok := p.pds.get(q.pd)
	if !ok || q.addr > 1<<63-1 || q.length > 1<<63-1-q.addr { // offsets of /proc/self/mem
		return nil, syscall.EINVAL
	}
	if p.regions.full() {
		return nil, syscall.ENOMEM
	}
	mr, err := pd.RegRemote(p.image, q.addr, q.length, q.va, rights(q.access))
	if err != nil {
		return nil, err
	}
	r.object, _ = p.regions.add(mr)
	r.key = mr.RKey()
	return nil, nil
}

func (p *program) deregMR(q *request, _ *reply) ([]int, error) {
	mr, ok := p.regions.get(q.object)
	if !ok {
		return nil, syscall.EINVAL
	}
	if err := mr.Dereg(); err != nil {
		return nil, err
	}
	p.regions.remove(q.object)
	return nil, nil
}

func (p *program) allocMW(q *request, r *reply) ([]int, error) {
	pd, ok := p.pds.get(q.pd)
	if !ok || q.service > uint32(rdma.Type2B) {
		return nil, syscall.EINVAL
	}
	if p.windows.full() {
		return nil, syscall.ENOMEM
	}
	mw, err := pd.AllocMW(rdma.WindowType(q.service))
	if err != nil {
		return nil, err
	}
	r.object, _ = p.windows.add(mw)
	r.key = mw.RKey()
	return nil, nil
}

func (p *program) deallocMW(q *request, _ *reply) ([]int, error) {
	mw, ok := p.windows.get(q.object)
	if !ok {
		return nil, syscall.EINVAL
	}
	if err := mw.Dealloc(); err != nil {
		return nil, err
	}
	p.windows.remove(q.object)
	return nil, nil
}

func (p *program) createSRQ(q *request, r *reply) ([]int, error) {
	pd, ok := p.pds.get(q.pd)
	if !ok || q.depth < 1 || q.depth > mostDepth {
		return nil, syscall.EINVAL
	}
	if p.srqs.full() {
		return nil, syscall.ENOMEM
	}
	s, err := pd.CreateSRQ(int(q.depth))
	if err != nil {
		return nil, err
	}
	h := p.s.cfg.Context.Enter()
	r.object, r.generation = p.srqs.add(&srq{SRQ: s})
	h.Exit()
	return nil, nil
}

func (p *program) modifySRQ(q *request, _ *reply) ([]int, error) {
	s, ok := p.srqs.get(q.object)
	if !ok || q.depth > mostDepth {
		return nil, syscall.EINVAL
	}
	s.SetLimit(int(q.depth))
	return nil, nil
}

func (p *program) destroySRQ(q *request, _ *reply) ([]int, error) {
	s, ok := p.srqs.get(q.object)
	if !ok {
		return nil, syscall.EINVAL
	}
	if err := s.Destroy(); err != nil {
		return nil, err
	}
	h := p.s.cfg.Context.Enter()
	p.srqs.remove(q.object)
	h.Exit()
	return nil, nil
}

// services are those of verbs' queue pair types.
var services = map[uint32]rdma.Transport{2: rdma.RC, 3: rdma.UC, 4: rdma.UD}

func (p *program) createQP(q *request, r *reply) ([]int, error) {
	pd, ok := p.pds.get(q.pd)
	sends, ok2 := p.cqs.get(q.sendCQ)
	recvs, ok3 := p.cqs.get(q.recvCQ)
	service, ok4 := services[q.service]
	if !ok || !ok2 || !ok3 || !ok4 || q.depth > mostDepth || q.recvDepth > mostDepth {
		return nil, syscall.EINVAL
	}
	if p.qps.full() {
		return nil, syscall.ENOMEM
	}
	cfg := rdma.QPConfig{Service: service, SendCQ: sends.CQ, RecvCQ: recvs.CQ, SendDepth: max(1, int(q.depth)), RecvDepth: max(1, int(q.recvDepth))}
	if q.srq != none {
		s, ok := p.srqs.get(q.srq)
		if !ok {
			return nil, syscall.EINVAL
		}
		cfg.SRQ = s.SRQ
	}
	made, err := pd.CreateQP(cfg)
	if err != nil {
		return nil, err
	}
	h := p.s.cfg.Context.Enter()
	defer h.Exit()
	r.object, r.generation = p.qps.add(&qp{QP: made, sends: sends, recvs: recvs})
	r.key = made.QPN()
	p.byQPN[made.QPN()] = r.object
	return nil, nil
}

func (p *program) modifyQP(q *request, r *reply) ([]int, error) {
	o, ok := p.qps.get(q.object)
	if !ok || q.state > uint32(rdma.Error) {
		return nil, syscall.EINVAL
	}
	to := rdma.State(q.state)
	if to == rdma.Init {
		o.access = rights(q.access)
	}
	a := rdma.Attr{
		PKey: q.pkey, QKey: q.qkey, MTU: q.mtu, DestQP: q.destQP, RecvPSN: q.recvPSN, Access: o.access, MaxDestReads: q.maxDestReads,
		RNRTimer: q.rnrTimer, SendPSN: q.sendPSN, MaxReads: q.maxReads, Timeout: q.timeout, Retries: q.retries, RNRRetries: q.rnrRetries,
	}
	var peer netip.Addr
	if gid := wire.Addr(q.gid); gid != (wire.Addr{}) {
		peer = gid.Netip()
	}
	if err := o.Modify(to, a, peer); err != nil {
		return nil, err
	}
	return p.queryQP(q, r)
}

func (p *program) queryQP(q *request, r *reply) ([]int, error) {
	o, ok := p.qps.get(q.object)
	if !ok {
		return nil, syscall.EINVAL
	}
	n := o.Counters()
	r.state, r.sendsDone, r.recvsDone = uint32(o.State()), uint32(n.CompletedSends), uint32(n.CompletedRecvs)
	return nil, nil
}

func (p *program) destroyQP(q *request, _ *reply) ([]int, error) {
	if _, ok := p.qps.get(q.object); !ok {
		return nil, syscall.EINVAL
	}
	p.dropQP(q.object)
	return nil, nil
}

// dropQP destroys a queue pair that exists.
func (p *program) dropQP(number uint32) {
	o, _ := p.qps.get(number)
	_ = o.Destroy() // it has not been
	h := p.s.cfg.Context.Enter()
	delete(p.byQPN, o.QPN())
	p.qps.remove(number)
	h.Exit()
}

func (p *program) createAH(q *request, r *reply) ([]int, error) {
	pd, ok := p.pds.get(q.pd)
	if !ok {
		return nil, syscall.EINVAL
	}
	if p.ahs.full() {
		return nil, syscall.ENOMEM
	}
	ah, err := pd.CreateAH(wire.Addr(q.gid).Netip())
	if err != nil {
		return nil, err
	}
	r.object, _ = p.ahs.add(ah)
	r.key = ah.Number()
	return nil, nil
}

func (p *program) destroyAH(q *request, _ *reply) ([]int, error) {
	ah, ok := p.ahs.get(q.object)
	if !ok {
		return nil, syscall.EINVAL
	}
	if err := ah.Destroy(); err != nil {
		return nil, err
	}
	p.ahs.remove(q.object)
	return nil, nil
}

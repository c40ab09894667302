package program

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/rdma"
	"github.com/millrace/millrace/rdma/cm"
	"github.com/millrace/millrace/rdma/memory"
)

// Limits of one program.
const (
	mostPDs      = 4096
	mostRegions  = 8192
	mostWindows  = 8192
	mostQPs      = 8192
	mostCQs      = 4096
	mostSRQs     = 1024
	mostAHs      = 16384
	mostChannels = 256
	mostEntries  = 1 << 19 // of all completion queues: 64 MiB
	mostDepth    = 1 << 15 // of a send or receive queue
	mostCQE      = 1 << 18 // of a completion queue
)

// program is a process that uses the context. Its own goroutine does the requests of the control socket and owns the fields,
// but for those of submission and for the tables qps and srqs, which the loop reads: they are changed by the holder of the loop.
type program struct {
	s    *Server
	c    *net.UnixConn
	cred *unix.Ucred

	image   *image
	events  int // descriptor of the pipe of asynchronous events, that is written to
	pds     table[*rdma.PD]
	regions table[*rdma.MR]
	windows table[*rdma.MW]
	chans   table[*channel]
	cqs     table[*cq]
	srqs    table[*srq]
	qps     table[*qp]
	ahs     table[*rdma.AH]
	entries int // of all completion queues
	mtu     uint32

	eventChannels table[*eventChannel] // these two are guarded by the loop
	ids           table[*cmID]
	ends          context.Context // is over when the program ends
	cancel        context.CancelFunc
	work          sync.WaitGroup

	submission
	violated atomic.Bool
}

// channel is a completion channel.
type channel struct {
	fd   int // of the pipe, that is written to
	uses int
}

// srq and qp are objects with what a request has to check.
type srq struct{ *rdma.SRQ }

type qp struct {
	*rdma.QP
	access rdma.Access // of Init; the transport reads it with ReadyToReceive
	sends  *cq
	recvs  *cq
}

func newProgram(s *Server, c *net.UnixConn, cred *unix.Ucred) *program {
	p := &program{s: s, c: c, cred: cred, events: -1}
	p.byQPN = map[uint32]uint32{}
	p.pds.most, p.regions.most, p.windows.most, p.chans.most, p.cqs.most = mostPDs, mostRegions, mostWindows, mostChannels, mostCQs
	p.srqs.most, p.qps.most, p.ahs.most = mostSRQs, mostQPs, mostAHs
	p.eventChannels.most, p.ids.most = mostEventChannels, mostIDs
	p.ends, p.cancel = context.WithCancel(context.Background())
	return p
}

// hangUp ends the program from outside: serve sees the end of its socket.
func (p *program) hangUp() {
	if raw, err := p.c.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { _ = unix.Shutdown(int(fd), unix.SHUT_RDWR) })
	}
}

// violate ends a program that has written what no library does.
func (p *program) violate() {
	if p.violated.CompareAndSwap(false, true) {
		p.s.violations.Add(1)
		p.hangUp()
	}
}

// helloTime is the time that a process may take to introduce itself.
const helloTime = 10 * time.Second

// serve does the requests until the program ends.
func (p *program) serve() {
	defer p.s.leave(p)
	defer p.release()
	_ = p.c.SetReadDeadline(time.Now().Add(helloTime))
	in, oob := make([]byte, max(requestSize, cmRequestSize)+1), make([]byte, unix.CmsgSpace(4*8))
	for {
		n, oobn, _, _, err := p.c.ReadMsgUnix(in, oob)
		if err != nil || n == 0 {
			return
		}
		if !p.request(in[:n], descriptors(oob[:oobn])) {
			return
		}
	}
}

// request does one request. false is that the program is to be ended.
func (p *program) request(b []byte, fds []int) bool {
	if p.image != nil && len(fds) == 0 && len(b) >= 8 && op(binary.NativeEndian.Uint32(b[4:])).isCM() {
		if q, err := decodeCM(b); err == nil {
			return p.answerCM(&q)
		}
	}
	q, err := decodeRequest(b)
	if err != nil || (op(q.op) == opHello) != (len(fds) == 1) || (op(q.op) == opHello) != (p.image == nil) {
		closeAll(fds)
		p.violate()
		return false
	}
	return p.answer(&q, fds)
}

// answer does one request and sends the reply.
func (p *program) answer(q *request, fds []int) bool {
	r := reply{version: Version}
	send, err := p.do(q, &r, fds)
	if errors.Is(err, errHello) {
		return false
	}
	r.errno = int32(errnoOf(err))
	return p.reply(r.bytes(), send)
}

// answerCM is answer for the connection manager. What was posted before comes before.
func (p *program) answerCM(q *cmRequest) bool {
	h := p.s.cfg.Context.Enter()
	p.drainAll(h)
	h.Exit()
	r := cmReply{version: Version}
	send, err := p.manage(q, &r)
	r.errno = int32(errnoOf(err))
	return p.reply(r.bytes(), send)
}

// reply sends a reply with descriptors, which it closes.
func (p *program) reply(b []byte, send []int) bool {
	var rights []byte
	if len(send) > 0 {
		rights = unix.UnixRights(send...)
	}
	_ = p.c.SetWriteDeadline(time.Now().Add(helloTime)) // one reply fits any socket buffer
	_, _, e := p.c.WriteMsgUnix(b, rights, nil)
	closeAll(send)
	return e == nil
}

// errHello reports a process that cannot be served.
var errHello = errors.New("rdma/program: not a library")

// errnoOf returns what a program gets for an error.
func errnoOf(err error) syscall.Errno {
	var errno syscall.Errno
	switch {
	case err == nil:
		return 0
	case errors.As(err, &errno):
		return errno
	case errors.Is(err, rdma.ErrBusy), errors.Is(err, memory.ErrBound):
		return syscall.EBUSY
	case errors.Is(err, rdma.ErrLimit), errors.Is(err, memory.ErrFull), errors.Is(err, cm.ErrFull):
		return syscall.ENOMEM
	case errors.Is(err, rdma.ErrPath):
		return syscall.ENETUNREACH
	}
	return syscall.EINVAL
}

// descriptors returns those that came with a message.
func descriptors(oob []byte) (fds []int) {
	list, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil
	}
	for i := range list {
		if more, err := unix.ParseUnixRights(&list[i]); err == nil {
			fds = append(fds, more...)
		}
	}
	return fds
}

func closeAll(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}

// release ends all that the program has. It comes after the last request.
func (p *program) release() {
	p.stop()
	p.releaseIDs()
	for _, o := range p.qps.all() {
		p.dropQP(o.number)
	}
	for _, o := range p.srqs.all() {
		_ = o.v.Destroy()
	}
	for _, o := range p.ahs.all() {
		_ = o.v.Destroy()
	}
	for _, o := range p.windows.all() { // before the regions that they are bound to
		_ = o.v.Dealloc()
	}
	for _, o := range p.regions.all() {
		_ = o.v.Dereg()
	}
	for _, o := range p.cqs.all() { // nothing completes any more
		o.v.mem.close()
	}
	for _, o := range p.chans.all() {
		unix.Close(o.v.fd)
	}
	for _, o := range p.pds.all() {
		_ = o.v.Dealloc()
	}
	if p.image != nil {
		p.image.close()
	}
	if p.events >= 0 {
		unix.Close(p.events)
	}
	p.c.Close()
}

// table holds the objects of one kind by number. A number that is used again has another generation.
type table[T any] struct {
	list []entry[T]
	free []uint32
	most int
}

type entry[T any] struct {
	v          T
	number     uint32
	generation uint32
	used       bool
}

// full reports whether no object can be added.
func (t *table[T]) full() bool { return len(t.free) == 0 && len(t.list) >= t.most }

// add adds an object, and returns its number and generation. The table is not full.
func (t *table[T]) add(v T) (number, generation uint32) {
	if n := len(t.free); n > 0 {
		number = t.free[n-1]
		t.free = t.free[:n-1]
	} else {
		number = uint32(len(t.list))
		t.list = append(t.list, entry[T]{number: number})
	}
	e := &t.list[number]
	e.v, e.used, e.generation = v, true, e.generation+1
	return number, e.generation
}

// get returns the object with a number.
func (t *table[T]) get(number uint32) (v T, ok bool) {
	if int64(number) >= int64(len(t.list)) || !t.list[number].used {
		return v, false
	}
	return t.list[number].v, true
}

func (t *table[T]) remove(number uint32) {
	e := &t.list[number]
	var zero T
	e.v, e.used = zero, false
	t.free = append(t.free, number)
}

// all returns the objects that exist.
func (t *table[T]) all() (list []entry[T]) {
	for _, e := range t.list {
		if e.used {
			list = append(list, e)
		}
	}
	return list
}

package transport

import (
	"container/heap"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/rdma/memory"
	"github.com/millrace/millrace/rdma/roce"
	"github.com/millrace/millrace/wire"
)

// impairment is what a link does to packets. Chances are of 1000.
type impairment struct {
	loss, duplicate, reorder, corrupt int
	delay                             time.Duration
}

// pair is two queue pairs and the link between them, in virtual time. Packets cross it as frames.
type pair struct {
	t      testing.TB
	now    clock.Time
	r      *rand.Rand
	imp    impairment
	a, b   *end
	flying flight
	seq    int
	limit  int // packets, after which the test fails
}

// end is one side.
type end struct {
	p     *pair
	name  string
	addr  wire.Addr
	tab   *memory.Table
	mem   []byte
	key   uint32
	qp    *QP
	rq    *RecvQueue
	sends []Completion
	recvs []Completion
	far   farMemory

	sendsDone, recvsDone uint32 // of the last completion
	other                *end
	timer                clock.Time
	tos                  uint8
	room                 int // packets that out takes; negative: any number
	drops                [Reasons]int
	wrong                int // frames whose ICRC was wrong
	record               func(p roce.Packet, payload int)
	lose                 func(p *roce.Packet) bool                   // of packets that this side sends
	route                func(frame []byte) (at clock.Time, ok bool) // of frames that this side sends, instead of the link
}

// counted checks the number of a completion, and returns it without, for tests that compare completions.
func (e *end) counted(c Completion, last *uint32, completed uint64) Completion {
	if c.Done <= *last || c.Done != uint32(completed) {
		e.p.t.Errorf("%s: completion %d follows %d, and %d have completed", e.name, c.Done, *last, completed)
	}
	*last, c.Done = c.Done, 0
	return c
}

// farMemory is memory of another process, from farAddr on.
type farMemory struct {
	mem     []byte
	missing bool // the process has ended
	writes  int
}

const farAddr = 0x5000_0000

func (f *farMemory) Read(b []byte, addr uint64) bool {
	return !f.missing && copy(b, f.mem[addr-farAddr:]) == len(b)
}

func (f *farMemory) Write(b []byte, addr uint64) bool {
	f.writes++
	return !f.missing && copy(f.mem[addr-farAddr:], b) == len(b)
}

// packetInFlight is a frame that arrives at a time.
type packetInFlight struct {
	at    clock.Time
	seq   int
	to    *end
	frame []byte
}

type flight []packetInFlight

func (f flight) Len() int { return len(f) }
func (f flight) Less(i, j int) bool {
	return f[i].at < f[j].at || f[i].at == f[j].at && f[i].seq < f[j].seq
}
func (f flight) Swap(i, j int) { f[i], f[j] = f[j], f[i] }
func (f *flight) Push(x any)   { *f = append(*f, x.(packetInFlight)) }
func (f *flight) Pop() any {
	old := *f
	x := old[len(old)-1]
	*f = old[:len(old)-1]
	return x
}

// vaBase is the virtual address of both sides' memory.
const vaBase = 0x7000_0000_0000

const everything = memory.LocalWrite | memory.RemoteWrite | memory.RemoteRead | memory.RemoteAtomic

// options of a pair; the zero value is an RC pair with MTU 256.
type options struct {
	service   roce.Transport
	mtu       uint32
	psn       uint32
	memory    int
	depth     int
	seed      uint64
	retries   uint8
	rnr       uint8
	noRNR     bool
	reads     uint8
	window    uint32
	shared    bool
	imp       impairment
	selective bool
	timeout   uint8
	line      uint64 // congestion control, and packets that are ECN-capable
}

func newPair(t testing.TB, o options) *pair {
	p := &pair{t: t, r: rand.New(rand.NewPCG(o.seed, 3)), imp: o.imp, limit: 2_000_000}
	if p.imp.delay == 0 {
		p.imp.delay = 10 * time.Microsecond
	}
	if o.mtu == 0 {
		o.mtu = 256
	}
	if o.memory == 0 {
		o.memory = 1 << 16
	}
	if o.depth == 0 {
		o.depth = 64
	}
	if o.reads == 0 {
		o.reads = 4
	}
	if o.retries == 0 {
		o.retries = 7
	}
	if o.rnr == 0 && !o.noRNR {
		o.rnr = 7
	}
	p.a, p.b = p.newEnd("a", 1, &o), p.newEnd("b", 2, &o)
	p.a.other, p.b.other = p.b, p.a
	p.connect(p.a, &o)
	p.connect(p.b, &o)
	return p
}

func (p *pair) newEnd(name string, host byte, o *options) *end {
	e := &end{p: p, name: name, addr: wire.AddrFrom4([4]byte{198, 18, 0, host}), timer: clock.Never, room: -1}
	e.tab = memory.NewTable(p.r.Uint32)
	e.mem = make([]byte, o.memory)
	var err error
	if host == 2 { // one side's memory is that of another process
		e.key, err = e.tab.RegisterRemote(1, &e.far, farAddr, uint64(len(e.mem)), vaBase, everything|memory.WindowBind)
	} else {
		e.key, err = e.tab.Register(1, e.mem, vaBase, everything|memory.WindowBind)
	}
	if e.far.mem = e.mem; err != nil {
		p.t.Fatal(err)
	}
	if o.line > 0 {
		e.tos = uint8(wire.ECT0)
	}
	e.rq = NewRecvQueue(o.depth, o.shared, nil)
	e.qp, err = New(Config{
		Service: o.service, QPN: 0x100 + uint32(host), PD: 1, Memory: e.tab, SendDepth: o.depth, Recv: e.rq, Window: o.window, LineRate: o.line,
		SendDone: func(c Completion) { e.sends = append(e.sends, e.counted(c, &e.sendsDone, e.qp.count.CompletedSends)) },
		RecvDone: func(c Completion) { e.recvs = append(e.recvs, e.counted(c, &e.recvsDone, e.qp.count.CompletedRecvs)) },
	})
	if err != nil {
		p.t.Fatal(err)
	}
	return e
}

// connect leads a side to ReadyToSend.
func (p *pair) connect(e *end, o *options) {
	attr := Attr{
		QKey: 0x1234, MTU: o.mtu, DestQP: e.other.qp.QPN(), RecvPSN: o.psn, SendPSN: o.psn, Access: everything, MaxDestReads: o.reads, MaxReads: o.reads,
		RNRTimer: 1, Timeout: 6 + o.timeout, Retries: o.retries, RNRRetries: o.rnr, SelectiveRepeat: o.selective,
	}
	for _, s := range []State{Init, ReadyToReceive, ReadyToSend} {
		if err := e.qp.Modify(s, attr, e.other.addr); err != nil {
			p.t.Fatal(err)
		}
	}
}

// output is the Output of a side: it builds a frame and impairs it.
func (e *end) output(_ uint32, pk *roce.Packet, pieces [][]byte) bool {
	p := e.p
	if e.room == 0 {
		return false
	}
	e.room--
	size := 0
	for _, b := range pieces {
		size += len(b)
	}
	if e.record != nil {
		e.record(*pk, size)
	}
	if p.limit--; p.limit < 0 {
		p.t.Fatal("the packets do not end")
	}
	env := roce.Envelope{Src: e.addr, Dst: e.other.addr, SrcPort: 50000, TTL: 64, TOS: e.tos}
	frame := make([]byte, roce.Overhead+size)
	frame = frame[:roce.Build(frame, &env, pk, pieces...)]
	if e.lose != nil && e.lose(pk) {
		return true
	}
	if e.route != nil {
		if at, ok := e.route(frame); ok {
			p.seq++
			heap.Push(&p.flying, packetInFlight{at, p.seq, e.other, frame})
		}
		return true
	}
	chance := func(n int) bool { return p.r.IntN(1000) < n }
	copies := 1
	if chance(p.imp.duplicate) {
		copies = 2
	}
	for range copies {
		at := p.now.Add(p.imp.delay)
		if chance(p.imp.reorder) {
			at = at.Add(time.Duration(p.r.Int64N(int64(4 * p.imp.delay))))
		}
		f := append([]byte(nil), frame...)
		if chance(p.imp.corrupt) {
			f[42+p.r.IntN(len(f)-42)] ^= 1 << p.r.IntN(8)
		}
		if !chance(p.imp.loss) {
			p.seq++
			heap.Push(&p.flying, packetInFlight{at, p.seq, e.other, f})
		}
	}
	return true
}

// input gives a frame to a side.
func (e *end) input(frame []byte) {
	var f roce.Frame
	if why := f.Parse(frame); why != roce.Accepted || f.Verify() != roce.Accepted {
		e.wrong++
		return
	}
	if f.DestQP != e.qp.QPN() {
		e.p.t.Fatalf("packet for queue pair %#x with a good ICRC", f.DestQP)
	}
	e.drops[e.qp.Input(e.p.now, &f)]++
}

func (e *end) poll() { e.timer = e.qp.Poll(e.p.now, e.output) }

// step moves to the next event. It reports false where none is left.
func (p *pair) step() bool {
	p.a.poll()
	p.b.poll()
	next := min(p.a.timer, p.b.timer)
	if len(p.flying) > 0 {
		next = min(next, p.flying[0].at)
	}
	if next == clock.Never {
		return false
	}
	p.now = max(p.now, next)
	for len(p.flying) > 0 && p.flying[0].at <= p.now {
		p.deliver()
	}
	return true
}

// deliver gives the first packet in flight to its receiver.
func (p *pair) deliver() {
	f := heap.Pop(&p.flying).(packetInFlight)
	f.to.input(f.frame)
	if p.r.IntN(2) == 0 { // so that several packets meet one poll
		f.to.poll()
	}
}

// run steps until nothing is left to happen.
func (p *pair) run() {
	for p.step() {
	}
}

// until steps until a condition holds.
func (p *pair) until(what string, ok func() bool) {
	p.t.Helper()
	for !ok() {
		if !p.step() {
			p.t.Fatalf("nothing moves before %s: a is %v, b is %v", what, p.a.qp.State(), p.b.qp.State())
		}
	}
}

// post posts a send.
func (e *end) post(w SendWR) {
	e.p.t.Helper()
	if err := e.qp.PostSend(&w); err != nil {
		e.p.t.Fatal(err)
	}
}

// receive posts a buffer of the memory.
func (e *end) receive(id uint64, at, n uint32) {
	e.p.t.Helper()
	if err := e.qp.PostRecv(&RecvWR{ID: id, List: []SGE{e.sge(at, n)}}); err != nil {
		e.p.t.Fatal(err)
	}
}

// sge returns the bytes [at, at+n) of the memory.
func (e *end) sge(at, n uint32) SGE { return SGE{Addr: vaBase + uint64(at), Length: n, LKey: e.key} }

// request returns a signaled request over [at, at+n), for the byte remote on of the other side.
func (e *end) request(id uint64, op Op, at, n, remote uint32) SendWR {
	return SendWR{ID: id, Op: op, Flags: Signaled, List: []SGE{e.sge(at, n)}, RemoteAddr: vaBase + uint64(remote), RKey: e.other.key}
}

// fill writes bytes that depend on their place.
func (e *end) fill(seed byte) {
	for i := range e.mem {
		e.mem[i] = byte(i)*3 + byte(i>>8)*5 + seed
	}
}

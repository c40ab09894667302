package transport

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/millrace/millrace/rdma/roce"
)

// impairments are links; all of them at 1 ms round trip and less.
var impairments = map[string]impairment{
	"clean":     {},
	"loss":      {loss: 20},
	"reorder":   {reorder: 100},
	"duplicate": {duplicate: 100},
	"corrupt":   {corrupt: 30},
	"all":       {loss: 30, reorder: 50, duplicate: 30, corrupt: 10, delay: 100 * time.Microsecond},
	"heavy":     {loss: 150, reorder: 50, duplicate: 20},
}

// TestLossyLinks has both sides write, read and send at random over impaired links, with sequence numbers that wrap, with go-back-N and with
// selective repeat. A model executes
// the same requests in order: memories must be equal at the end, every request completes once and in order, and every
// atomic has taken effect once.
func TestLossyLinks(t *testing.T) {
	for name, imp := range impairments {
		for seed := range uint64(6) {
			for _, selective := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s %d %v", name, seed, selective), func(t *testing.T) { lossy(t, imp, seed, selective) })
			}
		}
	}
}

// rounds is the number of requests of each side.
const rounds = 150

func lossy(t *testing.T, imp impairment, seed uint64, selective bool) {
	p := newPair(t, options{psn: 0xfffff0, imp: imp, seed: seed, selective: selective, mtu: 256 << (seed % 3), memory: 1 << 17, reads: uint8(1 + seed%5), window: 16 << (seed % 4)})
	workers := []*worker{{e: p.a}, {e: p.b}}
	for i, w := range workers {
		w.e.fill(byte(i))
		w.local = bytes.Clone(w.e.mem)
	}
	for !workers[0].finished() || !workers[1].finished() {
		for _, w := range workers {
			w.work(t)
		}
		if !p.step() {
			t.Fatalf("nothing moves: %v, %v", p.a.qp.State(), p.b.qp.State())
		}
	}
	p.run()
	for _, w := range workers {
		w.check(t)
	}
	c := p.a.qp.Counters()
	if imp.loss > 0 && c.Repeated == 0 {
		t.Error("nothing was repeated on a link with loss")
	}
	t.Logf("sent %d, repeated %d, timeouts %d, NAKs %d, implied %d, at %v", c.Sent, c.Repeated, c.Timeouts, c.SequenceNaks, c.ImpliedNaks, time.Duration(p.now))
}

// worker makes the requests of one side. Each side's memory is cut: what its peer writes, what it sends from, what it reads
// into, and a counter. So the order between both sides does not matter.
//
//	0        16       32768         65536        98304      131072
//	| counter |       | peer writes | sends from | reads to |
type worker struct {
	e       *end
	local   []byte // of the other side's memory, and of this one's, as the model has it
	want    []byte // what the other side's second quarter has
	made    int
	posted  int
	sends   [][32]byte // hashes of messages
	recvIDs uint64
	adds    uint64
	reads   []readBack
}

// readBack is a READ, and what it must bring.
type readBack struct {
	at, n uint32
	want  [32]byte
	index int
}

const quarter = 32768

func (w *worker) finished() bool {
	return w.made == rounds && len(w.e.sends) == rounds && len(w.e.recvs) == len(w.e.other.worker().sends)
}

// workers by end.
var workersOf = map[*end]*worker{}

func (e *end) worker() *worker { return workersOf[e] }

// work posts receives and requests as long as there is room.
func (w *worker) work(t *testing.T) {
	workersOf[w.e] = w
	e, r := w.e, w.e.p.r
	if w.want == nil {
		w.want = bytes.Clone(e.other.mem[quarter : 2*quarter])
	}
	for w.posted < rounds && e.rq.Len() < 20 { // fewer than messages, at times none
		if r.IntN(3) > 0 {
			break
		}
		// Receives lie behind the four quarters' use: 64 buffers of 256 bytes in the first quarter.
		if e.qp.PostRecv(&RecvWR{ID: w.recvIDs, List: []SGE{e.sge(uint32(1024+w.recvIDs%64*256), 256)}}) != nil {
			t.Fatal("receive refused")
		}
		w.recvIDs++
		w.posted++
	}
	for w.made < rounds && int(e.qp.req.tail-e.qp.req.head) < 60 && r.IntN(4) > 0 {
		w.request()
	}
}

// request posts one request and executes it in the model.
func (w *worker) request() {
	e, r := w.e, w.e.p.r
	n := uint32(r.IntN(3000))
	from, to := uint32(r.IntN(quarter-3000)), uint32(r.IntN(quarter-3000))
	id := uint64(w.made)
	w.made++
	switch r.IntN(5) {
	case 0, 1:
		req := e.request(id, OpWrite, 2*quarter+from, n, quarter+to)
		req.Flags |= Fence // else a READ that is repeated may see it (10.8.3.3)
		e.post(req)
		copy(w.want[to:], e.mem[2*quarter+from:2*quarter+from+n])
	case 2:
		n %= 257
		e.post(e.request(id, OpSend, 2*quarter+from, n, 0))
		w.sends = append(w.sends, sha256.Sum256(e.mem[2*quarter+from:2*quarter+from+n]))
	case 3: // reads what it has written: requests of one queue pair are executed in order
		e.post(e.request(id, OpRead, 3*quarter+to, n, quarter+from))
		w.reads = append(w.reads, readBack{at: 3*quarter + to, n: n, want: sha256.Sum256(w.want[from : from+n]), index: int(id)})
	case 4:
		req := e.request(id, OpFetchAdd, 512, 8, 0)
		req.Swap = uint64(1 + r.IntN(1000))
		w.adds += req.Swap
		e.post(req)
	}
}

// check compares with the model.
func (w *worker) check(t *testing.T) {
	e := w.e
	if sha256.Sum256(e.other.mem[quarter:2*quarter]) != sha256.Sum256(w.want) {
		t.Errorf("%s: what was written differs", e.name)
	}
	for i, c := range e.sends {
		if c.ID != uint64(i) || c.Status != Success {
			t.Fatalf("%s: completion %d: %+v", e.name, i, c)
		}
	}
	for i, c := range e.other.recvs {
		if c.ID != uint64(i) || c.Status != Success || c.Op != OpRecv {
			t.Fatalf("%s: receive %d: %+v", e.name, i, c)
		}
	}
	first := max(0, len(w.sends)-32) // earlier buffers were used again
	for i := first; i < len(w.sends); i++ {
		at := 1024 + i%64*256
		if sha256.Sum256(e.other.mem[at:at+int(e.other.recvs[i].Bytes)]) != w.sends[i] {
			t.Errorf("%s: message %d differs", e.name, i)
		}
	}
	if got := binary.NativeEndian.Uint64(e.other.mem) - binary.NativeEndian.Uint64(w.e.other.worker().local); got != w.adds {
		t.Errorf("%s: atomics have added %d, want %d", e.name, got, w.adds)
	}
	for i := len(w.reads) - 1; i >= 0; i-- { // the last READ to its place stands there
		read := w.reads[i]
		later := false
		for _, l := range w.reads[i+1:] {
			later = later || l.at < read.at+read.n && read.at < l.at+l.n
		}
		if !later && sha256.Sum256(e.mem[read.at:read.at+read.n]) != read.want {
			t.Errorf("%s: READ %d brought other bytes", e.name, read.index)
		}
	}
}

// TestBulkOverLossyLink moves 8 MiB each way at 2 % loss, by WRITE of 64 KiB and READ, and compares hashes; with MILLRACE_SOAK, 10 GB each way
// in as many pieces. Numbers wrap.
func TestBulkOverLossyLink(t *testing.T) {
	pieces := uint64(1)
	if os.Getenv("MILLRACE_SOAK") != "" {
		pieces = 1200
	}
	for _, selective := range []bool{false, true} {
		for i := range pieces {
			bulk(t, selective, 9+i)
		}
	}
}

func bulk(t *testing.T, selective bool, seed uint64) {
	const size = 8 << 20
	p := newPair(t, options{psn: 0xfffff0, memory: 2 * size, mtu: 4096, seed: seed, selective: selective, imp: impairment{loss: 20, reorder: 20}})
	p.limit = 1 << 30
	p.a.fill(1)
	p.b.fill(2)
	copy(p.b.mem[:size], make([]byte, size))
	wantA, wantB := sha256.Sum256(p.b.mem[size:]), sha256.Sum256(p.a.mem[:size])
	for at := uint32(0); at < size; at += 1 << 16 {
		p.until("room in the queue", func() bool { return p.a.qp.req.tail-p.a.qp.req.head < 62 })
		p.a.post(p.a.request(uint64(at), OpWrite, at, 1<<16, at))
		p.a.post(p.a.request(uint64(at), OpRead, size+at, 1<<16, size+at))
	}
	p.run()
	if sha256.Sum256(p.b.mem[:size]) != wantB || sha256.Sum256(p.a.mem[size:]) != wantA {
		t.Error("the hashes differ")
	}
	if n := len(p.a.sends); n != 2*size>>16 || p.a.qp.State() != ReadyToSend {
		t.Errorf("%d completions, state %v", n, p.a.qp.State())
	}
	if seed == 9 {
		t.Logf("selective repeat %v: %+v", selective, p.a.qp.Counters())
	}
}

// TestAtomicsAreExactlyOnce adds to a counter over a bad link, and compares the values that were returned
// with the steps of a counter.
func TestAtomicsAreExactlyOnce(t *testing.T) {
	for seed := range uint64(20) {
		p := newPair(t, options{seed: seed, imp: impairment{loss: 200, duplicate: 100, reorder: 100}, reads: 16})
		const adds = 64
		for i := range uint32(adds) {
			w := p.a.request(uint64(i), OpFetchAdd, 8*i, 8, 0)
			w.Swap = 1
			p.a.post(w)
		}
		p.run()
		if p.a.qp.State() != ReadyToSend { // so much loss may use up the retries, but no result may be wrong
			t.Logf("seed %d: %v", seed, p.a.sends[len(p.a.sends)-1].Status)
		}
		done := 0
		for i, c := range p.a.sends {
			if c.Status != Success {
				break
			}
			if got := binary.NativeEndian.Uint64(p.a.mem[8*i:]); got != uint64(i) {
				t.Fatalf("seed %d: atomic %d returned %d", seed, i, got)
			}
			done++
		}
		if got := binary.NativeEndian.Uint64(p.b.mem); got < uint64(done) || got > adds {
			t.Errorf("seed %d: the counter is %d after %d atomics", seed, got, done)
		}
	}
}

// TestLostAnswers has every kind of acknowledgement lost once.
func TestLostAnswers(t *testing.T) {
	for _, op := range []Op{OpSend, OpWrite, OpRead, OpFetchAdd, OpCompareSwap, OpWriteImm} {
		p := newPair(t, options{})
		p.b.receive(1, 1000, 8)
		p.b.receive(2, 1000, 8)
		lost := false
		p.b.lose = func(*roce.Packet) bool {
			was := lost
			lost = true
			return !was
		}
		w := p.a.request(1, op, 0, 8, 8)
		w.Swap = 5
		p.a.post(w)
		p.run()
		if len(p.a.sends) != 1 || p.a.sends[0].Status != Success || p.a.qp.Counters().Timeouts != 1 || p.b.drops[Duplicate] != 1 {
			t.Errorf("%v: %+v %+v", op, p.a.sends, p.a.qp.Counters())
		}
		if got := binary.NativeEndian.Uint64(p.b.mem[8:]); op == OpFetchAdd && got != 5 {
			t.Errorf("the counter is %d", got)
		}
		if want := b2i(op.takesReceive()); len(p.b.recvs) != want {
			t.Errorf("%v: %d receives", op, len(p.b.recvs))
		}
	}
}

package tcp

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/millrace/millrace/wire"
)

// TestSequenceNumbers compares the arithmetic of the circle with that of whole numbers.
func TestSequenceNumbers(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for range 20_000 {
		at, d := int64(r.Uint64()>>20), int64(r.Uint32()>>1)
		if r.Uint32()%8 == 0 {
			d = int64(r.Uint32() % 2)
		}
		a, b := uint32(at), uint32(at+d)
		if seqBefore(a, b) != (d > 0) || seqBefore(b, a) || !seqUpTo(a, b) || seqUpTo(b, a) != (d == 0) {
			t.Fatalf("order of %d and %d", a, b)
		}
		if seqMax(a, b) != b || seqMax(b, a) != b || seqMin(a, b) != a || seqMin(b, a) != a {
			t.Fatalf("bounds of %d and %d", a, b)
		}
		if seqDistance(a, b) != uint32(d) || seqDistance(b, a) != 0 {
			t.Fatalf("distance of %d and %d", a, b)
		}
	}
}

// TestReceiveRingAgainstAMap stores pieces in any order, overlapping, and reads, beside a map of bytes.
func TestReceiveRingAgainstAMap(t *testing.T) {
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 3))
		p := &buffers{budget: 1 << 20}
		base := r.Uint32()
		ring := &receiveRing{base: base}
		model := map[uint32]byte{}
		next, read := base, base
		for range 100 {
			off, n := r.Uint32()%3000, 1+r.Uint32()%700
			left, right := next+off-min(off, 200), next+off+n
			left = seqMax(left, next)
			payload := make([]byte, right-left)
			for i := range payload {
				payload[i] = pattern(int(left - base + uint32(i)))
			}
			if !ring.reserve(p, right-ring.base) {
				t.Fatal("no memory")
			}
			cut := r.IntN(len(payload) + 1)
			ring.store(left, [][]byte{payload[:cut], nil, payload[cut:]}, 0, right-left)
			want := oooRange{}
			for s := left; s != right; s++ {
				_, had := model[s]
				if had && want.left == want.right && (s == left || want.right != s) {
					want = oooRange{left: s, right: s}
				}
				if had && want.right == s {
					want.right++
				}
				model[s] = payload[s-left]
			}
			if left == next {
				ring.join(right - left)
			} else if dup, ok := ring.addRange(left, right); !ok || dup.left != dup.right && (dup.left != want.left || dup.right != want.right) || dup.left == dup.right && want.left != want.right {
				t.Fatalf("seed %d: [%d,%d) was said to be there from %d to %d, was from %d to %d", seed, left-base, right-base, dup.left-base, dup.right-base, want.left-base, want.right-base)
			}
			for _, ok := model[next]; ok; _, ok = model[next] {
				next++
			}
			if ring.next() != next {
				t.Fatalf("seed %d: readable up to %d, want %d", seed, ring.next()-base, next-base)
			}
			checkRanges(t, ring, model, next)
			k := uint32(r.IntN(int(ring.n) + 1))
			got := ring.peek()
			all := slices.Concat(got[0], got[1])
			for i := range k {
				if all[i] != model[read+i] {
					t.Fatalf("seed %d: byte %d is wrong", seed, read+i-base)
				}
			}
			ring.discard(k)
			read += k
		}
		p.put(ring.buf)
		if p.used != 0 {
			t.Fatalf("%d bytes leak", p.used)
		}
	}
}

// checkRanges compares what the ring says to hold out of order with the model.
func checkRanges(t *testing.T, ring *receiveRing, model map[uint32]byte, next uint32) {
	held := map[uint32]bool{}
	for _, g := range ring.ooo {
		for s := g.left; s != g.right; s++ {
			held[s] = true
		}
	}
	for s := range model {
		if seqBefore(next, s) != held[s] && s != next {
			t.Fatalf("byte %d: held %v", s-next, held[s])
		}
		if seqBefore(s, ring.base) {
			delete(model, s)
		}
	}
}

// TestRecentRanges is RFC 2018 4: the range of the newest segment is the first.
func TestRecentRanges(t *testing.T) {
	r := &receiveRing{}
	for _, g := range [][2]uint32{{10, 20}, {30, 40}, {50, 60}, {70, 80}, {90, 100}, {40, 45}} {
		r.addRange(g[0], g[1])
	}
	var got [3]oooRange
	n := r.newestRanges(got[:])
	if n != 3 || got[0].left != 30 || got[0].right != 45 || got[1].left != 90 || got[2].left != 70 {
		t.Errorf("%d: %v", n, got)
	}
	if n = r.newestRanges(make([]oooRange, 9)); n != 5 {
		t.Errorf("%d ranges", n)
	}
}

// TestSendQueueAgainstBytes writes and lends, and takes slices of what is held, beside one long slice.
func TestSendQueueAgainstBytes(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 4))
		p := &buffers{budget: 8 << 20}
		base := r.Uint32()
		q := &sendQueue{base: base, end: base}
		var all []byte
		lent, done := 0, 0
		for range 200 {
			b := make([]byte, 1+r.IntN(3000))
			for i := range b {
				b[i] = pattern(len(all) + i)
			}
			if r.IntN(3) == 0 {
				lent++
				q.appendZeroCopy(b, func() { done++ })
			} else if n := q.write(p, b); n != len(b) {
				t.Fatalf("wrote %d of %d", n, len(b))
			}
			all = append(all, b...)
			from := int(q.base-base) + r.IntN(q.len())
			pieces, total := q.slice(base+uint32(from), r.IntN(9000))
			if total > 0 && len(pieces[0]) == 0 {
				t.Fatalf("seed %d: the first of two pieces is empty", seed)
			}
			if got := slices.Concat(pieces[0], pieces[1]); len(got) != total || !slices.Equal(got, all[from:from+total]) {
				t.Fatalf("seed %d: %d bytes from %d are wrong", seed, total, from)
			}
			if r.IntN(3) == 0 {
				q.release(p, q.base+uint32(r.IntN(q.len()+1)))
			}
			if int(q.end-base) != len(all) {
				t.Fatalf("seed %d: ends at %d, want %d", seed, q.end-base, len(all))
			}
			if q.len() == 0 {
				q.base = q.end
			}
		}
		q.release(p, q.end)
		if done != lent || p.used != 0 {
			t.Fatalf("seed %d: %d of %d given back, %d bytes leak", seed, done, lent, p.used)
		}
	}
}

// TestTableAgainstAMap inserts and removes connections, with tuples of few different hashes.
func TestTableAgainstAMap(t *testing.T) {
	m := NewMux(Config{Output: &sink{}, MaxConns: 1 << 12})
	r := rand.New(rand.NewPCG(5, 5))
	model := map[wire.Tuple]*Conn{}
	var tuples []wire.Tuple
	for range 40_000 {
		tuple := wire.Tuple{Local: addrA, Remote: addrB, LocalPort: uint16(r.IntN(60)), RemotePort: uint16(r.IntN(60))}
		c := model[tuple]
		if got := m.lookup(&tuple); got != c {
			t.Fatalf("found %p, want %p", got, c)
		}
		switch {
		case c != nil && r.IntN(2) == 0:
			m.table.remove(m.table.hashTuple(&tuple), c.id)
			m.freeConn(c)
			delete(model, tuple)
		case c == nil:
			c = m.allocConn()
			c.tuple = tuple
			m.table.insert(m.table.hashTuple(&tuple), c.id)
			model[tuple] = c
			tuples = append(tuples, tuple)
		}
	}
	for _, tuple := range tuples {
		if got := m.lookup(&tuple); got != model[tuple] {
			t.Fatalf("found %p, want %p", got, model[tuple])
		}
	}
	if m.table.used != len(model) || m.slab.live != len(model) {
		t.Errorf("%d in the table, %d in the slab, want %d", m.table.used, m.slab.live, len(model))
	}
}

// TestBuffersKeepTheBudget takes and gives back; what is out never exceeds the budget.
func TestBuffersKeepTheBudget(t *testing.T) {
	r := rand.New(rand.NewPCG(6, 6))
	p := &buffers{budget: 1 << 20}
	var out [][]byte
	sum := int64(0)
	for range 20_000 {
		if n := 1 + r.IntN(1<<uint(r.IntN(18))); r.IntN(2) == 0 {
			if b := p.get(n); b != nil {
				if len(b) < n || len(b) >= 2*max(n, minChunk) {
					t.Fatalf("%d bytes for %d", len(b), n)
				}
				out = append(out, b)
				sum += int64(len(b))
			} else if sum+int64(2*n) < p.budget {
				t.Fatalf("refused %d bytes with %v in use", n, sum)
			}
		} else if len(out) > 0 {
			i := r.IntN(len(out))
			sum -= int64(len(out[i]))
			p.put(out[i])
			out[i] = out[len(out)-1]
			out = out[:len(out)-1]
		}
		if p.used != sum || p.used > p.budget || p.cached > p.budget/4 {
			t.Fatalf("%d in use, want %v; %d cached", p.used, sum, p.cached)
		}
	}
}

package buffer

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/millrace/millrace/tcp/seqnum"
)

// TestReceiveRingAgainstAMap stores pieces in any order, overlapping, and reads, beside a map of bytes.
func TestReceiveRingAgainstAMap(t *testing.T) {
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 3))
		p := &Pool{Budget: 1 << 20}
		base := r.Uint32()
		ring := &Ring{base: base}
		model := map[uint32]byte{}
		next, read := base, base
		for range 100 {
			off, n := r.Uint32()%3000, 1+r.Uint32()%700
			left, right := next+off-min(off, 200), next+off+n
			left = seqnum.Latest(left, next)
			payload := make([]byte, right-left)
			for i := range payload {
				payload[i] = pattern(int(left - base + uint32(i)))
			}
			if left == next && ring.Reserve(p, right) != right || left != next && !ring.ReserveOutOfOrder(p, left, right) {
				t.Fatal("no memory")
			}
			cut := r.IntN(len(payload) + 1)
			ring.Store(left, [][]byte{payload[:cut], nil, payload[cut:]}, 0, right-left)
			want := Span{}
			for s := left; s != right; s++ {
				_, had := model[s]
				if had && want.Left == want.Right && (s == left || want.Right != s) {
					want = Span{Left: s, Right: s}
				}
				if had && want.Right == s {
					want.Right++
				}
				model[s] = payload[s-left]
			}
			if left == next {
				ring.Advance(p, right-left)
			} else if dup, ok := ring.AddRange(0, p, left, right); !ok || dup.Left != dup.Right && (dup.Left != want.Left || dup.Right != want.Right) || dup.Left == dup.Right && want.Left != want.Right {
				t.Fatalf("seed %d: [%d,%d) was said to be there from %d to %d, was from %d to %d", seed, left-base, right-base, dup.Left-base, dup.Right-base, want.Left-base, want.Right-base)
			}
			for _, ok := model[next]; ok; _, ok = model[next] {
				next++
			}
			if ring.Next() != next {
				t.Fatalf("seed %d: readable up to %d, want %d", seed, ring.Next()-base, next-base)
			}
			checkRanges(t, ring, model, next)
			k := uint32(r.IntN(int(ring.n) + 1))
			got := ring.Peek()
			all := slices.Concat(got[0], got[1])
			for i := range k {
				if all[i] != model[read+i] {
					t.Fatalf("seed %d: byte %d is wrong", seed, read+i-base)
				}
			}
			part := make([]byte, k)
			if n := ring.Copy(part); n != int(k) || !slices.Equal(part, all[:k]) {
				t.Fatalf("seed %d: %d of %d bytes were copied, or others", seed, n, k)
			}
			ring.Discard(p, k)
			read += k
		}
		ring.Free(p)
		if p.used != 0 || p.outOfOrder != 0 || p.oldest != nil || p.newest != nil {
			t.Fatalf("%d bytes leak", p.used)
		}
	}
}

// checkRanges compares what the ring says to hold out of order with the model.
func checkRanges(t *testing.T, ring *Ring, model map[uint32]byte, next uint32) {
	held := map[uint32]bool{}
	for _, g := range ring.ooo {
		for s := g.Left; s != g.Right; s++ {
			held[s] = true
		}
	}
	for s := range model {
		if seqnum.Before(next, s) != held[s] && s != next {
			t.Fatalf("byte %d: held %v", s-next, held[s])
		}
		if seqnum.Before(s, ring.base) {
			delete(model, s)
		}
	}
}

// TestRecentRanges is RFC 2018 4: the range of the newest segment is the first.
func TestRecentRanges(t *testing.T) {
	r, p := &Ring{}, &Pool{Budget: 1 << 20}
	for _, g := range [][2]uint32{{10, 20}, {30, 40}, {50, 60}, {70, 80}, {90, 100}, {40, 45}} {
		r.AddRange(0, p, g[0], g[1])
	}
	var got [3]Span
	n := r.NewestRanges(got[:])
	if n != 3 || got[0].Left != 30 || got[0].Right != 45 || got[1].Left != 90 || got[2].Left != 70 {
		t.Errorf("%d: %v", n, got)
	}
	if n = r.NewestRanges(make([]Span, 9)); n != 5 {
		t.Errorf("%d ranges", n)
	}
}

// TestSendQueueAgainstBytes writes and lends, and takes slices of what is held, beside one long slice.
func TestSendQueueAgainstBytes(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 4))
		p := &Pool{Budget: 8 << 20}
		base := r.Uint32()
		q := &Queue{base: base, end: base}
		var all []byte
		lent, done := 0, 0
		for range 200 {
			b := make([]byte, 1+r.IntN(3000))
			for i := range b {
				b[i] = pattern(len(all) + i)
			}
			if r.IntN(3) == 0 {
				lent++
				q.AppendZeroCopy(b, func() { done++ })
			} else if n := q.Write(p, b); n != len(b) {
				t.Fatalf("wrote %d of %d", n, len(b))
			}
			all = append(all, b...)
			from := int(q.base-base) + r.IntN(q.Len())
			pieces, total := q.Slice(base+uint32(from), r.IntN(9000))
			if total > 0 && len(pieces[0]) == 0 {
				t.Fatalf("seed %d: the first of two pieces is empty", seed)
			}
			if got := slices.Concat(pieces[0], pieces[1]); len(got) != total || !slices.Equal(got, all[from:from+total]) {
				t.Fatalf("seed %d: %d bytes from %d are wrong", seed, total, from)
			}
			if r.IntN(3) == 0 {
				q.Release(p, q.base+uint32(r.IntN(q.Len()+1)))
			}
			if int(q.end-base) != len(all) {
				t.Fatalf("seed %d: ends at %d, want %d", seed, q.end-base, len(all))
			}
			if q.Len() == 0 {
				q.base = q.end
			}
		}
		q.Release(p, q.end)
		if done != lent || p.used != 0 {
			t.Fatalf("seed %d: %d of %d given back, %d bytes leak", seed, done, lent, p.used)
		}
	}
}

// TestBuffersKeepTheBudget takes and gives back; what is out never exceeds the budget.
func TestBuffersKeepTheBudget(t *testing.T) {
	r := rand.New(rand.NewPCG(6, 6))
	p := &Pool{Budget: 1 << 20}
	var out [][]byte
	sum := int64(0)
	for range 20_000 {
		if n := 1 + r.IntN(1<<uint(r.IntN(18))); r.IntN(2) == 0 {
			if b := p.get(n, p.Budget); b != nil {
				if len(b) < n || len(b) >= 2*max(n, minChunk) {
					t.Fatalf("%d bytes for %d", len(b), n)
				}
				out = append(out, b)
				sum += int64(len(b))
			} else if sum+int64(2*n) < p.Budget {
				t.Fatalf("refused %d bytes with %v in use", n, sum)
			}
		} else if len(out) > 0 {
			i := r.IntN(len(out))
			sum -= int64(len(out[i]))
			p.put(out[i])
			out[i] = out[len(out)-1]
			out = out[:len(out)-1]
		}
		if p.used != sum || p.used > p.Budget || p.cached > p.Budget/4 {
			t.Fatalf("%d in use, want %v; %d cached", p.used, sum, p.cached)
		}
	}
}

// pattern is byte i of a stream in which no short run repeats soon.
func pattern(i int) byte { return byte(i*7 + i>>8*31 + i>>16) }

// BenchmarkAddRange has a peer fill the list of ranges, and then make each of them longer, at both ends of the list: what
// one segment out of order costs at most.
func BenchmarkAddRange(b *testing.B) {
	p := &Pool{Budget: 64 << 20}
	var r Ring
	blocks := make([]Span, 4)
	for b.Loop() {
		r.Free(p)
		r.Reset(0)
		for i := range uint32(MaxRanges) {
			r.AddRange(0, p, 1000+i*100, 1010+i*100)
		}
		for i := range uint32(MaxRanges / 2) {
			r.AddRange(0, p, 1010+i*100, 1020+i*100)
			r.NewestRanges(blocks)
			r.AddRange(0, p, 1010+(MaxRanges-i)*100, 1020+(MaxRanges-i)*100)
			r.NewestRanges(blocks)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/(2*MaxRanges), "ns/segment")
}

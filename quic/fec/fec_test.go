package fec

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

func TestField(t *testing.T) {
	for a := 1; a < 256; a++ {
		if products[a][inverses[a]] != 1 || products[1][a] != byte(a) || products[0][a] != 0 {
			t.Fatalf("%d", a)
		}
		for b := 1; b < 256; b++ {
			c := byte(a*7 + b)
			if products[a][byte(b)^c] != products[a][b]^products[a][c] || products[a][b] != products[b][a] {
				t.Fatalf("%d, %d", a, b)
			}
		}
	}
	if products[2][128] != 0x1d || products[0x53][0xca] != 0x8f { // by hand, modulo 0x11d
		t.Errorf("%#x, %#x", products[2][128], products[0x53][0xca])
	}
}

// pair is an encoder, a decoder and what the decoder has delivered.
type pair struct {
	t    *testing.T
	e    *Encoder
	d    *Decoder
	got  map[string]int
	sent int
}

func newPair(t *testing.T, c Config) *pair {
	t.Helper()
	p := &pair{t: t, got: map[string]int{}}
	var err error
	if p.e, err = NewEncoder(c); err != nil {
		t.Fatal(err)
	}
	p.d, err = NewDecoder(c, func(b []byte) { p.got[string(b)]++ })
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// datagram is the ith of a test, of its own length and content.
func datagram(i int) []byte {
	return append(fmt.Appendf(nil, "%d:", i), bytes.Repeat([]byte{byte(i)}, i*37%200)...)
}

// send sends the next datagram; lost says of which symbols the decoder does not hear.
func (p *pair) send(lost, lostRepair bool) {
	p.t.Helper()
	b, due, err := p.e.Source(nil, datagram(p.sent))
	if err != nil {
		p.t.Fatal(err)
	}
	p.sent++
	p.receive(b, lost)
	if due {
		p.receive(p.e.Repair(nil), lostRepair)
	}
}

func (p *pair) receive(b []byte, lost bool) {
	p.t.Helper()
	if lost {
		return
	}
	if err := p.d.Receive(b); err != nil {
		p.t.Fatal(err)
	}
}

// check compares what was delivered with all datagrams but some.
func (p *pair) check(missing ...int) {
	p.t.Helper()
	for i := range p.sent {
		want := 1
		if slices.Contains(missing, i) {
			want = 0
		}
		if n := p.got[string(datagram(i))]; n != want {
			p.t.Errorf("datagram %d was delivered %d times, want %d", i, n, want)
		}
	}
	if len(p.got) != p.sent-len(missing) {
		p.t.Errorf("%d different datagrams, want %d", len(p.got), p.sent-len(missing))
	}
}

func TestXORRecoversOneOfABlock(t *testing.T) {
	for lost := range 5 {
		p := newPair(t, Config{Scheme: XOR, Interval: 5})
		for i := range 10 {
			p.send(i == lost, false)
		}
		p.check()
	}
	p := newPair(t, Config{Scheme: XOR, Interval: 5})
	for i := range 10 {
		p.send(i == 1 || i == 3, false)
	}
	p.check(1, 3)
}

// TestRLCRecoversABurst: three losses in a row are recovered by the next three repair symbols.
func TestRLCRecoversABurst(t *testing.T) {
	p := newPair(t, Config{Scheme: RLC, Interval: 5, Window: 20})
	for i := range 40 {
		p.send(i >= 11 && i < 14, false)
		if recovered := p.d.Stats().Recovered; (i < 24 && recovered != 0) || (i >= 24 && recovered != 3) {
			t.Fatalf("after %d: %d recovered", i, recovered)
		}
	}
	p.check()
}

func TestRLCRecoversWhenASourceComesLate(t *testing.T) {
	p := newPair(t, Config{Scheme: RLC, Interval: 4, Window: 8})
	var late []byte
	for i := range 4 {
		b, due, _ := p.e.Source(nil, datagram(p.sent))
		p.sent++
		if i == 1 {
			late = b
		}
		p.receive(b, i == 1 || i == 2)
		if due {
			p.receive(p.e.Repair(nil), false)
		}
	}
	p.receive(late, false)
	p.check()
	p.receive(late, false)
	if s := p.d.Stats(); s.Late != 1 || s.Recovered != 1 || s.Sources != 3 {
		t.Errorf("%+v", s)
	}
}

// TestAgainstElimination compares the decoder with Gaussian elimination over all that has arrived: it
// recovers exactly what is determined, as long as nothing is behind the horizon.
func TestAgainstElimination(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	for round := range 300 {
		scheme := XOR + Scheme(round%2)
		interval := 2 + rnd.IntN(6)
		p := newPair(t, Config{Scheme: scheme, Interval: interval})
		known := map[int]bool{}
		var rows [][]byte
		n := 20 + rnd.IntN(60)
		for i := range n {
			b, due, _ := p.e.Source(nil, datagram(i))
			p.sent++
			if lost := rnd.IntN(4) == 0; !lost {
				known[i] = true
				p.receive(b, false)
			}
			if !due {
				continue
			}
			b = p.e.Repair(nil)
			if rnd.IntN(5) > 0 {
				r, _, _ := parseRepair(b)
				row := make([]byte, n)
				for k := range r.count {
					row[int(r.first)+k] = r.coefficient(k)
				}
				rows = append(rows, row)
				p.receive(b, false)
			}
		}
		for i := range determined(rows, known, n) {
			known[i] = true
		}
		var missing []int
		for i := range n {
			if !known[i] {
				missing = append(missing, i)
			}
		}
		p.check(missing...)
		if t.Failed() {
			t.Fatalf("round %d, %v, interval %d", round, scheme, interval)
		}
	}
}

// determined returns the unknowns that the rows determine, by elimination.
func determined(rows [][]byte, known map[int]bool, n int) map[int]bool {
	for _, row := range rows {
		for i := range known {
			row[i] = 0
		}
	}
	rank := 0
	for at := range n {
		for k := rank; k < len(rows); k++ {
			if rows[k][at] == 0 {
				continue
			}
			rows[rank], rows[k] = rows[k], rows[rank]
			scale(rows[rank], inverses[rows[rank][at]])
			for o := range rows {
				if o != rank {
					addScaled(rows[o], slices.Clone(rows[rank]), rows[o][at])
				}
			}
			rank++
			break
		}
	}
	out := map[int]bool{}
	for _, row := range rows[:rank] {
		var at []int
		for i, c := range row {
			if c != 0 {
				at = append(at, i)
			}
		}
		if len(at) == 1 {
			out[at[0]] = true
		}
	}
	return out
}

// TestIDsWrap: encoding symbol IDs go on at 0 after 2^32-1.
func TestIDsWrap(t *testing.T) {
	for _, scheme := range []Scheme{XOR, RLC} {
		p := newPair(t, Config{Scheme: scheme, Interval: 7})
		p.e.next = 1<<32 - 33
		for i := range 100 {
			p.send(i%7 == 3 && i < 98, false) // 14 blocks, each with a loss
		}
		p.check()
	}
}

func TestMemoryIsBounded(t *testing.T) {
	c := Config{Scheme: RLC, Interval: 2, Window: 64}
	p := newPair(t, c)
	most := 0
	for range 1000 { // no source symbol arrives
		p.send(true, false)
		most = max(most, len(p.d.equations))
	}
	if most != maxEquations {
		t.Errorf("%d equations, want %d", most, maxEquations)
	}
	if s := p.d.Stats(); s.Repairs != 500 || s.Dropped == 0 {
		t.Errorf("%+v", s)
	}
	before := p.d.Stats().Recovered
	for i := range 600 { // and then it goes on as if nothing had been
		p.send(i%10 == 0 && i < 590, false)
	}
	if n := p.d.Stats().Recovered - before; n < 40 {
		t.Errorf("%d recovered", n)
	}
}

// TestNothingWrongIsDelivered loses most symbols for a while, again and again, so that equations outlive the horizon:
// what is recovered must have been sent.
func TestNothingWrongIsDelivered(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 6))
	for _, c := range []Config{
		{Scheme: RLC, Interval: 1, Window: 40},
		{Scheme: RLC, Interval: 2, Window: 128},
		{Scheme: RLC, Interval: 3, Window: 9},
		{Scheme: RLC, Interval: 2, Window: 20},
		{Scheme: XOR, Interval: 2},
		{Scheme: XOR, Interval: 128},
	} {
		p, n := newPair(t, c), 8000
		if raceEnabled {
			n = 800
		}
		for range n {
			lost := 6 // of ten; every other while hardly any, so that equations are solved
			if p.sent/100%2 == 1 {
				lost = 1
			}
			p.send(rnd.IntN(10) < lost, rnd.IntN(10) < 3)
		}
		sent := map[string]bool{}
		for i := range p.sent {
			sent[string(datagram(i))] = true
		}
		for b, n := range p.got {
			if !sent[b] || n != 1 {
				t.Fatalf("%+v: %d times %q", c, n, b[:min(len(b), 20)])
			}
		}
		if s := p.d.Stats(); c.Interval == 1 && s.Recovered == 0 {
			t.Errorf("%+v: %+v", c, s)
		}
	}
}

// TestSourceBehindTheHorizon: a symbol that comes 256 late has the slot of the newest.
func TestSourceBehindTheHorizon(t *testing.T) {
	p := newPair(t, Config{Scheme: RLC, Interval: 2, Window: 2})
	first, _, _ := p.e.Source(nil, datagram(0))
	p.sent++
	for p.sent < horizon {
		p.send(true, true)
	}
	b, due, _ := p.e.Source(nil, datagram(p.sent))
	p.sent++
	p.receive(b, true)
	if due {
		t.Fatal("the newest symbol has no repair symbol yet")
	}
	p.receive(p.e.Repair(nil), false) // of the last two, both unknown
	p.receive(first, false)
	if s := p.d.Stats(); s.Late != 1 || len(p.got) != 0 {
		t.Errorf("%+v, %d delivered", s, len(p.got))
	}
}

func TestMalformedSymbols(t *testing.T) {
	p := newPair(t, Config{Scheme: RLC})
	xor, _ := NewEncoder(Config{Scheme: XOR, Interval: 1})
	_, _, _ = xor.Source(nil, []byte("x"))
	for name, c := range map[string]struct {
		b    []byte
		want error
	}{
		"empty":        {nil, ErrMalformed},
		"short source": {[]byte{0, 1, 2, 3}, ErrMalformed},
		"large source": {make([]byte, sourceHeader+DefaultMaxSize+1), ErrMalformed},
		"short repair": {[]byte{2, 0, 0, 0, 0, 1, 0, 0, 0}, ErrMalformed},
		"of nothing":   {[]byte{2, 0, 0, 0, 0, 0, 0, 0, 0, 0}, ErrMalformed},
		"of too many":  {[]byte{2, 0, 0, 0, 0, MaxWindow + 1, 0, 0, 0, 0}, ErrMalformed},
		"large repair": {append([]byte{2, 0, 0, 0, 0, 1, 0, 0}, make([]byte, DefaultMaxSize+3)...), ErrMalformed},
		"other scheme": {xor.Repair(nil), ErrScheme},
	} {
		if err := p.d.Receive(c.b); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// A repair symbol of one source symbol whose length is beyond its end.
	lie := (&repair{RLC, 0, 1, 0}).append(nil)
	for i, sum := range [][]byte{{0xff, 0xff, 1}, {0, 1}, {0, 2, 1}} {
		r := repair{RLC, 0, 1, 0}
		scale(sum, r.coefficient(0))
		if err := p.d.Receive(append(slices.Clone(lie), sum...)); err != nil || len(p.got) != 0 || p.d.Stats().Dropped != uint64(i+1) {
			t.Errorf("%v, %v, %+v", err, p.got, p.d.Stats())
		}
	}
}

func TestConfigBounds(t *testing.T) {
	for _, c := range []Config{
		{Scheme: RLC, Interval: -1},
		{Scheme: RLC, Interval: 129},
		{Scheme: RLC, Interval: 10, Window: 9},
		{Scheme: RLC, Window: 129},
		{Scheme: RLC + 1},
		{Scheme: RLC, MaxSize: 65536},
		{Scheme: RLC, MaxSize: -1},
	} {
		if _, err := NewEncoder(c); !errors.Is(err, ErrConfig) {
			t.Errorf("%+v: %v", c, err)
		}
		if _, err := NewDecoder(c, nil); !errors.Is(err, ErrConfig) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	e, _ := NewEncoder(Config{Scheme: XOR, MaxSize: 10})
	if _, _, err := e.Source(nil, make([]byte, 11)); !errors.Is(err, ErrTooLarge) {
		t.Error(err)
	}
}

func TestNegotiation(t *testing.T) {
	offered := Offer("chat", RLC, XOR)
	if !slices.Equal(offered, []string{"chat+fec-rlc-1", "chat+fec-xor-1", "chat"}) {
		t.Errorf("%q", offered)
	}
	for i, want := range []Scheme{RLC, XOR, None} {
		if base, s := Negotiated(offered[i]); base != "chat" || s != want {
			t.Errorf("%q, %v", base, s)
		}
	}
}

// FuzzDecoder feeds symbols that are cut from b, each behind its length.
func FuzzDecoder(f *testing.F) {
	e, _ := NewEncoder(Config{Scheme: RLC, Interval: 2})
	var seed []byte
	for i := range 6 {
		b, due, _ := e.Source(nil, datagram(i))
		if i != 3 {
			seed = append(binary.BigEndian.AppendUint16(seed, uint16(len(b))), b...)
		}
		if due {
			b = e.Repair(nil)
			seed = append(binary.BigEndian.AppendUint16(seed, uint16(len(b))), b...)
		}
	}
	f.Add(byte(RLC), seed)
	f.Add(byte(XOR), seed)
	f.Fuzz(func(t *testing.T, scheme byte, b []byte) {
		delivered := uint64(0)
		c := Config{Scheme: Scheme(scheme % 3), MaxSize: 300}
		d, err := NewDecoder(c, func(b []byte) {
			delivered++
			if len(b) > c.MaxSize {
				t.Errorf("%d bytes", len(b))
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		for len(b) >= 2 {
			n := min(int(binary.BigEndian.Uint16(b)), len(b)-2)
			_ = d.Receive(b[2 : 2+n])
			b = b[2+n:]
			if err := d.invariants(); err != nil {
				t.Fatal(err)
			}
		}
		if s := d.Stats(); delivered != s.Sources+s.Recovered {
			t.Errorf("%d delivered, %+v", delivered, s)
		}
	})
}

// invariants checks the state between symbols.
func (d *Decoder) invariants() error {
	if len(d.equations) > maxEquations {
		return fmt.Errorf("%d equations", len(d.equations))
	}
	for i, e := range d.equations {
		n := 0
		for at, c := range e.coefficients {
			if c != 0 {
				n++
				if d.has[at] {
					return fmt.Errorf("equation %d has the known symbol %d", i, at)
				}
			}
		}
		if n != e.unknowns || n < 2 || e.coefficients[e.pivot] != 1 {
			return fmt.Errorf("equation %d: %d of %d unknowns, pivot %d has %d", i, n, e.unknowns, e.pivot, e.coefficients[e.pivot])
		}
		for k, o := range d.equations {
			if k != i && o.coefficients[e.pivot] != 0 {
				return fmt.Errorf("the pivot of equation %d is in %d", i, k)
			}
		}
		if len(e.sum) > d.c.MaxSize+lengthField {
			return fmt.Errorf("a sum of %d bytes", len(e.sum))
		}
	}
	return nil
}

package qpack

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// peers are an encoder and a decoder whose streams deliver when the test says so, in pieces.
type peers struct {
	t                *testing.T
	e                *Encoder
	d                *Decoder
	toDec, toEnc     []byte
	waiting, blocked map[uint64]message
}

type message struct {
	section []byte
	want    []Field
}

func newPeers(t *testing.T, capacity uint64, blocked int) *peers {
	p := &peers{t: t, waiting: map[uint64]message{}, blocked: map[uint64]message{}}
	p.d = NewDecoder(DecoderOptions{MaxCapacity: capacity, MaxBlocked: blocked})
	p.e = NewEncoder(EncoderOptions{MaxCapacity: 1 << 20, MaxBlocked: 100})
	p.e.SetPeer(capacity, uint64(blocked))
	return p
}

func (p *peers) send(stream uint64, fields []Field) {
	section := p.e.Encode(nil, stream, fields)
	p.toDec = p.e.AppendStream(p.toDec)
	p.waiting[stream] = message{section, fields}
	if p.e.table.first > p.e.received {
		p.t.Fatalf("evicted up to %d, acknowledged are %d", p.e.table.first, p.e.received) // RFC 9204 2.1.1
	}
	if p.e.table.size > p.e.table.capacity {
		p.t.Fatalf("table of %d bytes, capacity %d", p.e.table.size, p.e.table.capacity)
	}
}

// arrive delivers a section.
func (p *peers) arrive(stream uint64) {
	m := p.waiting[stream]
	delete(p.waiting, stream)
	p.decode(stream, m)
}

func (p *peers) decode(stream uint64, m message) {
	var s Section
	done, err := p.d.Decode(stream, m.section, &s)
	if err != nil {
		p.t.Fatalf("stream %d: %v", stream, err)
	}
	if !done {
		p.blocked[stream] = m
		return
	}
	if !slices.Equal(s.Fields, m.want) {
		p.t.Fatalf("stream %d: %v, want %v", stream, s.Fields, m.want)
	}
}

func (p *peers) instructions(n int) {
	if err := p.d.Instructions(p.toDec[:n]); err != nil {
		p.t.Fatal(err)
	}
	p.toDec = p.toDec[n:]
	for {
		stream, found := p.d.Unblocked()
		if !found {
			return
		}
		m := p.blocked[stream]
		delete(p.blocked, stream)
		p.decode(stream, m)
		if _, again := p.blocked[stream]; again {
			p.t.Fatalf("stream %d blocks again", stream)
		}
	}
}

func (p *peers) acknowledge(n int) {
	p.toEnc = p.d.AppendStream(p.toEnc)
	n = min(n, len(p.toEnc))
	if err := p.e.Acknowledgments(p.toEnc[:n]); err != nil {
		p.t.Fatal(err)
	}
	p.toEnc = p.toEnc[n:]
}

// cancel resets a stream at the decoder.
func (p *peers) cancel(stream uint64) {
	delete(p.waiting, stream)
	delete(p.blocked, stream)
	p.d.Cancel(stream)
}

// The encoder and the decoder agree whatever the order in which the streams deliver, and however they cut.
func TestPair(t *testing.T) {
	for seed := range uint64(60) {
		runPair(t, seed, 3000)
	}
}

func runPair(t *testing.T, seed uint64, steps int) {
	rng := rand.New(rand.NewPCG(seed, 7))
	capacity := []uint64{0, 100, 400, 1000, 4096, 16384}[rng.IntN(6)]
	p := newPeers(t, capacity, []int{0, 1, 3, 16, 100}[rng.IntN(5)])
	next := uint64(0)
	for range steps {
		switch rng.IntN(6) {
		case 0, 1:
			if len(p.waiting)+len(p.blocked) < 300 {
				p.send(next, randomFields(rng))
				next += 4
			}
		case 2:
			p.instructions(rng.IntN(len(p.toDec) + 1))
		case 3:
			p.acknowledge(rng.IntN(40))
		case 4:
			if stream, found := pick(rng, p.waiting); found {
				p.arrive(stream)
			}
		case 5:
			if stream, found := pick(rng, p.blocked); found && rng.IntN(10) == 0 {
				p.cancel(stream)
			} else if stream, found := pick(rng, p.waiting); found && rng.IntN(20) == 0 {
				p.cancel(stream)
			}
		}
	}
	for stream := range p.waiting {
		p.arrive(stream)
	}
	p.instructions(len(p.toDec))
	p.acknowledge(1 << 20)
	if len(p.blocked) > 0 {
		t.Fatalf("seed %d: %d streams stay blocked", seed, len(p.blocked))
	}
	if len(p.e.outstanding) > 0 || p.e.received != p.e.table.next {
		t.Fatalf("seed %d: %d sections outstanding, %d of %d inserts acknowledged", seed, len(p.e.outstanding), p.e.received, p.e.table.next)
	}
}

func pick(rng *rand.Rand, m map[uint64]message) (uint64, bool) {
	if len(m) == 0 {
		return 0, false
	}
	keys := make([]uint64, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys[rng.IntN(len(keys))], true
}

func randomFields(rng *rand.Rand) []Field {
	fields := browser(fmt.Sprintf("/%d", rng.IntN(50)))
	for range rng.IntN(4) {
		fields = append(fields, Field{
			Name: fmt.Sprintf("x-%d", rng.IntN(30)), Value: fmt.Sprint("value ", rng.IntN(3)), Never: rng.IntN(10) == 0,
		})
	}
	rng.Shuffle(len(fields), func(i, j int) { fields[i], fields[j] = fields[j], fields[i] })
	return fields[rng.IntN(len(fields)):]
}

// The dynamic table does its work: the second request of a browser is a fraction of the first.
func TestSize(t *testing.T) {
	p := newPeers(t, 4096, 16)
	sizes := [3]int{}
	for i := range sizes {
		before := len(p.toDec)
		p.send(uint64(4*i), browser("/"))
		sizes[i] = len(p.waiting[uint64(4*i)].section) + len(p.toDec) - before
		p.instructions(len(p.toDec))
		p.arrive(uint64(4 * i))
		p.acknowledge(100)
	}
	if sizes[0] < 300 || sizes[2] > 40 {
		t.Errorf("requests of %v bytes", sizes)
	}
}

// Entries that are in use leave the table by being duplicated before they are evicted: a stream of changing
// fields does not push out those that repeat.
func TestDraining(t *testing.T) {
	p := newPeers(t, 2048, 16)
	hits := 0
	for i := range uint64(400) {
		p.send(4*i, append(browser("/")[5:12], Field{Name: "x-counter", Value: fmt.Sprint(i / 2)}))
		if i >= 100 && len(p.waiting[4*i].section) < 40 {
			hits++
		}
		p.instructions(len(p.toDec))
		p.arrive(4 * i)
		p.acknowledge(1000)
	}
	if hits < 280 {
		t.Errorf("%d of 300 sections are small", hits)
	}
	if p.e.table.first < 20 {
		t.Errorf("%d entries were evicted", p.e.table.first)
	}
}

// A field that is not to be in tables is in none, and says so to the next hop (RFC 9204 7.1.3).
func TestNever(t *testing.T) {
	p := newPeers(t, 4096, 16)
	for i := range uint64(4) {
		p.send(4*i, []Field{{Name: "authorization", Value: "secret", Never: true}, {Name: "x-secret", Value: "s", Never: true}})
		p.arrive(4 * i)
	}
	if p.e.table.next != 0 {
		t.Errorf("%d entries", p.e.table.next)
	}
}

// Without the peer's permission no section blocks.
func TestNoBlocking(t *testing.T) {
	p := newPeers(t, 4096, 0)
	for i := range uint64(3) {
		p.send(4*i, browser("/"))
		p.arrive(4 * i)
		if len(p.blocked) > 0 {
			t.Fatal("blocked")
		}
	}
	p.instructions(len(p.toDec))
	p.acknowledge(1000)
	p.send(100, browser("/"))
	if n := len(p.waiting[100].section); n > 40 {
		t.Errorf("a section of %d bytes after the acknowledgment", n)
	}
}

func TestSectionLimit(t *testing.T) {
	d := NewDecoder(DecoderOptions{MaxSectionSize: 100})
	var s Section
	e := NewEncoder(EncoderOptions{})
	if done, err := d.Decode(0, e.Encode(nil, 0, []Field{{Name: "a", Value: string(make([]byte, 67))}}), &s); !done || err != nil || s.Size != 100 {
		t.Errorf("100 bytes: %v, %v", done, err)
	}
	for _, n := range []int{68, 101, 5000} {
		for _, c := range []string{"\x01", "a"} { // not in the Huffman code, and in it
			value := make([]byte, n)
			for i := range value {
				value[i] = c[0]
			}
			_, err := d.Decode(0, e.Encode(nil, 0, []Field{{Name: "a", Value: string(value)}}), &s)
			if !errors.Is(err, ErrTooLarge) {
				t.Errorf("%d times %q: %v", n, c, err)
			}
		}
	}
}

// An application may keep strings: Detach gives the next section other memory.
// A section has so many lines at most: pseudo-headers are none, and a cookie is one.
func TestLineLimit(t *testing.T) {
	d, e := NewDecoder(DecoderOptions{MaxLines: 3}), NewEncoder(EncoderOptions{})
	pseudo, cookie, a := Field{Name: ":path", Value: "/"}, Field{Name: "cookie", Value: "c=1"}, Field{Name: "a", Value: "b"}
	for name, c := range map[string]struct {
		fields []Field
		many   bool
	}{
		"three lines":                    {[]Field{pseudo, pseudo, a, a, a}, false},
		"four":                           {[]Field{pseudo, pseudo, a, a, a, a}, true},
		"a cookie in parts, two lines":   {[]Field{cookie, cookie, cookie, cookie, a, a}, false},
		"a cookie in parts, three lines": {[]Field{cookie, cookie, cookie, cookie, a, a, a}, true},
	} {
		var s Section
		_, err := d.Decode(0, e.Encode(nil, 0, c.fields), &s)
		if errors.Is(err, ErrTooLarge) != c.many || !c.many && len(s.Fields) != len(c.fields) || c.many && len(s.Fields) >= len(c.fields) {
			t.Errorf("%s: %v, %d fields", name, err, len(s.Fields))
		}
	}
}

func TestDetach(t *testing.T) {
	d, e := NewDecoder(DecoderOptions{}), NewEncoder(EncoderOptions{})
	var s Section
	decode := func(v string) string {
		if _, err := d.Decode(0, e.Encode(nil, 0, []Field{{Name: "name", Value: v}}), &s); err != nil {
			t.Fatal(err)
		}
		return s.Fields[0].Value
	}
	first := decode("one value")
	s.Detach()
	if decode("two value"); first != "one value" {
		t.Errorf("the value became %q", first)
	}
}

// warm returns an encoder and a decoder that know a browser's fields.
func warm(t testing.TB) (*Encoder, *Decoder) {
	e, d := NewEncoder(EncoderOptions{}), NewDecoder(DecoderOptions{MaxCapacity: 4096, MaxBlocked: 16})
	e.SetPeer(4096, 16)
	var s Section
	for i := range uint64(4) {
		section := e.Encode(nil, i, browser("/"))
		if err := d.Instructions(e.AppendStream(nil)); err != nil {
			t.Fatal(err)
		}
		if done, err := d.Decode(i, section, &s); !done || err != nil {
			t.Fatal(done, err)
		}
		if err := e.Acknowledgments(d.AppendStream(nil)); err != nil {
			t.Fatal(err)
		}
	}
	return e, d
}

func TestAllocations(t *testing.T) {
	e, d := warm(t)
	var s Section
	var section, toEnc, toDec []byte
	stream := uint64(100)
	for _, path := range []string{"/", "/a/longer/path?that=is+a+literal"} {
		fields := browser(path)
		fields = append(fields, Field{Name: "x-never", Value: "Huffman", Never: true})
		fail := ""
		round := func() {
			section = e.Encode(section[:0], stream, fields)
			toDec = e.AppendStream(toDec[:0])
			if d.Instructions(toDec) != nil {
				fail = "instructions"
			}
			if done, err := d.Decode(stream, section, &s); !done || err != nil {
				fail = "section"
			}
			toEnc = d.AppendStream(toEnc[:0])
			if e.Acknowledgments(toEnc) != nil {
				fail = "acknowledgments"
			}
			stream += 4
		}
		for range 10 {
			round()
		}
		if n := testing.AllocsPerRun(200, round); n > 0 || fail != "" {
			t.Errorf("%v allocations; failed: %q", n, fail)
		}
	}
}

func BenchmarkDecodeBrowser(b *testing.B) {
	e, d := warm(b)
	section := e.Encode(nil, 100, browser("/"))
	var s Section
	var out []byte
	b.ReportAllocs()
	for b.Loop() {
		if done, err := d.Decode(100, section, &s); !done || err != nil {
			b.Fatal(done, err)
		}
		out = d.AppendStream(out[:0])
	}
	b.ReportMetric(float64(len(section)), "bytes")
}

func BenchmarkEncodeBrowser(b *testing.B) {
	e, d := warm(b)
	var s Section
	var section, out []byte
	fields := browser("/")
	b.ReportAllocs()
	for b.Loop() {
		section = e.Encode(section[:0], 100, fields)
		if _, err := d.Decode(100, section, &s); err != nil {
			b.Fatal(err)
		}
		out = d.AppendStream(out[:0])
		if err := e.Acknowledgments(out); err != nil {
			b.Fatal(err)
		}
	}
}

// Literals only, in the Huffman code: what a first request, or a peer without a table, costs.
func BenchmarkDecodeLiterals(b *testing.B) {
	e, d := NewEncoder(EncoderOptions{}), NewDecoder(DecoderOptions{})
	section := e.Encode(nil, 0, browser("/"))
	var s Section
	b.ReportAllocs()
	for b.Loop() {
		if _, err := d.Decode(0, section, &s); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(len(section)), "bytes")
}

// Acknowledgments wait for each other, but not those that tell of entries.
func TestPending(t *testing.T) {
	p := newPeers(t, 4096, 16)
	p.send(0, browser("/"))
	p.instructions(len(p.toDec))
	if !p.d.Pending() {
		t.Error("entries have arrived")
	}
	p.arrive(0)
	if !p.d.Pending() {
		t.Error("the acknowledgment tells of entries")
	}
	p.acknowledge(1000)
	if p.d.Pending() {
		t.Error("all was sent")
	}
	exchange := func(stream uint64) {
		p.send(stream, browser("/"))
		p.instructions(len(p.toDec))
		p.arrive(stream)
	}
	exchange(4) // what comes the second time is inserted too
	p.acknowledge(1000)
	n := 0
	for stream := uint64(8); !p.d.Pending(); stream += 4 {
		exchange(stream)
		n++
	}
	if n < 8 || n > lazyBytes {
		t.Errorf("%d acknowledgments are sent at once", n)
	}
}

package cuda

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/gpukern/image"
	"github.com/millrace/millrace/gpukern/literal"
	"github.com/millrace/millrace/internal/kernref"
	"github.com/millrace/millrace/internal/testkit/hostkern"
	"github.com/millrace/millrace/packet"
)

func TestLiteralStructsAreLaidOutAsInC(t *testing.T) {
	cc, err := exec.LookPath("clang++-19")
	if err != nil {
		t.Skip("no clang++-19: run `make deps`")
	}
	source := "#include \"literals.cu\"\n"
	assert := func(format string, args ...any) {
		source += fmt.Sprintf("static_assert("+format+", \"\");\n", args...)
	}
	for name, of := range map[string]reflect.Type{
		"gk_literal_pass":   reflect.TypeFor[literalPass](),
		"gk_text":           reflect.TypeFor[literalWindow](),
		"gk_literal_result": reflect.TypeFor[literalResult](),
	} {
		for i := range of.NumField() {
			f := of.Field(i)
			field := fmt.Sprintf("struct %s, %s", name, strings.ToLower(f.Name))
			assert("offsetof(%s) == %d && sizeof(((struct %s *)0)->%s) == %d", field, f.Offset, name, strings.ToLower(f.Name), f.Type.Size())
		}
		assert("sizeof(struct %s) == %d", name, of.Size())
	}
	assert("GK_TEXT_LINE == %d", textLine)
	assert("GK_TAIL == %d && GK_LITERAL_THREADS == %d", carryOverSize, literalThreads)
	assert("offsetof(struct gk_literals, bits) == %d && offsetof(struct gk_literals, classes) == %d", literalBitsAt, literalClassAt)
	assert("sizeof(struct gk_literals) == %d", literalSetSize)
	assert("sizeof(struct gk_literal_counters) == %d && offsetof(struct gk_literal_counters, pieces) == %d", literalCounters, literalPieces)
	source += "int main() {\n"
	for _, limit := range []int{1, 2, 16, 255} {
		source += fmt.Sprintf("if ((4 << 9) + 5 * gk_literal_warp(%d) != %d) return 1;\n", limit, LiteralSet{Filter: 4 << 9}.shared(limit, 5*32))
	}
	dir := t.TempDir()
	file, program := filepath.Join(dir, "layout.cc"), filepath.Join(dir, "layout")
	if err := os.WriteFile(file, []byte(source+"return 0; }\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	build := exec.Command(cc, "-std=c++17", "-DGK_HOST", "-x", "c++", "-I", hostkern.Sources(), "-o", program, file, filepath.Join(hostkern.Sources(), "host.cc"))
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("Go and C differ:\n%s", out)
	}
	if err := exec.Command(program).Run(); err != nil {
		t.Errorf("LiteralSet.shared differs from gk_literal_warp: %v", err)
	}
}

// imaged is a set where kernels read it.
type imaged struct {
	image image.Image
	mem   []uint64 // the struct
}

func literalSet(t testing.TB, patterns []literal.Pattern) *imaged {
	t.Helper()
	var s *literal.Set
	if patterns != nil {
		var err error
		if s, err = literal.Compile(patterns); err != nil {
			t.Fatal(err)
		}
	}
	m := &imaged{image: s.Image()}
	m.mem = make([]uint64, len(m.image.Struct)/8)
	copy(m.words(), m.image.Struct)
	for _, p := range m.image.Parts {
		m.mem[p.At/8] = address(&p.Data[0])
	}
	return m
}

// set is the set as launches take it.
func (m *imaged) set() LiteralSet {
	return LiteralSetOf(image.Image{Struct: m.words()}, Ptr(address(&m.mem[0])))
}

func (m *imaged) words() []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(&m.mem[0])), 8*len(m.mem))
}

func address[T any](p *T) uint64 { return uint64(uintptr(unsafe.Pointer(p))) }

// aligned returns n zeros on a boundary of 128.
func aligned(n int) []byte {
	mem := make([]byte, n+128)
	return mem[-address(&mem[0])&127:][:n:n]
}

// onDevice returns n zeros on a boundary of 128, in memory that stays where it is.
func onDevice[T any](n int) []T {
	mem := aligned(max(n, 1) * int(unsafe.Sizeof(*new(T))))
	return unsafe.Slice((*T)(unsafe.Pointer(&mem[0])), n)
}

// searched is what gk_literals has found.
type searched struct {
	words  []literal.Occurrence
	n      int // of words
	pieces bool
	texts  int
}

// search runs gk_literals with what p says of texts, for n of them; pieces is what a header pass before says.
func (m *imaged) search(t testing.TB, p literalPass, n, limit int, pieces bool) *searched {
	t.Helper()
	const blocks, threads = 2, 64
	counters, result := onDevice[uint32](literalCounters/4), onDevice[literalResult](1)
	words := onDevice[literal.Occurrence](foundWords(n, limit))
	if pieces {
		counters[literalPieces/4] = 1
	}
	result[0] = literalResult{77, 77}
	p.Set, p.Counters, p.Result, p.Found = address(&m.mem[0]), address(&counters[0]), address(&result[0]), address(&words[0])
	p.N, p.Limit = uint32(n), uint32(limit)
	var pin runtime.Pinner
	defer pin.Unpin()
	pin.Pin(&p)
	hostkern.Open(t, "literals.cu", "headers.cu").Run(t, "gk_literals", unsafe.Pointer(&p), blocks, threads, m.set().shared(limit, threads))
	runtime.KeepAlive(m)
	if slices.Max(counters) != 0 {
		t.Fatalf("counters are left as %d: the next launch begins with 0", counters)
	}
	if int(result[0].Words) > len(words) || result[0].Pieces > 1 {
		t.Fatalf("%+v, with room for %d words", result[0], len(words))
	}
	return &searched{words, int(result[0].Words), result[0].Pieces == 1, n}
}

// of returns the matches of each text.
func (s *searched) of(t testing.TB) [][]literal.Occurrence {
	t.Helper()
	all := make([][]literal.Occurrence, s.texts)
	for w := s.words[:s.n]; len(w) > 0; w = w[1+w[0].End:] {
		if w[0].End == 0 || all[w[0].Rule] != nil {
			t.Fatalf("text %d is told of in vain, or twice", w[0].Rule)
		}
		all[w[0].Rule] = w[1:][:w[0].End]
	}
	return all
}

// counts returns how many matches each text has.
func (s *searched) counts(t testing.TB) (n []int) {
	for _, m := range s.of(t) {
		n = append(n, len(m))
	}
	return n
}

// tell writes the matches into b.
func (s *searched) tell(t testing.TB, b *packet.Batch, list []literalWindow, limit int) {
	s.of(t)
	f := newMatchLists(s.texts, s.words)
	f.write(new(gpukern.MatchWriter), b, list, s.n, limit, nil)
}

// of sets what p says of the arena of b.
func (p *literalPass) of(b *packet.Batch) {
	p.Mem, p.Size = address(&b.Arena.Mem[0]), uint64(len(b.Arena.Mem))
}

// direct has the header pass list the texts of b, searches them, and reports whether there are pieces.
func (m *imaged) direct(t testing.TB, b *packet.Batch, limit int) (pieces bool) {
	t.Helper()
	var p literalPass
	p.of(b)
	d, texts, flag := onDevice[packet.Desc](len(b.D)), onDevice[literalWindow](len(b.D)), onDevice[uint32](1)
	copy(d, b.D)
	lines := onDevice[byte](textLine * len(b.D))
	for i := range texts {
		texts[i].Len = 5 // what must be written
	}
	h := pass{
		mem: Ptr(p.Mem), size: p.Size, desc: Ptr(address(&d[0])), n: uint32(len(d)), ops: gpukern.OpParse | gpukern.OpLiterals,
		shift: uint32(b.Arena.Shift), texts: Ptr(address(&texts[0])), pieces: Ptr(address(&flag[0])), lines: Ptr(address(&lines[0])),
	}
	var pin runtime.Pinner
	defer pin.Unpin()
	pin.Pin(&h)
	hostkern.Open(t, "literals.cu", "headers.cu").Run(t, "gk_headers", unsafe.Pointer(&h), (len(d)+63)/64, 64, 0)
	runtime.KeepAlive(d)
	p.Texts, p.Lines = address(&texts[0]), address(&lines[0])
	kept := slices.Clone(b.Arena.Mem)
	for i := range d { // these bytes come from the line
		from := d[i].Off &^ 15
		clear(b.Arena.Mem[from:min(from+textLine, (d[i].Off+uint32(d[i].Len)+15)&^15)])
	}
	s := m.search(t, p, len(b.D), limit, flag[0] == 1)
	copy(b.Arena.Mem, kept)
	runtime.KeepAlive(texts)
	runtime.KeepAlive(lines)
	s.tell(t, b, nil, limit)
	return s.pieces
}

// listed searches b by a list.
func (m *imaged) listed(t testing.TB, b *packet.Batch, s *gpukern.Streams, limit int) {
	t.Helper()
	var p literalPass
	p.of(b)
	l := windowList{Texts: onDevice[literalWindow](len(b.D)), Tails: onDevice[byte](carryOverSize * len(b.D))}
	l.fill(b, s)
	p.Texts, p.Tails = address(&l.Texts[:1][0]), address(&l.Tails[0])
	found := m.search(t, p, len(l.Texts), limit, false)
	runtime.KeepAlive(l.Tails)
	runtime.KeepAlive(b)
	found.tell(t, b, l.Texts, limit)
}

// maker makes patterns and texts from a seed.
type maker struct{ *rand.Rand }

func newMaker(seed uint64) maker { return maker{rand.New(rand.NewPCG(seed, 7))} }

func (g maker) bytes(n int, letters string) []byte {
	b := make([]byte, n)
	for i := range b {
		if b[i] = byte(g.Uint32()); letters != "" {
			b[i] = letters[g.IntN(len(letters))]
		}
	}
	return b
}

// patterns returns n patterns of lengths from lo to hi, many of few letters.
func (g maker) patterns(n, lo, hi int) kernref.Patterns {
	var all kernref.Patterns
	for i := range n {
		letters := []string{"", "abAB", "ab01"}[g.IntN(3)]
		all = append(all, literal.Pattern{
			Bytes: g.bytes(lo+g.IntN(hi-lo+1), letters), NoCase: g.IntN(2) == 0, Rule: uint32(1 + g.IntN(i+1)),
		})
	}
	return all
}

// text returns n bytes: patterns, near misses and noise.
func (g maker) text(n int, all kernref.Patterns) []byte {
	var out []byte
	for len(out) < n {
		p := bytes.Clone(all[g.IntN(len(all))].Bytes)
		switch g.IntN(5) {
		case 0:
			p[g.IntN(len(p))] ^= 1 << g.IntN(8)
		case 1:
			p = bytes.ToUpper(p)
		case 2:
			p = p[g.IntN(len(p)):]
		case 3:
			p = g.bytes(g.IntN(200), []string{"", "abAB"}[g.IntN(2)])
		}
		out = append(out, p...)
	}
	return out[:n]
}

// one is a text for the kernel: where it lies and what is in front.
type one struct {
	at         int
	tail, text []byte
}

// compareOnes searches texts that lie anywhere, each with a tail, and compares with the plain search.
func compareOnes(t testing.TB, all kernref.Patterns, m *imaged, limit int, ones []one) {
	t.Helper()
	size := 0
	for _, o := range ones {
		size += o.at + len(o.text) + 128
	}
	mem := aligned((size + 127) &^ 127)
	for i := range mem {
		mem[i] = "abAB"[i%4] // what must not count
	}
	list, tails := onDevice[literalWindow](len(ones)), onDevice[byte](carryOverSize*len(ones))
	at := 0
	for i, o := range ones {
		at += o.at
		list[i] = literalWindow{Off: uint32(at &^ 63), From: uint16(at & 63), Len: uint16(copy(mem[at:], o.text))}
		if len(o.tail) > 0 {
			list[i].Tail = uint32(i + 1)
			copy(tails[i*carryOverSize:], o.tail)
			tails[i*carryOverSize+carryOverSize-1] = uint8(len(o.tail))
		}
		at = (at + len(o.text) + 127) &^ 127
	}
	p := literalPass{Mem: address(&mem[0]), Size: uint64(len(mem)), Texts: address(&list[0]), Tails: address(&tails[0])}
	found := m.search(t, p, len(ones), limit, false).of(t)
	runtime.KeepAlive([]any{mem, list, tails})
	for i, o := range ones {
		got := slices.Clone(found[i])
		if len(got) > limit {
			got[limit].Rule = 0
		}
		want := all.Scan(o.tail, o.text, limit, nil)
		for k := range want {
			want[k].End += uint32(list[i].From)
		}
		if d := cmp.Diff(got, want, cmpopts.EquateEmpty()); d != "" {
			t.Fatalf("text %d at %d, %d bytes, tail of %d, limit %d: kernel -, plain +:\n%s", i, o.at, len(o.text), len(o.tail), limit, d)
		}
	}
}

func TestTheKernelFindsWhatAPlainSearchFinds(t *testing.T) {
	for seed := range uint64(12) {
		g := newMaker(seed)
		lo, hi := 3, 64
		if seed%4 > 0 { // one class of anchors alone
			lo, hi = []int{3, 4, 8}[seed%4-1], []int{3, 7, 64}[seed%4-1]
		}
		all := g.patterns(1+g.IntN(80), lo, hi)
		m := literalSet(t, all)
		var ones []one
		for range 60 {
			n := []int{0, 1, 2, 3, 7, 8, 9, 60, 120, 500, 1024, 1500}[g.IntN(12)] + g.IntN(20)
			text := g.text(g.IntN(64)+n, all)
			cut := g.IntN(min(len(text), 63) + 1)
			ones = append(ones, one{g.IntN(128), text[:cut], text[cut:]})
		}
		compareOnes(t, all, m, []int{1, 2, 16, 31, 32, 63, 64, 255}[g.IntN(8)], ones)
	}
}

// TestEveryAlignmentLengthAndTail puts a text anywhere, with its patterns at the begin, at the end and
// across the ends of tiles.
func TestEveryAlignmentAndLength(t *testing.T) {
	g := newMaker(1)
	all := kernref.Patterns{
		{Bytes: []byte("abc"), Rule: 1},
		{Bytes: []byte("bcde"), Rule: 2},
		{Bytes: g.bytes(64, "xyz"), Rule: 3},
		{Bytes: []byte("efghijklmnop"), Rule: 4, NoCase: true},
	}
	m := literalSet(t, all)
	unit := slices.Concat([]byte("abcdefghijklmnop"), all[2].Bytes, []byte("abcDEFGHIJKLMNOP.."))
	text := bytes.Repeat(unit, 12)
	var ones []one
	for at := range 128 {
		from, n := g.IntN(len(unit)), 400+g.IntN(250)
		ones = append(ones, one{at, nil, text[from : from+at+3]}, one{at, text[from : from+at/2], text[from+at/2 : from+n]})
	}
	for n := range 64 {
		ones = append(ones, one{g.IntN(128), text[:n], text[n : n+g.IntN(90)]}, one{g.IntN(128), text[:n], text[n : n+512+g.IntN(90)]})
	}
	compareOnes(t, all, m, 100, ones)
}

// TestAPatternMayBeTheWholeText has patterns whose anchors lie at their begin, at their end or between, and
// texts that have nothing else.
func TestAPatternMayBeTheWholeText(t *testing.T) {
	g := newMaker(6)
	var all kernref.Patterns
	var ones []one
	for i := range 60 {
		n := []int{3, 4, 5, 8, 9, 9, 10, 16, 17, 64}[i%10]
		all = append(all, literal.Pattern{Bytes: g.bytes(n, ""), Rule: uint32(i + 1)})
		ones = append(ones, one{g.IntN(128), nil, all[i].Bytes}, one{g.IntN(128), all[i].Bytes[:n-1], all[i].Bytes[n-1:]})
	}
	compareOnes(t, all, literalSet(t, all), 2, ones)
}

// TestAPatternMayReachFromTileToTile has patterns whose anchors are their last windows, or their first, since
// the rest is what many texts have: it is another text each time, and what a tile before has left in the stage
// is none of it.
func TestAPatternMayReachFromTileToTile(t *testing.T) {
	common, rare := newMaker(5).bytes(56, " etaoinsr\x00"), []byte("\xf1\xe5\xd9\xcb\xb7\xa3\x95\x87")
	all := kernref.Patterns{{Bytes: slices.Concat(common, rare), Rule: 1}, {Bytes: slices.Concat(rare[4:], rare[:4], common), Rule: 2}}
	var ones []one
	for n := 430; n < 530; n++ {
		ones = append(ones, one{0, nil, slices.Concat(bytes.Repeat([]byte("."), n), all[n%2].Bytes, []byte("..."))})
		ones = append(ones, one{0, nil, slices.Concat(bytes.Repeat([]byte("."), n), all[(n+1)%2].Bytes)})
	}
	compareOnes(t, all, literalSet(t, all), 4, ones)
}

// TestAListKeepsItsRoom has texts whose 32 windows at a time match far more often than the list has room for,
// at limits for which nothing but the next warp's memory, or the block's end, lies behind it.
func TestAListKeepsItsRoom(t *testing.T) {
	all := kernref.Patterns{{Bytes: []byte("aaa"), Rule: 1}, {Bytes: []byte("aaaa"), Rule: 2}, {Bytes: []byte("aaaaaaaaa"), Rule: 3}}
	m := literalSet(t, all)
	var ones []one
	for i := range 40 {
		ones = append(ones, one{i, nil, bytes.Repeat([]byte("a"), 40+17*i)})
	}
	for _, limit := range []int{1, 3, 15, 31} {
		compareOnes(t, all, m, limit, ones)
	}
}

func TestManyPatternsAndALongText(t *testing.T) {
	g := newMaker(2)
	all := g.patterns(6000, 5, 40) // the filter is larger than shared memory and folded
	m := literalSet(t, all)
	var ones []one
	for range 4 {
		ones = append(ones, one{g.IntN(128), g.text(63, all), g.text(9000, all)})
	}
	compareOnes(t, all, m, 255, ones)
}

// TestAdversaries are texts in which every window passes the filter: all near misses, or all matches.
func TestAdversaries(t *testing.T) {
	long := append(bytes.Repeat([]byte("a"), 63), 'b')
	all := kernref.Patterns{
		{Bytes: long, Rule: 1}, {Bytes: []byte("aaa!"), Rule: 2}, {Bytes: []byte("aa?"), Rule: 3}, {Bytes: []byte("aaaaaaaac"), Rule: 4},
	}
	near, clump := bytes.Repeat([]byte("a"), 700), bytes.Repeat([]byte("."), 1400)
	copy(clump[500:], bytes.Repeat([]byte("a"), 40))
	ones := []one{{0, nil, near}, {5, near[:63], near}, {77, near[:63], []byte("b")}, {1, near[:62], []byte("b")}, {64, nil, clump}}
	compareOnes(t, all, literalSet(t, all), 16, ones)
	for n := 3; n <= 64; n++ {
		all = append(all, literal.Pattern{Bytes: bytes.Repeat([]byte("A"), n), Rule: uint32(70 - n), NoCase: true})
	}
	m := literalSet(t, all)
	for _, limit := range []int{1, 16, 33, 255} {
		compareOnes(t, all, m, limit, ones)
	}
}

func TestASetOfNothingFindsNothing(t *testing.T) {
	ones := []one{{0, nil, []byte("abc")}, {3, []byte("a"), []byte("bc")}}
	compareOnes(t, nil, literalSet(t, nil), 16, ones)
	compareOnes(t, nil, literalSet(t, []literal.Pattern{}), 16, ones)
}

// udp returns a UDP packet over IPv4 or IPv6.
func udp(v6 bool, payload []byte) []byte {
	p := make([]byte, 42, 70+len(payload))
	if v6 {
		p = p[:62]
		p[12], p[13], p[14], p[20] = 0x86, 0xdd, 0x60, 17
		binary.BigEndian.PutUint16(p[18:], uint16(8+len(payload)))
	} else {
		p[12], p[14], p[23] = 8, 0x45, 17
		binary.BigEndian.PutUint16(p[16:], uint16(28+len(payload)))
	}
	binary.BigEndian.PutUint16(p[len(p)-4:], uint16(8+len(payload)))
	return append(p, payload...)
}

// batchOf lays packets into frames of 2 KiB, at any offset, and does the header pass. The pieces of a
// packet follow each other.
func (g maker) batchOf(t testing.TB, packets ...[][]byte) *packet.Batch {
	t.Helper()
	const shift = 11
	n := 0
	for _, p := range packets {
		n += len(p)
	}
	b := packet.NewBatch(&packet.Arena{Mem: aligned(max(n, 1) << shift), Shift: shift}, n)
	for _, pieces := range packets {
		for i, p := range pieces {
			d := packet.Desc{Off: uint32(len(b.D)<<shift + g.IntN(1<<shift-len(p)+1)), Len: uint16(len(p))}
			if i < len(pieces)-1 {
				d.Flags = packet.FlagMore
			}
			b.Append(d)
			copy(b.Bytes(len(b.D)-1), p)
		}
	}
	if err := gpukern.NewCPU(gpukern.Config{Ops: gpukern.OpParse}).Submit(b); err != nil {
		t.Fatal(err)
	}
	return b
}

// packet returns a packet with a text, padded, cut or damaged.
func (g maker) packet(all kernref.Patterns) []byte {
	p := udp(g.IntN(2) == 0, g.text(g.IntN(600), all))
	switch g.IntN(6) {
	case 0:
		p = append(p, g.bytes(g.IntN(20), "abAB")...)
	case 1:
		p = p[:g.IntN(len(p)+1)]
	case 2:
		p[12+g.IntN(12)] ^= 1 << g.IntN(8)
	case 3:
		if p[14] == 0x45 {
			p[23] = 99 // its text begins at L4
		}
	}
	return p
}

// split cuts p into pieces.
func (g maker) split(p []byte) [][]byte {
	var pieces [][]byte
	for g.IntN(3) == 0 {
		n := g.IntN(len(p) + 1)
		pieces, p = append(pieces, p[:n]), p[n:]
	}
	return append(pieces, p)
}

// sameAsReference compares the matches of b with those of the reference.
func sameAsReference(t testing.TB, b *packet.Batch, all kernref.Patterns, limit int) {
	t.Helper()
	ref := &packet.Batch{Arena: b.Arena, D: slices.Clone(b.D)}
	kernref.Reference(ref, gpukern.OpLiterals, kernref.Lists{Literals: all, MatchLimit: limit})
	if d := cmp.Diff(b.Matches, ref.Matches, cmpopts.EquateEmpty()); d != "" {
		t.Fatalf("kernel -, reference +:\n%s", d)
	}
}

func TestDescriptorsTellTheirTexts(t *testing.T) {
	found := 0
	for seed := range uint64(6) {
		g := newMaker(seed)
		all := g.patterns(40, 3, 20)
		var packets [][][]byte
		for range 80 {
			packets = append(packets, [][]byte{g.packet(all)})
		}
		b := g.batchOf(t, packets...)
		limit := 1 + g.IntN(20)
		if literalSet(t, all).direct(t, b, limit) {
			t.Fatal("packets in one piece need no list")
		}
		sameAsReference(t, b, all, limit)
		found += len(b.Matches)
	}
	if found < 500 {
		t.Errorf("only %d matches", found)
	}
}

func TestPiecesOfAPacketAreOneText(t *testing.T) {
	found := 0
	for seed := range uint64(6) {
		g := newMaker(seed)
		all := g.patterns(40, 3, 20)
		var packets [][][]byte
		for range 50 {
			packets = append(packets, g.split(g.packet(all)))
		}
		b := g.batchOf(t, packets...)
		limit := 1 + g.IntN(20)
		if !literalSet(t, all).direct(t, b, limit) {
			t.Fatal("packets in pieces need a list")
		}
		literalSet(t, all).listed(t, b, nil, limit)
		sameAsReference(t, b, all, limit)
		found += len(b.Matches)
	}
	if found < 500 {
		t.Errorf("only %d matches", found)
	}
}

func TestTheKernelFindsTheLiteralsOfTheGoldenVectors(t *testing.T) {
	text, err := os.ReadFile("../testdata/golden.txt")
	if err != nil {
		t.Fatal(err)
	}
	v, err := kernref.ReadVectors(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	g := newMaker(1)
	b := g.batchOf(t, v.Packets...)
	literalSet(t, v.Lists.Literals).listed(t, b, nil, gpukern.DefaultMatchLimit)
	var want []packet.Match
	at := uint32(0)
	for i, pieces := range v.Packets {
		for _, m := range v.Matches[i] {
			want = append(want, packet.Match{D: at + m.D, Rule: m.Rule, End: m.End})
		}
		at += uint32(len(pieces))
	}
	if d := cmp.Diff(b.Matches, want); d != "" || len(want) == 0 {
		t.Errorf("kernel -, golden +:\n%s", d)
	}
}

func TestTheKernelFollowsStreams(t *testing.T) {
	g := newMaker(3)
	all := g.patterns(60, 3, 64)
	m := literalSet(t, all)
	s, err := gpukern.NewStreams(8)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	history := map[uint32][]byte{}
	for range 8 {
		var packets [][][]byte
		for range 40 {
			p := udp(g.IntN(2) == 0, g.text(g.IntN(70), all))
			p[33] = byte(g.IntN(3)) // who it is for
			if p[14] == 0x60 {
				p[33], p[53] = 0, p[33]
			}
			packets = append(packets, g.split(p))
		}
		b := g.batchOf(t, packets...)
		var want []packet.Match
		i := 0
		for _, pieces := range packets {
			p := slices.Concat(pieces...)
			flow, head := uint32(2+p[33]), 42
			if p[14] == 0x60 {
				flow, head = uint32(6+p[53]), 62
			}
			b.D[i].Flow = flow
			if b.D[i].Payload == 0 { // the first piece ends in the headers
				head = len(p)
			}
			for _, x := range all.Scan(history[flow], p[head:], 16, nil) {
				d, end := i, head+int(x.End)
				for ; end > int(b.D[d].Len); d++ {
					end -= int(b.D[d].Len)
				}
				want = append(want, packet.Match{D: uint32(d), Rule: x.Rule, End: uint32(end)})
			}
			history[flow] = append(history[flow], p[head:]...)
			i += len(pieces)
		}
		m.listed(t, b, s, 16)
		if d := cmp.Diff(b.Matches, want, cmpopts.EquateEmpty()); d != "" {
			t.Fatalf("kernel -, plain +:\n%s", d)
		}
	}
}

// TestTheKernelReadsNothingOutsideOfTheArena puts texts at both ends of mapped memory, and descriptors and
// texts that lie.
func TestTheKernelReadsNothingOutsideOfTheArena(t *testing.T) {
	const page = 4096
	mem, err := unix.Mmap(-1, 0, 3*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(mem)
	for _, at := range []int{0, 2 * page} {
		if err := unix.Mprotect(mem[at:at+page], unix.PROT_NONE); err != nil {
			t.Fatal(err)
		}
	}
	arena := mem[page : 2*page : 2*page]
	all := kernref.Patterns{{Bytes: []byte("abc"), Rule: 1}, {Bytes: []byte("bcdefghi"), Rule: 2}}
	m := literalSet(t, all)
	p := literalPass{Mem: address(&arena[0]), Size: page}
	tails, list, lies := onDevice[byte](carryOverSize), onDevice[literalWindow](3), onDevice[literalWindow](5)
	tails[0], tails[carryOverSize-1] = 'a', 1
	for n := range 70 {
		for i := range arena {
			arena[i] = "abcdefghi"[i%9]
		}
		list[0], list[1] = literalWindow{Off: uint32(page - n), Len: uint16(n)}, literalWindow{Len: uint16(n), Tail: 1}
		list[2] = literalWindow{From: 1, Len: uint16(n)}
		p.Texts, p.Tails = address(&list[0]), address(&tails[0])
		counts := m.search(t, p, len(list), 16, false).counts(t)
		for i, x := range list {
			from := int(x.Off) + int(x.From)
			if want := all.Scan(tails[:x.Tail], arena[from:from+n], 16, nil); counts[i] != len(want) {
				t.Fatalf("%d bytes at %d: %d matches, want %d", n, from, counts[i], len(want))
			}
		}
	}
	copy(lies, []literalWindow{
		{Off: page - 3, Len: 4},
		{Off: page - 3, From: 1, Len: 3},
		{Off: 1 << 31, Len: 4},
		{Off: 1<<32 - 1, From: 65535, Len: 65535},
		{Off: page - 12, Len: 12},
	})
	p.Texts = address(&lies[0])
	if counts := m.search(t, p, len(lies), 16, true).counts(t); fmt.Sprint(counts[:4]) != "[0 0 0 0]" || counts[4] == 0 {
		t.Errorf("texts outside of the arena, and one within: %v matches", counts)
	}
	runtime.KeepAlive([]any{list, lies, tails})
}

func TestListingTextsAllocatesNothing(t *testing.T) {
	g := newMaker(1)
	all := g.patterns(10, 3, 8)
	var packets [][][]byte
	for range 100 {
		packets = append(packets, g.split(udp(false, g.text(100, all))))
	}
	b := g.batchOf(t, packets...)
	for i := range b.D {
		b.D[i].Flow = 2
	}
	s, err := gpukern.NewStreams(1)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	l := windowList{Texts: make([]literalWindow, 0, len(b.D)), Tails: make([]byte, carryOverSize*len(b.D))}
	words := make([]literal.Occurrence, 0, foundWords(len(b.D), 2))
	for i := range b.D {
		words = append(append(words, literal.Occurrence{Rule: uint32(i), End: uint32(1 + i%2)}), make([]literal.Occurrence, 1+i%2)...)
	}
	f := newMatchLists(len(b.D), words)
	var teller gpukern.MatchWriter
	if n := testing.AllocsPerRun(10, func() {
		l.fill(b, s)
		n := 0
		for range l.Texts {
			n += 1 + int(words[n].End)
		}
		f.write(&teller, b, l.Texts, n, 2, nil)
	}); n != 0 {
		t.Errorf("%v allocations a batch", n)
	}
}

func FuzzLiteralsKernel(f *testing.F) {
	g := newMaker(9)
	all := g.patterns(50, 3, 64)
	m := literalSet(f, all)
	for range 20 {
		f.Add(g.text(g.IntN(700), all), byte(g.IntN(64)), byte(g.IntN(128)), byte(g.IntN(256)))
	}
	f.Fuzz(func(t *testing.T, text []byte, tail, at, limit byte) {
		text = text[:min(len(text), 9000)]
		cut := min(int(tail%64), len(text))
		compareOnes(t, all, m, max(int(limit), 1), []one{{int(at % 128), text[:cut], text[cut:]}})
	})
}

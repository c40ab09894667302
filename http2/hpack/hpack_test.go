package hpack

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	xhpack "golang.org/x/net/http2/hpack"

	"github.com/millrace/millrace/semantics"
)

func unhex(s string) []byte {
	b, err := hex.DecodeString(strings.NewReplacer(" ", "", "\n", "", "\t", "").Replace(s))
	if err != nil {
		panic(err)
	}
	return b
}

func text(fields []semantics.Field) string {
	var b strings.Builder
	for _, f := range fields {
		fmt.Fprintf(&b, "%s: %s\n", f.Name, f.Value)
	}
	return b.String()
}

// RFC 7541 C.4 and C.6: requests, and responses that evict, in the Huffman code.
func TestVectorsOfTheRFC(t *testing.T) {
	for _, c := range []struct {
		capacity uint64
		blocks   [][2]string
		size     uint64
	}{
		{4096, [][2]string{
			{"8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff", ":method: GET\n:scheme: http\n:path: /\n:authority: www.example.com\n"},
			{"8286 84be 5886 a8eb 1064 9cbf", ":method: GET\n:scheme: http\n:path: /\n:authority: www.example.com\ncache-control: no-cache\n"},
			{
				"8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
				":method: GET\n:scheme: https\n:path: /index.html\n:authority: www.example.com\ncustom-key: custom-value\n",
			},
		}, 164},
		{256, [][2]string{
			{
				"4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 2d1b ff6e 919d 29ad 1718 63c7 8f0b 97c8 e9ae 82ae 43d3",
				":status: 302\ncache-control: private\ndate: Mon, 21 Oct 2013 20:13:21 GMT\nlocation: https://www.example.com\n",
			},
			{"4883 640e ffc1 c0bf", ":status: 307\ncache-control: private\ndate: Mon, 21 Oct 2013 20:13:21 GMT\nlocation: https://www.example.com\n"},
			{
				"88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab 77ad 94e7 821d d7f2 e6c7 b335 dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f 9587 3160 65c0 03ed 4ee5 b106 3d50 07",
				":status: 200\ncache-control: private\ndate: Mon, 21 Oct 2013 20:13:22 GMT\nlocation: https://www.example.com\ncontent-encoding: gzip\n" +
					"set-cookie: foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1\n",
			},
		}, 215},
	} {
		d := NewDecoder(c.capacity, 1<<16)
		d.table.capacity = c.capacity
		var s Section
		for _, b := range c.blocks {
			if err := d.Decode(unhex(b[0]), &s); err != nil || text(s.Fields) != b[1] {
				t.Errorf("%s: %v\n%s", b[0], err, text(s.Fields))
			}
		}
		if d.table.size != c.size {
			t.Errorf("the table has %d bytes, want %d", d.table.size, c.size)
		}
	}
}

// A field that exceeds the capacity empties the table, and is not in it (RFC 7541 4.4).
func TestLargeEntry(t *testing.T) {
	d := NewDecoder(4096, 1<<16)
	var s Section
	b := AppendInteger(nil, 0x20, 5, 64)
	b = AppendString(AppendString(append(b, 0x40), "a"), "b")
	b = AppendString(AppendString(append(b, 0xbe, 0x40), "name"), strings.Repeat("v", 100))
	if err := d.Decode(b, &s); err != nil || len(s.Fields) != 3 {
		t.Fatal(err, len(s.Fields))
	}
	if err := d.Decode([]byte{0xbe}, &s); !errors.Is(err, ErrIndex) || d.table.size != 0 {
		t.Errorf("%v, %d bytes", err, d.table.size)
	}
}

func TestRefusedBlocks(t *testing.T) {
	for name, c := range map[string]struct {
		block string
		want  error
	}{
		"index 0":                                   {"80", ErrIndex},
		"an index beyond the static table":          {"be", ErrIndex},
		"a name beyond the static table":            {"7e 01 61", ErrIndex},
		"a cut index":                               {"ff", ErrCut},
		"an index that is too large":                {"ff ff ff ff ff ff ff ff ff ff ff", ErrInteger},
		"a cut name":                                {"40 03 61 62", ErrCut},
		"a cut value":                               {"82 04 03 61", ErrCut},
		"no value":                                  {"44", ErrCut},
		"a table size above the setting":            {"3f e2 1f", ErrResize},
		"a table size after a field (RFC 7541 4.2)": {"82 20", ErrResize},
		"three table sizes":                         {"20 21 22", ErrResize},
		"padding of zeros":                          {"44 81 18", ErrHuffman},
		"EOS":                                       {"44 84 ff ff ff ff", ErrHuffman},
	} {
		var s Section
		if err := NewDecoder(4096, 1<<16).Decode(unhex(c.block), &s); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

// After a section that exceeds the limit the table is as the peer's, and no time goes into fields that are discarded.
func TestTooLarge(t *testing.T) {
	d := NewDecoder(4096, 1000)
	var s Section
	value := strings.Repeat("v", 3000)
	block := append(AppendString(AppendString([]byte{0x40}, "big"), value), bytes.Repeat([]byte{0xbe}, 1<<16)...)
	block = append(AppendString(AppendString(append(block, 0x40), "new"), "entry"), 0xbe)
	if err := d.Decode(block, &s); !errors.Is(err, ErrTooLarge) || len(s.Fields) != 0 {
		t.Fatalf("%v, %d fields", err, len(s.Fields))
	}
	if cap(s.text) > 1<<16 {
		t.Errorf("%d bytes are kept", cap(s.text))
	}
	if err := d.Decode([]byte{0xbe}, &s); err != nil || text(s.Fields) != "new: entry\n" {
		t.Errorf("%v %s", err, text(s.Fields))
	}
}

// A section has so many lines at most. Those beyond are not kept, and the table is as the peer's after them.
func TestTooManyLines(t *testing.T) {
	d := NewDecoder(4096, 1<<16)
	d.MaxLines = 3
	line := func(b []byte, name string) []byte { return AppendString(AppendString(append(b, 0x40), name), "v") }
	crumbs := append(line(nil, "cookie"), bytes.Repeat([]byte{0xbe}, 20)...)
	var s Section
	for name, c := range map[string]struct {
		block []byte
		want  int
	}{
		"pseudo-headers and three lines": {line(line(line([]byte{0x82, 0x84, 0x87}, "a"), "b"), "c"), 6},
		"a cookie in parts, two lines":   {line(line(crumbs, "a"), "b"), 23},
		"four lines":                     {line(line(line(line(nil, "a"), "b"), "c"), "last"), 0},
		"a cookie in parts, three lines": {line(line(line(crumbs, "a"), "b"), "last"), 0},
		"very many":                      {line(append(line(nil, "a"), bytes.Repeat([]byte{0xbe}, 1000)...), "last"), 0},
	} {
		s = Section{}
		err := d.Decode(c.block, &s)
		if many := c.want == 0; errors.Is(err, ErrTooLarge) != many || len(s.Fields) != c.want {
			t.Errorf("%s: %v, %d fields", name, err, len(s.Fields))
		}
		if cap(s.Fields) > 40 {
			t.Errorf("%s: room for %d fields", name, cap(s.Fields))
		}
		if err := d.Decode([]byte{0xbe}, &s); err != nil || c.want == 0 && text(s.Fields) != "last: v\n" {
			t.Errorf("after %s: %v %s", name, err, text(s.Fields))
		}
	}
}

// x/net's encoder, whose table changes its size, and the fields that it was given.
func TestAgainstTheEncoderOfXNet(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 3))
		var out bytes.Buffer
		e := xhpack.NewEncoder(&out)
		e.SetMaxDynamicTableSizeLimit(8192)
		d := NewDecoder(8192, 1<<20)
		var s Section
		for range 1 + r.IntN(60) {
			if r.IntN(8) == 0 {
				e.SetMaxDynamicTableSize(uint32(r.IntN(8193)))
			}
			out.Reset()
			var want []semantics.Field
			for range r.IntN(20) {
				f := randomField(r)
				want = append(want, f)
				if err := e.WriteField(xhpack.HeaderField{Name: f.Name, Value: f.Value, Sensitive: f.Never}); err != nil {
					t.Fatal(err)
				}
			}
			if err := d.Decode(out.Bytes(), &s); err != nil || text(s.Fields) != text(want) || s.Size != semantics.Size(want) {
				t.Fatalf("seed %d: %v\n%s\nwant\n%s", seed, err, text(s.Fields), text(want))
			}
			for i := range want {
				if s.Fields[i].Never != want[i].Never {
					t.Fatalf("seed %d: field %d: %v", seed, i, s.Fields[i].Never)
				}
			}
			if cap(d.table.bytes) > 4*8192 || d.table.size > d.table.capacity {
				t.Fatalf("the table keeps %d bytes, of a capacity of %d", cap(d.table.bytes), d.table.capacity)
			}
		}
	}
}

func randomField(r *rand.Rand) semantics.Field {
	names := []string{"cookie", ":path", "x-a", "x-b", strings.Repeat("n", r.IntN(50)+1), "content-type"}
	return semantics.Field{Name: names[r.IntN(len(names))], Value: strings.Repeat("v", r.IntN(4)*r.IntN(300)) + fmt.Sprint(r.IntN(30)), Never: r.IntN(9) == 0}
}

// What AppendField writes, x/net's decoder reads.
func TestAppendField(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 5))
	fields := append([]semantics.Field{{Name: "authorization", Value: "secret", Never: true}}, static[:]...)
	for range 500 {
		fields = append(fields, randomField(r))
	}
	var block []byte
	for i := range fields {
		block = AppendField(block, &fields[i])
	}
	got, err := xhpack.NewDecoder(4096, nil).DecodeFull(block)
	if err != nil || len(got) != len(fields) {
		t.Fatal(err, len(got))
	}
	for i, f := range got {
		if f.Name != fields[i].Name || f.Value != fields[i].Value || f.Sensitive != fields[i].Never {
			t.Errorf("%+v became %v", fields[i], f)
		}
	}
	if b := AppendField(nil, &semantics.Field{Name: ":method", Value: "GET"}); len(b) != 1 {
		t.Errorf("GET takes %d bytes", len(b))
	}
}

// FuzzDecoder compares with x/net's decoder, over several blocks of one connection.
func FuzzDecoder(f *testing.F) {
	f.Add(unhex("8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff"), uint8(9))
	f.Add(unhex("3f e1 1f 20 40 01 61 01 62 be"), uint8(3))
	f.Fuzz(func(t *testing.T, p []byte, cut uint8) {
		ours, theirs := NewDecoder(4096, 1<<20), xhpack.NewDecoder(4096, nil)
		var s Section
		for len(p) > 0 {
			block := p[:min(int(cut)+1, len(p))]
			p = p[len(block):]
			want, theirErr := theirs.DecodeFull(block)
			err := ours.Decode(block, &s)
			if err != nil && theirErr == nil && !errors.Is(err, ErrResize) && !errors.Is(err, ErrInteger) {
				t.Fatalf("% x: %v, x/net reads %v", block, err, want)
			}
			if theirErr != nil && block[0]&0xE0 == 0x20 {
				return // x/net takes a second size at the start of a block for one that is not
			}
			if err == nil && theirErr != nil {
				t.Fatalf("% x: x/net: %v, and here %s", block, theirErr, text(s.Fields))
			}
			if err != nil {
				return
			}
			if len(want) != len(s.Fields) {
				t.Fatalf("% x: %d fields, x/net has %d", block, len(s.Fields), len(want))
			}
			for i, f := range want {
				if f.Name != s.Fields[i].Name || f.Value != s.Fields[i].Value || f.Sensitive != s.Fields[i].Never {
					t.Fatalf("% x: %+v, x/net: %v", block, s.Fields[i], f)
				}
			}
		}
	})
}

func TestNothingIsAllocated(t *testing.T) {
	var out bytes.Buffer
	e := xhpack.NewEncoder(&out)
	d := NewDecoder(4096, 1<<16)
	var s Section
	r := rand.New(rand.NewPCG(1, 1))
	var blocks [][]byte
	for range 200 {
		out.Reset()
		for range 10 {
			f := randomField(r)
			e.WriteField(xhpack.HeaderField{Name: f.Name, Value: f.Value}) //nolint:errcheck // a bytes.Buffer
		}
		blocks = append(blocks, bytes.Clone(out.Bytes()))
	}
	i := 0
	allocs := testing.AllocsPerRun(190, func() {
		if err := d.Decode(blocks[i], &s); err != nil {
			t.Fatal(err)
		}
		i++
	})
	if allocs > 0 {
		t.Errorf("%v allocations for a block", allocs)
	}
}

func BenchmarkDecode(b *testing.B) {
	fields := []semantics.Field{
		{Name: ":method", Value: "GET"},
		{Name: ":scheme", Value: "https"},
		{Name: ":authority", Value: "shop.example.org"},
		{Name: ":path", Value: "/catalogue/items/4711?page=2&sort=price"},
		{Name: "user-agent", Value: "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36"},
		{Name: "accept", Value: "text/html,application/xhtml+xml,*/*;q=0.8"},
		{Name: "accept-encoding", Value: "gzip, deflate, br"},
	}
	var block []byte
	for i := range fields {
		block = AppendField(block, &fields[i])
	}
	b.Run("literals", func(b *testing.B) {
		d, s := NewDecoder(4096, 1<<16), Section{}
		b.ReportAllocs()
		for b.Loop() {
			if err := d.Decode(block, &s); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("literals/x-net", func(b *testing.B) {
		d := xhpack.NewDecoder(4096, func(xhpack.HeaderField) {})
		b.ReportAllocs()
		for b.Loop() {
			if _, err := d.Write(block); err != nil {
				b.Fatal(err)
			}
		}
	})
}

package encode

import (
	"bytes"
	stdgzip "compress/gzip"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"
)

// decoder reads what an encoder of a coding makes.
func decoder(t testing.TB, coding string, r io.Reader) io.Reader {
	t.Helper()
	var d io.Reader
	var err error
	switch coding {
	case "gzip":
		d, err = stdgzip.NewReader(r)
	case "br":
		d = brotli.NewReader(r)
	case "zstd":
		d, err = zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(8<<20))
	}
	if err != nil {
		t.Fatal(err)
	}
	return d
}

var all = []string{"gzip", "br", "zstd"}

// text returns words that compress as those of pages do.
func text(r *rand.Rand, n int) []byte {
	words := strings.Fields("a the of pool backend listener route request response header content gateway address client server")
	var b bytes.Buffer
	for b.Len() < n {
		fmt.Fprintf(&b, "<p>%s %d</p>\n", words[r.IntN(len(words))], r.IntN(1000))
	}
	return b.Bytes()[:n]
}

func TestContentComesOutAsItWas(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	p := &Pool{Most: 1}
	for _, coding := range all {
		for _, size := range []int{0, 1, 100, 64 << 10, 3 << 20} { // the window is smaller than the last
			want := text(r, size)
			e := p.Get(coding)
			if e == nil || e.Coding() != coding {
				t.Fatalf("%s: no encoder", coding)
			}
			var out []byte
			for rest := want; len(rest) > 0; {
				n := min(len(rest), 1+r.IntN(40_000))
				if out = e.Append(out, rest[:n]); r.IntN(3) == 0 {
					out = e.Flush(out)
				}
				rest = rest[n:]
			}
			out = e.End(out)
			p.Put(e)
			got, err := io.ReadAll(decoder(t, coding, bytes.NewReader(out)))
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s of %d bytes: %d came out, %v", coding, size, len(got), err)
			}
			if size >= 64<<10 && len(out) > size/3 {
				t.Errorf("%s: %d bytes became %d", coding, size, len(out))
			}
		}
	}
}

// TestAFlushIsReadable has the client read each part before the next is there.
func TestAFlushIsReadable(t *testing.T) {
	for _, coding := range all {
		p := &Pool{Most: 1}
		e := p.Get(coding)
		r, w := io.Pipe()
		go func() { _, _ = w.Write(e.Flush(e.Append(nil, []byte("event 0")))) }()
		d := decoder(t, coding, r)
		for i := range 3 {
			b := make([]byte, 7)
			if _, err := io.ReadFull(d, b); err != nil || string(b) != fmt.Sprintf("event %d", i) {
				t.Fatalf("%s: %q, %v", coding, b, err)
			}
			part := e.Flush(e.Append(nil, fmt.Appendf(nil, "event %d", i+1)))
			if again := e.Flush(nil); len(again) > 0 {
				t.Errorf("%s: a flush of nothing makes %d bytes", coding, len(again))
			}
			go func() { _, _ = w.Write(part) }()
		}
		_ = r.Close()
	}
}

func TestPoolsAreBounded(t *testing.T) {
	p := &Pool{Most: 2}
	a, b := p.Get("gzip"), p.Get("br")
	if a == nil || b == nil || p.Get("zstd") != nil || p.Used() != 2 {
		t.Fatal("a pool of two has another number")
	}
	a.Append(nil, []byte("left over"))
	p.Put(a)
	if c := p.Get("gzip"); c != a {
		t.Error("an encoder is not used again")
	} else if out := c.End(c.Append(nil, []byte("new"))); true {
		got, err := io.ReadAll(decoder(t, "gzip", bytes.NewReader(out)))
		if err != nil || string(got) != "new" {
			t.Errorf("after a response that was cut: %q, %v", got, err)
		}
	}
	p.Put(a)
	if p.Get("deflate") != nil || (&Pool{}).Get("gzip") != nil {
		t.Error("an encoder out of nothing")
	}
	for range 10 { // more than are kept
		p.Put(&Encoder{coding: "x"})
	}
	if n := len(p.free["x"]); n != keep {
		t.Errorf("%d are kept", n)
	}
}

func BenchmarkEncode(b *testing.B) {
	content := text(rand.New(rand.NewPCG(1, 2)), 64<<10)
	for _, coding := range all {
		b.Run(coding, func(b *testing.B) {
			p := &Pool{Most: 1}
			b.SetBytes(int64(len(content)))
			var out []byte
			for b.Loop() {
				e := p.Get(coding)
				out = e.End(e.Append(out[:0], content))
				p.Put(e)
			}
			b.ReportMetric(float64(len(content))/float64(len(out)), "ratio")
		})
	}
}

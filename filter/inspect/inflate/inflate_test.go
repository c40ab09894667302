package inflate

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
)

// packed compresses a text in each format and at each level.
func packed(t testing.TB, text string, level int) map[string][]byte {
	t.Helper()
	list := map[string][]byte{}
	for name, open := range map[string]func(io.Writer) (io.WriteCloser, error){
		"gzip":    func(w io.Writer) (io.WriteCloser, error) { return gzip.NewWriterLevel(w, level) },
		"zlib":    func(w io.Writer) (io.WriteCloser, error) { return zlib.NewWriterLevel(w, level) },
		"deflate": func(w io.Writer) (io.WriteCloser, error) { return flate.NewWriter(w, level) },
	} {
		var b bytes.Buffer
		w, err := open(&b)
		if err != nil {
			t.Fatal(err)
		}
		for part := range strings.SplitAfterSeq(text, "\n") { // several blocks
			io.WriteString(w, part)
			if f, ok := w.(interface{ Flush() error }); ok && len(part)%3 == 0 {
				f.Flush()
			}
		}
		w.Close()
		list[name] = b.Bytes()
	}
	return list
}

func formatOf(name string) inflateFormat {
	if name == "gzip" {
		return formatGzip
	}
	return formatDeflate
}

// What the standard library has compressed is decoded in any segmentation, and each byte is there as soon as its symbol is.
func TestInflateInAnySegmentation(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	var text strings.Builder
	for range 300 {
		fmt.Fprintf(&text, "%s line %d %x\n", strings.Repeat("ab", rng.IntN(40)), rng.IntN(1000), rng.Uint64())
	}
	for _, level := range []int{flate.NoCompression, flate.BestSpeed, flate.BestCompression, flate.HuffmanOnly} {
		for name, b := range packed(t, text.String(), level) {
			for _, size := range []int{1, 2, 7, 1400, len(b)} {
				z := &inflater{format: formatOf(name), limit: 1 << 20}
				for at := 0; at < len(b); at += size {
					z.write(b[at:min(at+size, len(b))])
				}
				if string(z.out) != text.String() || z.state == inflateFailed || name == "deflate" && z.state != inflateDone {
					t.Errorf("%s, level %d, segments of %d: %d bytes of %d, state %d", name, level, size, len(z.out), text.Len(), z.state)
				}
			}
		}
	}
}

// Damaged input ends in the same text as in the standard library, which reads it at once, and never beyond the limit.
func TestInflateDamaged(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 6))
	b := packed(t, strings.Repeat("some text, and again some text\n", 40), flate.BestCompression)["deflate"]
	for range 3000 {
		damaged := bytes.Clone(b)
		for range 1 + rng.IntN(3) {
			damaged[rng.IntN(len(damaged))] ^= 1 << rng.IntN(8)
		}
		z := &inflater{format: formatDeflate, limit: 1 << 12, state: inflateBlock}
		for at := range damaged {
			z.write(damaged[at : at+1])
		}
		want, err := io.ReadAll(io.LimitReader(flate.NewReader(bytes.NewReader(damaged)), 1<<12))
		if err == nil && !bytes.Equal(z.out, want) || !bytes.HasPrefix(z.out, want) && len(z.out) >= len(want) || len(z.out) > 1<<12 {
			t.Fatalf("%x: %q, the library has %q, %v", damaged, z.out, want, err)
		}
	}
}

func TestInflateMembers(t *testing.T) {
	a, b := packed(t, "first ", 6)["gzip"], packed(t, "second", 6)["gzip"]
	var named bytes.Buffer
	w := gzip.NewWriter(&named)
	w.Name, w.Comment, w.Extra = "name", "comment", []byte("extra")
	io.WriteString(w, "third")
	w.Close()
	for _, c := range []struct{ in, want string }{
		{string(a) + string(b), "first second"}, {named.String(), "third"}, {string(a) + "garbage", "first "}, {"garbage", ""}, {"", ""},
	} {
		z := &inflater{limit: 100}
		for i := range len(c.in) {
			z.write([]byte(c.in[i : i+1]))
		}
		if string(z.out) != c.want {
			t.Errorf("%q: %q", c.in, z.out)
		}
	}
}

// Any bytes, in any segmentation, have one outcome.
func FuzzInflate(f *testing.F) {
	for _, b := range packed(f, "some text\nsome text\n", 9) {
		f.Add(b, uint8(3), true)
		f.Add(b, uint8(1), false)
	}
	f.Fuzz(func(t *testing.T, b []byte, size uint8, zip bool) {
		format := formatDeflate
		if zip {
			format = formatGzip
		}
		whole, parts := &inflater{format: format, limit: 1 << 14}, &inflater{format: format, limit: 1 << 14}
		whole.write(b)
		n := max(int(size), 1)
		for at := 0; at < len(b); at += n {
			parts.write(b[at:min(at+n, len(b))])
		}
		if !bytes.Equal(whole.out, parts.out) || (whole.state == inflateFailed) != (parts.state == inflateFailed) {
			t.Fatalf("%q in state %d at once, %q in state %d in parts of %d", whole.out, whole.state, parts.out, parts.state, n)
		}
	})
}

package inflate

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"strings"
	"testing"
)

// gzipped returns what a text is behind n codings.
func gzipped(t *testing.T, text []byte, n int) []byte {
	t.Helper()
	for range n {
		var b bytes.Buffer
		w, _ := gzip.NewWriterLevel(&b, flate.BestCompression)
		if _, err := w.Write(text); err != nil {
			t.Fatal(err)
		}
		w.Close()
		text = b.Bytes()
	}
	return text
}

// Decompression bombs: each layer of codings has at most the limit, however much is behind it, and what comes after that is not read. A
// body with more layers than are decoded is reported as unread.
func TestDecompressionBombs(t *testing.T) {
	const limit = 100 << 10
	zeros := make([]byte, 4<<20)
	for _, c := range []struct {
		name, codings string
		body          []byte
		text          int
	}{
		{"a ratio of a thousand", "gzip", gzipped(t, zeros, 1), limit},
		{"two layers", "gzip, gzip", gzipped(t, zeros, 2), limit},
		{"eight layers", strings.Repeat("gzip,", maxCodings), gzipped(t, zeros, maxCodings), limit},
		{"many members", "gzip", bytes.Repeat(gzipped(t, zeros[:limit], 1), 5000), limit},
		{"members without content", "gzip", bytes.Repeat(gzipped(t, nil, 1), 5000), 0},
		{"blocks without content", "deflate", bytes.Repeat([]byte{0, 0, 0, 0xff, 0xff}, 20000), 0},
		{"a name without an end", "gzip", append([]byte("\x1f\x8b\x08\x08\x00\x00\x00\x00\x00\x03"), bytes.Repeat([]byte("n"), 1<<20)...), 0},
	} {
		for _, segment := range []int{1400, len(c.body)} {
			z, unread := NewCoding([]byte(c.codings), limit)
			if z == nil || unread {
				t.Fatalf("%s is not decoded", c.name)
			}
			most := 0
			for rest := c.body; len(rest) > 0; {
				n := min(segment, len(rest))
				z.Write(rest[:n])
				rest, most = rest[n:], max(most, z.Size())
			}
			// A buffer that grows has up to twice of what is in it, and the input of a segment stays where the text has its limit.
			if bound := len(z.layers) * (2*limit + 2*maxHeader + 2*segment + inflaterSize); len(z.Text()) != c.text || most > bound {
				t.Errorf("%s, segments of %d: %d bytes of text, %d allocated, at most %d and %d", c.name, segment, len(z.Text()), most, c.text, bound)
			}
		}
	}
	if z, unread := NewCoding([]byte(strings.Repeat("gzip,", maxCodings+1)), limit); z != nil || !unread {
		t.Error("more layers than are decoded are not reported")
	}
}

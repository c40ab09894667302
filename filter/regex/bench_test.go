package regex

import (
	"bytes"
	"testing"
)

// BenchmarkFind searches text by patterns of which each spends its time in another kind of instruction.
func BenchmarkFind(b *testing.B) {
	text := bytes.Repeat([]byte("GET /index.php?id=123&name=abc HTTP/1.1\r\nUser-Agent: x\r\n"), 20)
	for _, bench := range []struct{ name, pattern string }{
		{"alternatives", "(?:union|select|insert|update|delete)[+ ]"},
		{"groups", "(a|b|c)+(d|e)=([0-9]+);"},
		{"sets", "[a-z]{3}=[0-9]+&[a-z]+=[x-z]"},
		{"look-ahead", "id=(?!123)[0-9]+"},
	} {
		b.Run(bench.name, func(b *testing.B) {
			r, err := Compile(bench.pattern, 0)
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(int64(len(text)))
			var m Machine
			for b.Loop() {
				if _, err := m.Find(r, text, 0); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

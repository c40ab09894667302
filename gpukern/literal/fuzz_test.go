package literal

import (
	"slices"
	"testing"
)

// FuzzScan reads patterns and a text from bytes: as many patterns as the first says, each behind a byte that
// tells its length and case, and a text in which 0xfe and a number stand for a pattern.
func FuzzScan(f *testing.F) {
	f.Add([]byte("\x02\x05abcdef\x83abc"), []byte("xx\xfe\x00abcABC"), 3, 0)
	f.Add([]byte("\x03\x03aaa\x04aaaa\x09aaaaaaaaa"), []byte("aaaaaaaaaaaaaaaaaaaaaaaa"), 7, 5)
	f.Add([]byte("\x02\x40"+string(make([]byte, 64))+"\x83@`A"), []byte("\xfe\x00\xfe\x01\x00\x00"), 1, 1)
	f.Fuzz(func(t *testing.T, patterns, code []byte, cut, limit int) {
		set := fuzzedSet(patterns)
		if len(set) == 0 || len(code) > 300 {
			return
		}
		var text []byte
		for i := 0; i < len(code); i++ {
			if code[i] != 0xfe || i+1 == len(code) {
				text = append(text, code[i])
				continue
			}
			i++
			text = append(text, set[int(code[i])%len(set)].Bytes...)
		}
		cut = min(max(cut, 0), len(text))
		s := compile(t, set)
		agree(t, s, set, text[:cut], text[cut:], min(limit, 1000))
		whole := Reference(set).Scan(nil, text, 0, nil)
		if got := newKernel(t, s.Image()).scan(text); !slices.Equal(got, whole) {
			t.Fatalf("the image finds %v in %q, want %v", got, text, whole)
		}
	})
}

func fuzzedSet(b []byte) (set []Pattern) {
	if len(b) == 0 {
		return nil
	}
	for n, b := b[0]%16, b[1:]; n > 0 && len(b) > 1; n-- {
		size := min(max(int(b[0]&0x7f), MinLen), MaxLen)
		if len(b) < 1+size {
			return set
		}
		set = append(set, Pattern{b[1 : 1+size], b[0]&0x80 != 0, uint32(1 + len(set)/2)})
		b = b[1+size:]
	}
	return set
}

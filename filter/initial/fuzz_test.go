package initial

import "testing"

// The frames of an Initial packet are a peer's, and bounded in what is kept of them.
func FuzzFrames(f *testing.F) {
	f.Add([]byte{6, 0, 4, 1, 0, 0, 0, 2, 0, 0, 0, 0, 6, 2, 1, 9})
	f.Fuzz(func(t *testing.T, p []byte) {
		var i Collector
		for range 3 {
			i.frames(p)
			i.Hello()
		}
		if len(i.data) > MaxHello || len(i.have) > maxSpans {
			t.Fatalf("%d bytes, %d spans", len(i.data), len(i.have))
		}
		for _, s := range i.have {
			if s.from >= s.to || s.to > len(i.data) || s.from < 0 {
				t.Fatalf("%v of %d", s, len(i.data))
			}
		}
	})
}

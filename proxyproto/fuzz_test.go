package proxyproto

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/internal/testkit/cut"
)

// FuzzParse parses the same at different cuts, and what is read of a header is what Append says again.
func FuzzParse(f *testing.F) {
	for _, test := range accepted {
		f.Add([]byte(test.in+"data"), uint64(1))
	}
	for _, test := range refused {
		f.Add([]byte(test.in), uint64(2))
	}
	f.Fuzz(func(t *testing.T, in []byte, seed uint64) {
		h, n, err := Parse(in, 0)
		if n > len(in) || n > 0 && err != nil || n > DefaultLimit {
			t.Fatalf("%d of %d bytes, %v", n, len(in), err)
		}
		cut.Feed(in, cut.Random(seed), func(p []byte, last bool) ([]byte, bool) {
			got, m, gotErr := Parse(p, 0)
			done := m > 0 || gotErr != nil
			if (done || last) && (m != n || gotErr != err || !cmp.Equal(got, h, addresses)) {
				t.Fatalf("whole: %d, %v, %+v\nof %d bytes: %d, %v, %+v", n, err, h, len(p), m, gotErr, got)
			}
			return p, !done
		})
		if n > 0 {
			appendsTheSame(t, h)
		}
	})
}

func appendsTheSame(t *testing.T, h Header) {
	out, err := h.Append(nil)
	if err != nil {
		t.Fatalf("%+v: %v", h, err)
	}
	again, n, err := Parse(out, 1<<17)
	if err != nil || n != len(out) {
		t.Fatalf("%q: %v", out, err)
	}
	if h.Checksum { // it is the last now
		h.TLVs, again.TLVs = nil, nil
	}
	if !cmp.Equal(h, again, addresses) {
		t.Fatalf("%+v\n%q\n%+v", h, out, again)
	}
}

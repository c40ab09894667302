package replay

import (
	"context"
	"net/netip"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/filter"
	"github.com/millrace/millrace/wire"
)

// says makes a TCP segment with a text.
func says(from, to netip.AddrPort, text string) []byte {
	s := segment(wire.ProtoTCP, from, to, len(text))
	copy(s[20:], text)
	return ether(wire.EtherTypeIPv4, v4(wire.ProtoTCP, from, to, 0, nil, s))
}

// TestLiteralsAreFoundAlongFlows has literals in two and in three packets of a flow, with those of the other
// direction and of another flow between them, which have no part in it.
func TestLiteralsAreFoundAlongFlows(t *testing.T) {
	a, b, c := netip.MustParseAddrPort("198.18.0.1:1000"), netip.MustParseAddrPort("192.0.2.1:80"), netip.MustParseAddrPort("198.18.0.2:1000")
	path := filepath.Join(t.TempDir(), "flows.pcap")
	write(t, path, 0,
		says(a, b, "spill"), says(b, a, "way"), says(c, b, "way mill"),
		says(a, b, ""), says(a, b, "way mi"), says(c, b, "race"),
		says(a, b, "llr"), says(b, a, " spillway"), says(a, b, "ace"))
	patterns, err := filter.ParsePatterns("p", "\"spillway\"\n\"millrace\"")
	if err != nil {
		t.Fatal(err)
	}
	const head = 14 + 20 + 20
	lap := func(n uint64) []PatternMatch {
		return []PatternMatch{
			{path, n + 5, 1, "", head + 3}, {path, n + 6, 2, "", head + 4}, {path, n + 8, 1, "", head + 9}, {path, n + 9, 2, "", head + 3},
		}
	}
	for laps := range 2 {
		var found []PatternMatch
		rep, err := Run(context.Background(), Config{
			Files: []string{path}, Patterns: patterns, Laps: laps + 1, OnMatch: func(f PatternMatch) { found = append(found, f) },
		})
		if err != nil {
			t.Fatal(err)
		}
		want := lap(0)
		if laps == 1 {
			want = append(want, lap(9)...)
		}
		if d := cmp.Diff(want, found); d != "" {
			t.Errorf("%d laps (-want +got):\n%s", laps+1, d)
		}
		if n := rep.Patterns[1].Packets; n != uint64(2*(laps+1)) {
			t.Errorf("%d laps: %d packets", laps+1, n)
		}
	}
}

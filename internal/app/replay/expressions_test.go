package replay

import (
	"context"
	"net/netip"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/filter"
	"github.com/millrace/millrace/gpukern/choose"
	"github.com/millrace/millrace/gpukern/cuda"
	"github.com/millrace/millrace/gpukern/expression"
	"github.com/millrace/millrace/internal/testkit/hostkern"
	"github.com/millrace/millrace/internal/testkit/testpcaps"
)

// parsePatterns reads patterns.
func parsePatterns(t *testing.T, text string) *filter.Patterns {
	t.Helper()
	p, err := filter.ParsePatterns("p", text)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestExpressionsAreFoundAlongFlows: an expression goes on from packet to packet of a direction, is reported once there, and ends
// with the capture where it asks for the end. Literals beside it are found as before.
func TestExpressionsAreFoundAlongFlows(t *testing.T) {
	a, b, c := netip.MustParseAddrPort("198.18.0.1:1000"), netip.MustParseAddrPort("192.0.2.1:80"), netip.MustParseAddrPort("198.18.0.2:1000")
	path := filepath.Join(t.TempDir(), "flows.pcap")
	write(t, path, 0,
		says(a, b, "GET /a"), says(b, a, "min"), says(c, b, "dmin HTTP"),
		says(a, b, "dmin?x=1"), says(a, b, "2&y HTTP"), says(a, b, " /admin?x=9&"))
	patterns := parsePatterns(t, `/^get \/\w+\?x=\d{2}&/i name "in#dex"  # a comment
"HTTP"
/HTTP$/
/ttp .*&$/i`)
	var found []PatternMatch
	rep, err := Run(context.Background(), Config{Files: []string{path}, Patterns: patterns, OnMatch: func(f PatternMatch) { found = append(found, f) }})
	if err != nil {
		t.Fatal(err)
	}
	const head = 14 + 20 + 20
	want := []PatternMatch{
		{path, 3, 2, "", head + 9}, {path, 5, 2, "", head + 8}, // literals come with their packets, expressions when enough is collected
		{path, 5, 1, "in#dex", head + 2}, {path, 0, 3, "", 0}, {path, 0, 4, "", 0},
	}
	if d := cmp.Diff(want, found); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	x := rep.Expressions
	if x == nil || x.Expressions != 3 || x.Automata != 2 || x.Streams != 3 || x.Bytes != 46 || x.NotFollowed != 0 {
		t.Errorf("%+v", x)
	}
	if rep.Patterns[0].Packets != 1 || rep.Patterns[0].Matches != 1 || rep.Patterns[1].Packets != 2 {
		t.Errorf("%+v", rep.Patterns)
	}
}

// TestEveryEngineFindsTheSameExpressions searches all captures, on the core, on all cores and by the kernels on the CPU.
func TestEveryEngineFindsTheSameExpressions(t *testing.T) {
	drv := hostkern.OpenDriver(t)
	patterns := parsePatterns(t, `/user-agent: [^\r\n]*(curl|mozilla)/i
/\x16\x03[\x00-\x03].{2}\x01/s
/^HTTP\/1\.\d (2|3)\d\d/
/[a-z]{3,8}\.(com|net|org)\b/
/^.{12}[\x01-\x0f]/s
/pass(word)?=/i
/[aeiou]{2}/i
/\x00\x01/
/^[\x20-\x7e]{4}/`)
	run := func(open OpenExpressions) (found []PatternMatch) {
		rep, err := Run(context.Background(), Config{
			Files: testpcaps.Files(t), Patterns: patterns, Expressions: open, OnMatch: func(f PatternMatch) { found = append(found, f) },
		})
		if err != nil {
			t.Fatal(err)
		}
		if rep.Expressions.Bytes == 0 {
			t.Error("nothing was searched")
		}
		return found
	}
	want := run(nil)
	if len(want) < 100 {
		t.Fatalf("%d matches", len(want))
	}
	for _, kind := range choose.Kinds {
		o, err := choose.NewOpener(choose.OpenConfig{Kind: kind, Device: cuda.Options{Library: drv.Path, Management: drv.Path, Patience: time.Minute}})
		if err != nil {
			t.Fatal(err)
		}
		got := run(func(set *expression.Set) (ExpressionSearch, error) { return o.OpenExpressions(set) })
		if !slices.Equal(got, want) {
			t.Errorf("%s: %d matches, want %d\n%s", kind, len(got), len(want), cmp.Diff(want, got))
		}
		if err := o.Close(); err != nil {
			t.Error(err)
		}
	}
}

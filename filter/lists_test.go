package filter

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/gpukern/literal"
	"github.com/millrace/millrace/gpukern/lpm"
)

func TestPatternsAreRead(t *testing.T) {
	ps, err := ParsePatterns("p", `
# what we look for
"GET /admin" nocase name "admin page"   # comment
	"|90 9090| x|00|" "say \"hello\" \\ \|"
"# is no comment \" # here" name "c"
`)
	if err != nil {
		t.Fatal(err)
	}
	want := []literal.Pattern{
		{Bytes: []byte("GET /admin"), NoCase: true, Rule: 1},
		{Bytes: []byte("\x90\x90\x90 x\x00"), Rule: 2},
		{Bytes: []byte(`say "hello" \ |`), Rule: 2},
		{Bytes: []byte(`# is no comment " # here`), Rule: 3},
	}
	if diff := cmp.Diff(want, ps.List()); diff != "" {
		t.Errorf("list (-want +got):\n%s", diff)
	}
	rules := []PatternRule{
		{"admin page", `"GET /admin" nocase name "admin page"`, 3},
		{"", `"|90 9090| x|00|" "say \"hello\" \\ \|"`, 4},
		{"c", `"# is no comment \" # here" name "c"`, 5},
	}
	if diff := cmp.Diff(rules, ps.Rules()); diff != "" {
		t.Errorf("rules (-want +got):\n%s", diff)
	}
	if got := ps.Set().Scan(nil, []byte(`get /ADMIN and say "hello" \ |`), 0, nil); len(got) != 2 || got[0].Rule != 1 || got[1].Rule != 2 {
		t.Errorf("found %v", got)
	}
}

func TestRoutesAreRead(t *testing.T) {
	r, err := ParseRoutes("r", "198.18.0.0/15 via 3 # test\n2001:db8::/32 via 65535\n\n192.0.2.7 via 1\n::/0 via 2\n")
	if err != nil {
		t.Fatal(err)
	}
	want := []lpm.Route{
		{Prefix: netip.MustParsePrefix("198.18.0.0/15"), NextHop: 3},
		{Prefix: netip.MustParsePrefix("2001:db8::/32"), NextHop: 65535},
		{Prefix: netip.MustParsePrefix("192.0.2.7/32"), NextHop: 1},
		{Prefix: netip.MustParsePrefix("::/0"), NextHop: 2},
	}
	if diff := cmp.Diff(want, r.List(), cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
		t.Errorf("list (-want +got):\n%s", diff)
	}
	if hop := r.LPM().Lookup(netip.MustParseAddr("198.19.255.255")); hop != 3 {
		t.Errorf("next hop %d", hop)
	}
}

func TestMistakesInListsAreShownAtTheirPlace(t *testing.T) {
	patterns := func(s string) error { _, err := ParsePatterns("f", s); return err }
	routes := func(s string) error { _, err := ParseRoutes("f", s); return err }
	for _, tc := range []struct {
		parse      func(string) error
		text, want string
	}{
		{patterns, "# c\nabc", "f:2:1: a pattern begins with a text in double quotes"},
		{patterns, `"ab"`, "f:1:1: the text has 2 bytes; it may have 3 to 64"},
		{patterns, `"|61 62|"`, "f:1:1: the text has 2 bytes"},
		{patterns, `"` + strings.Repeat("x", 65) + `"`, "f:1:1: the text has 65 bytes"},
		{patterns, ` "abc`, "f:1:2: the text has no end"},
		{patterns, `"abc\n"`, `f:1:5: behind a backslash stands ", \ or |`},
		{patterns, `"abc\`, "f:1:5: behind a backslash"},
		{patterns, `"abc|6|"`, "f:1:5: between two bars"},
		{patterns, `"abc|61"`, "f:1:5: between two bars"},
		{patterns, `"abc" nocsae`, `f:1:7: "nocsae" is not known; did you mean nocase`},
		{patterns, `"abc" name x`, "f:1:12: a name stands in double quotes"},
		{patterns, `"abc" nocase nocase`, `f:1:14: "nocase" `},
		{patterns, `"abc" name "x" frobnicate`, `f:1:16: "frobnicate" is one word too many`},
		{patterns, ` /abc`, "f:1:2: the expression has no end"},
		{patterns, `/abc/z`, `f:1:1: option "z" of the expression is not known`},
		{patterns, `/a(b/`, "f:1:1: regular expression: "},
		{patterns, `/(a)\1/`, "f:1:1: the expression has no automaton"},
		{patterns, "# c\n" + `/a.{20}b/s`, "f:2:1: the automaton of the expression is too large"},
		{patterns, `/a/ name x`, "a name stands in double quotes"},
		{patterns, `/a/i nocase`, `"nocase" is one word too many`},
		{routes, "198.18.0.0/15", `f:1:14: behind the prefix stands via, not ""`},
		{routes, "198.18.0.1/15 via 1", "f:1:1: 198.18.0.1/15 has bits beyond its length; 198.18.0.0/15 is meant"},
		{routes, "198.18.0/15 via 1", `f:1:1: "198.18.0/15" is not a prefix`},
		{routes, "any via 1", "f:1:1: a route has an address or a prefix"},
		{routes, "10.0.0.0/8 via 0", `f:1:16: "0" is not the number of a next hop, 1 to 65535`},
		{routes, "10.0.0.0/8 via 65536", `f:1:16: "65536" is not`},
		{routes, "10.0.0.0/8 via 1 2", `f:1:18: "2" is one word too many`},
		{routes, "10.0.0.0/8 via 1\n# x\n10.0.0.0/8 via 2", "f:3:1: 10.0.0.0/8 is there already"},
	} {
		err := tc.parse(tc.text)
		if !errors.Is(err, ErrSyntax) || !strings.Contains(fmt.Sprint(err), tc.want) {
			t.Errorf("%q: %v, want %s", tc.text, err, tc.want)
		}
	}
}

func TestListsHaveBounds(t *testing.T) {
	var b strings.Builder
	for i := range literal.MaxPatterns {
		fmt.Fprintf(&b, "\"p%d-%d\"\n", i, i)
	}
	if _, err := ParsePatterns("f", b.String()); err != nil {
		t.Fatal(err)
	}
	if _, err := ParsePatterns("f", b.String()+`"one more"`); !errors.Is(err, ErrSyntax) || !strings.Contains(err.Error(), "f:65537:1: a list has at most 65536 patterns") {
		t.Errorf("one more: %v", err)
	}
	for _, parse := range []func(string) error{
		func(s string) error { _, err := ParsePatterns("f", s); return err },
		func(s string) error { _, err := ParseRoutes("f", s); return err },
	} {
		if err := parse(strings.Repeat("#", MaxText+1)); !errors.Is(err, ErrSyntax) {
			t.Errorf("%v", err)
		}
		if err := parse(strings.Repeat("x\n", 100)); strings.Count(fmt.Sprint(err), "f:") != maxMistakes {
			t.Errorf("%d mistakes are shown", strings.Count(fmt.Sprint(err), "f:"))
		}
	}
}

// FuzzParsePatterns looks for panics, for literals that cannot be, and for lines that do not read back.
func FuzzParsePatterns(f *testing.F) {
	for _, s := range []string{`"GET /" nocase name "x" # c`, `"|90 90 90|" "a\"\\\|b"`, `"ab`, "\"abc\"\n\"def\"", `"abc|`, `"a#b" # "`, `/a#b\/c/i name "x" # c`, "/^a$/m\n\"abc\""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		ps, err := ParsePatterns("f", text)
		if err != nil {
			if !errors.Is(err, ErrSyntax) {
				t.Fatal(err)
			}
			return
		}
		for _, p := range ps.List() {
			if n := len(p.Bytes); n < literal.MinLen || n > literal.MaxLen || p.Rule < 1 || int(p.Rule) > len(ps.Rules()) {
				t.Fatalf("%+v", p)
			}
		}
		for i, r := range ps.Rules() {
			again, err := ParsePatterns("f", r.Text)
			if err != nil || len(again.Rules()) != 1 || again.Rules()[0].Name != r.Name {
				t.Fatalf("rule %d %q does not read back: %v", i, r.Text, err)
			}
		}
	})
}

// FuzzParseRoutes looks for panics and for routes that are not found again.
func FuzzParseRoutes(f *testing.F) {
	for _, s := range []string{"10.0.0.0/8 via 1", "2001:db8::/32 via 65535 # x", "::/0 via 2\n0.0.0.0/0 via 3", "192.0.2.1 via 1\n192.0.2.1/32 via 2", "::ffff:1.2.3.4 via 7"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, err := ParseRoutes("f", text)
		if err != nil {
			if !errors.Is(err, ErrSyntax) {
				t.Fatal(err)
			}
			return
		}
		for _, one := range r.List() {
			if one.NextHop == 0 || r.LPM().Lookup(one.Prefix.Addr()) == 0 {
				t.Fatalf("%v is not found", one)
			}
		}
	})
}

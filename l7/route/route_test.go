package route

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/semantics"
)

func table(t testing.TB, rules ...Rule) *Table {
	t.Helper()
	tab, err := New(rules)
	if err != nil {
		t.Fatal(err)
	}
	return tab
}

func TestFind(t *testing.T) {
	exact := func(p string) Path { return Path{PathExact, p} }
	prefix := func(p string) Path { return Path{PathPrefix, p} }
	rules := []Rule{
		{"default", Match{}},
		{"a", Match{Hosts: []string{"a.example"}}},
		{"a /x", Match{Hosts: []string{"a.example"}, Path: prefix("/x")}},
		{"a /x/y", Match{Hosts: []string{"a.example"}, Path: prefix("/x/y/")}},
		{"a =/x", Match{Hosts: []string{"a.example"}, Path: exact("/x")}},
		{"a regexp", Match{Hosts: []string{"a.example"}, Path: Path{PathRegexp, `/x/\d+`}}},
		{"wild", Match{Hosts: []string{"*.b.example"}}},
		{"longer wild", Match{Hosts: []string{"*.c.b.example"}, Path: prefix("/only")}},
		{"POST", Match{Hosts: []string{"m.example"}, Method: "POST"}},
		{"one field", Match{Hosts: []string{"m.example"}, Fields: []Value{{Name: "x", Value: "1"}}}},
		{"two fields", Match{Hosts: []string{"m.example"}, Fields: []Value{{Name: "x", Value: "1"}, {Name: "y", Value: "2|3", Regexp: true}}}},
		{"query", Match{Hosts: []string{"m.example"}, Query: []Value{{Name: "q", Value: "v"}}}},
		{"any method", Match{Hosts: []string{"m.example"}}},
		{"sni", Match{Hosts: []string{"s.example"}, SNI: []string{"*.s.example"}}},
		{"ja4", Match{Hosts: []string{"s.example"}, JA4: []string{"t13d"}}},
		{"client", Match{Hosts: []string{"s.example"}, Clients: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("2001:db8::/32")}}},
	}
	tab := table(t, rules...)
	for _, test := range []struct {
		request Request
		want    string
	}{
		{Request{Host: "z.example", Path: "/"}, "default"},
		{Request{Host: "a.example", Path: "/"}, "a"},
		{Request{Host: "a.example", Path: "/xy"}, "a"},
		{Request{Host: "a.example", Path: "/x"}, "a =/x"},
		{Request{Host: "a.example", Path: "/x/"}, "a /x"},
		{Request{Host: "a.example", Path: "/x/z/y"}, "a /x"},
		{Request{Host: "a.example", Path: "/x/y"}, "a /x/y"},
		{Request{Host: "a.example", Path: "/x/y/z"}, "a /x/y"},
		{Request{Host: "a.example", Path: "/x/17"}, "a regexp"},
		{Request{Host: "a.example", Path: "/x/17/"}, "a /x"},
		{Request{Host: "n.a.example", Path: "/x"}, "default"},
		{Request{Host: "n.b.example", Path: "/x"}, "wild"},
		{Request{Host: "n.m.b.example", Path: "/x"}, "wild"},
		{Request{Host: "b.example", Path: "/x"}, "default"},
		{Request{Host: "nb.example", Path: "/x"}, "default"},
		{Request{Host: "n.c.b.example", Path: "/only/that"}, "longer wild"},
		{Request{Host: "n.c.b.example", Path: "/other"}, "wild"},
		{Request{Host: "m.example", Path: "/", Method: "POST", Fields: []semantics.Field{{Name: "x", Value: "1"}}}, "POST"},
		{Request{Host: "m.example", Path: "/", Method: "post"}, "any method"},
		{Request{Host: "m.example", Path: "/", Fields: []semantics.Field{{Name: "x", Value: "1"}}}, "one field"},
		{Request{Host: "m.example", Path: "/", Fields: []semantics.Field{{Name: "x", Value: "0"}, {Name: "x", Value: "1"}, {Name: "y", Value: "3"}}}, "two fields"},
		{Request{Host: "m.example", Path: "/", Fields: []semantics.Field{{Name: "x", Value: "1"}, {Name: "y", Value: "23"}}}, "one field"},
		{Request{Host: "m.example", Path: "/", Query: "p=1&q=v"}, "query"},
		{Request{Host: "m.example", Path: "/", Query: "q=w&q=v"}, "any method"},
		{Request{Host: "m.example", Path: "/", Query: "q=%76"}, "query"},
		{Request{Host: "m.example", Path: "/", Query: "%71=v"}, "query"},
		{Request{Host: "m.example", Path: "/", Query: "%2571=v"}, "any method"}, // encoded twice: a backend reads %71
		{Request{Host: "m.example", Path: "/", Query: "q=%2576"}, "any method"},
		{Request{Host: "m.example", Path: "/", Query: "q=w&%71=v"}, "any method"}, // the first counts, however it is written
		{Request{Host: "m.example", Path: "/", Query: "%71=v&q=w"}, "query"},
		{Request{Host: "m.example", Path: "/", Query: "q=v%"}, "any method"},
		{Request{Host: "s.example", Path: "/", SNI: "a.s.example"}, "sni"},
		{Request{Host: "s.example", Path: "/", SNI: "s.example"}, "default"},
		{Request{Host: "s.example", Path: "/", JA4: "t13d"}, "ja4"},
		{Request{Host: "s.example", Path: "/", Client: netip.MustParseAddr("192.0.2.9")}, "client"},
		{Request{Host: "s.example", Path: "/", Client: netip.MustParseAddr("::ffff:192.0.2.9")}, "client"},
		{Request{Host: "s.example", Path: "/", Client: netip.MustParseAddr("198.18.0.1")}, "default"},
		{Request{Path: "*", Method: "OPTIONS"}, "default"},
	} {
		got := "none"
		if n := tab.Find(&test.request); n >= 0 {
			got = rules[n].Name
		}
		if got != test.want {
			t.Errorf("%+v: %s, want %s", test.request, got, test.want)
		}
	}
	if n := table(t, rules[1]).Find(&Request{Host: "z.example", Path: "/"}); n != -1 {
		t.Errorf("rule %d matches", n)
	}
}

func TestErrorsOfRules(t *testing.T) {
	for _, test := range []struct {
		match Match
		want  error
	}{
		{Match{Hosts: []string{"A.example"}}, ErrHost},
		{Match{Hosts: []string{""}}, ErrHost},
		{Match{Hosts: []string{"a.*.example"}}, ErrHost},
		{Match{Hosts: []string{"a.example:80"}}, ErrHost},
		{Match{Hosts: []string{"a.example."}}, ErrHost},
		{Match{SNI: []string{"a/b"}}, ErrHost},
		{Match{Path: Path{PathPrefix, "a"}}, ErrPath},
		{Match{Path: Path{PathExact, ""}}, ErrPath},
		{Match{Path: Path{PathExact, "/a?b"}}, ErrPath},
		{Match{Path: Path{PathExact, "/a/../b"}}, ErrPath},
		{Match{Path: Path{PathPrefix, "/%61"}}, ErrPath},
		{Match{Path: Path{PathRegexp, "("}}, ErrRegexp},
		{Match{Method: "G T"}, ErrMethod},
		{Match{Fields: []Value{{Name: "X"}}}, ErrName},
		{Match{Query: []Value{{Name: "x", Value: "[", Regexp: true}}}, ErrRegexp},
		{Match{Path: Path{PathRegexp, "a)|(?:b"}}, ErrRegexp},
	} {
		if _, err := New([]Rule{{"the rule", test.match}}); !errors.Is(err, test.want) || !strings.Contains(err.Error(), "the rule") {
			t.Errorf("%+v: %v, want %v", test.match, err, test.want)
		}
	}
	var many []Rule
	for i := range 1000 {
		many = append(many, Rule{fmt.Sprint(i), Match{Method: " "}})
	}
	if _, err := New(many); !strings.Contains(err.Error(), "rule 1:") || !strings.HasSuffix(err.Error(), "and 980 more") {
		t.Errorf("%v", err)
	}
}

// slow decides without an index: all rules that match, ordered by everything that counts.
func slow(rules []Rule, r *Request) int {
	best, rank := -1, []int(nil)
	for i, rule := range rules {
		m := rule.Match
		hosts := m.Hosts
		if len(hosts) == 0 {
			hosts = []string{"*"}
		}
		for _, h := range hosts {
			key := []int{-1}
			switch {
			case h == "*":
				key[0] = 0
			case h == r.Host:
				key[0] = 1000
			case strings.HasPrefix(h, "*.") && strings.HasSuffix(r.Host, h[1:]):
				key[0] = len(h)
			}
			path := -1
			switch p := strings.TrimSuffix(m.Path.Value, "/"); m.Path.Type {
			case PathExact:
				if m.Path.Value == r.Path {
					path = 2000
				}
			case PathRegexp:
				if regexp.MustCompile("^(" + m.Path.Value + ")$").MatchString(r.Path) {
					path = 1000
				}
			case PathPrefix:
				if r.Path == p || strings.HasPrefix(r.Path, p+"/") {
					path = len(p)
				}
			}
			if key[0] < 0 || path < 0 || m.Method != "" && m.Method != r.Method || !holds(m.Fields, r) {
				continue
			}
			method := 0
			if m.Method != "" {
				method = 1
			}
			key = append(key, path, method, len(m.Fields), -i)
			if best < 0 || slices.CompareFunc(key, rank, cmp.Compare) > 0 {
				best, rank = i, key
			}
		}
	}
	return best
}

func holds(fields []Value, r *Request) bool {
	for _, v := range fields {
		if !slices.ContainsFunc(r.Fields, func(f semantics.Field) bool { return f.Name == v.Name && f.Value == v.Value }) {
			return false
		}
	}
	return true
}

// Random tables and requests: Find is what the slow judge says, and the last step of Explain.
func TestAgainstASlowJudge(t *testing.T) {
	hosts := []string{"a.example", "b.a.example", "*.a.example", "*.example", "c.example"}
	segments := []string{"x", "y", "z", "xy"}
	randomPath := func(r *rand.Rand) string {
		p := ""
		for range r.IntN(4) {
			p += "/" + segments[r.IntN(len(segments))]
		}
		return cmp.Or(p, "/")
	}
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 9))
		var rules []Rule
		for i := range 1 + r.IntN(20) {
			m := Match{Path: Path{PathType(r.IntN(2)), randomPath(r)}}
			if r.IntN(6) == 0 {
				m.Path = Path{PathRegexp, "/(x|y)(/.*)?"}
			}
			for range r.IntN(3) {
				m.Hosts = append(m.Hosts, hosts[r.IntN(len(hosts))])
			}
			if r.IntN(3) == 0 {
				m.Method = []string{"GET", "POST"}[r.IntN(2)]
			}
			for range r.IntN(3) {
				m.Fields = append(m.Fields, Value{Name: "f" + fmt.Sprint(r.IntN(2)), Value: fmt.Sprint(r.IntN(2))})
			}
			rules = append(rules, Rule{fmt.Sprint(i), m})
		}
		tab := table(t, rules...)
		for range 100 {
			req := &Request{Host: []string{"a.example", "b.a.example", "d.b.a.example", "c.example", "other"}[r.IntN(5)], Path: randomPath(r), Method: []string{"GET", "POST", "PUT"}[r.IntN(3)]}
			for i := range r.IntN(3) {
				req.Fields = append(req.Fields, semantics.Field{Name: "f" + fmt.Sprint(i), Value: fmt.Sprint(r.IntN(2))})
			}
			got, want := tab.Find(req), slow(rules, req)
			if got != want {
				t.Fatalf("seed %d: %+v: rule %d, want %d of\n%+v", seed, req, got, want, rules)
			}
			steps := tab.Explain(req)
			if want >= 0 && (len(steps) == 0 || steps[len(steps)-1] != Step{fmt.Sprint(want), want, ""}) {
				t.Fatalf("seed %d: explained by %+v, want rule %d", seed, steps, want)
			}
			for _, s := range steps[:max(len(steps)-1, 0)] {
				if s.Missing == "" {
					t.Fatalf("seed %d: %+v matches before the last", seed, s)
				}
			}
		}
	}
}

// many returns a table of n rules for n/10 hosts, and a request that the last one matches.
func many(n int) ([]Rule, *Request) {
	var rules []Rule
	for i := range n {
		rules = append(rules, Rule{fmt.Sprint(i), Match{Hosts: []string{fmt.Sprintf("h%d.example", i/10)}, Path: Path{PathPrefix, fmt.Sprintf("/service/%d", i%10)}}})
	}
	return rules, &Request{Host: fmt.Sprintf("h%d.example", (n-1)/10), Path: fmt.Sprintf("/service/%d/items/4711", (n-1)%10), Method: "GET"}
}

func TestFindAllocatesNothing(t *testing.T) {
	rules, req := many(1000)
	rules = append(rules, Rule{"regexp", Match{Hosts: []string{"h99.example"}, Path: Path{PathRegexp, "/service/[a-z]+"}}})
	tab := table(t, rules...)
	if n := testing.AllocsPerRun(100, func() {
		if tab.Find(req) != 999 {
			t.Fatal("another rule")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkFind(b *testing.B) {
	for _, n := range []int{10, 10000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			rules, req := many(n)
			tab := table(b, rules...)
			for b.Loop() {
				if tab.Find(req) != n-1 {
					b.Fatal("another rule")
				}
			}
		})
	}
	b.Run("new/10000", func(b *testing.B) {
		rules, _ := many(10000)
		for b.Loop() {
			table(b, rules...)
		}
	})
}

// Conditions on parameters see what a backend reads: decoded once, with a plus sign as a blank.
func TestParametersAreComparedDecoded(t *testing.T) {
	tab := table(t, Rule{"slash", Match{Query: []Value{{Name: "p", Value: "/admin"}}}}, Rule{"blank", Match{Query: []Value{{Name: "a b", Value: "c d"}}}},
		Rule{"expression", Match{Query: []Value{{Name: "e", Value: "x/[0-9]+", Regexp: true}}}})
	for query, want := range map[string]int{
		"p=/admin": 0, "p=%2Fadmin": 0, "p=%2fadm%69n": 0, "p=%252Fadmin": -1, "%70=%2Fadmin": 0, "p=+admin": -1,
		"a+b=c+d": 1, "a%20b=c%20d": 1, "a%2Bb=c+d": -1, "a+b=c%2Bd": -1,
		"e=x%2F12": 2, "e=x%252F12": -1, "e=x/%31": 2, "e=x/1%0A": -1,
	} {
		if got := tab.Find(&Request{Path: "/", Query: query}); got != want {
			t.Errorf("%s: rule %d, want %d", query, got, want)
		}
	}
}

package interop

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/millrace/millrace/internal/testkit/wrongcases"
)

// Every case of hostile input goes to nginx, to HAProxy and to us. What reaches our back end is what may, in a form that two
// recipients read in the same way, and no more than what the stricter of the two passes on.
func TestWrongInput(t *testing.T) {
	var cases []*wrongcases.Case
	all := wrongcases.All()
	for i := range all {
		cases = append(cases, &all[i])
	}
	compareProxies(t, cases, func(l *lane) string { return l.http1 }, statusesHTTP1)
}

// The same with requests of HTTP/2, which reach the back ends as HTTP/1.1.
func TestWrongInputHTTP2(t *testing.T) {
	var cases []*wrongcases.Case
	all := wrongcases.Downgrades()
	for i := range all {
		cases = append(cases, &all[i].Case)
	}
	compareProxies(t, cases, func(l *lane) string { return l.h2 }, statusesHTTP2)
}

func compareProxies(t *testing.T, cases []*wrongcases.Case, addr func(*lane) string, read func([]byte) ([]int, bool)) {
	peers := []*contestant{{name: "nginx", lanes: nginxLanes(t)}, {name: "HAProxy", lanes: haproxyLanes(t)}}
	all := append(peers,
		&contestant{name: "gateway", lanes: gatewayLanes(t), ours: true},
		&contestant{name: "machines", lanes: machineLanes(t), ours: true, machine: true})
	all = slices.DeleteFunc(all, func(p *contestant) bool { return addr(p.lanes[0]) == "" })
	var wg sync.WaitGroup
	for _, p := range all {
		wg.Go(func() { p.run(t, cases, addr, read) })
	}
	wg.Wait()
	for i, c := range cases {
		for _, p := range all[len(peers):] {
			if p.machine && c.Gateway {
				continue
			}
			if err := c.Check(p.outcomes[i].received...); err != nil {
				t.Errorf("%s: %s (%s): %v; %v\nsent %.300q\nreceived %.300q", p.name, c.Name, c.Origin, err, p.outcomes[i], c.Bytes, p.outcomes[i].received)
			}
			strictest(t, c, p.name, p.outcomes[i].requests, peers, i)
		}
		strictest(t, c, "the corpus", c.Passed, peers, i)
	}
	table(t, cases, all)
}

// strictest checks that no peer refuses what passes here, or by the corpus should, unless there is a reason.
func strictest(t *testing.T, c *wrongcases.Case, name string, passed int, peers []*contestant, i int) {
	for _, peer := range peers {
		o := peer.outcomes[i]
		if !o.refused() || o.requests >= passed {
			continue
		}
		if c.Stricter != "" {
			t.Logf("%s: %s passes %d, %s refuses: %s", c.Name, name, passed, peer.name, c.Stricter)
		} else {
			t.Errorf("%s: %s (%s): %s is stricter: %v; here %d pass\nsent %.300q", name, c.Name, c.Origin, peer.name, o, passed, c.Bytes)
		}
	}
}

// table writes what each proxy did with each case to the file that MILLRACE_WRONG_TABLE names, and the sums for each group.
func table(t *testing.T, cases []*wrongcases.Case, all []*contestant) {
	var sums []string
	refused, count := map[string]int{}, map[string]int{}
	var rows strings.Builder
	for i, c := range cases {
		fmt.Fprintf(&rows, "%s | %s", c.Name, c.Origin)
		for _, p := range all {
			o := p.outcomes[i]
			fmt.Fprintf(&rows, " | %s: %v", p.name, o)
			if o.requests < max(1, c.Passed) {
				refused[c.Group+p.name]++
			}
		}
		rows.WriteString("\n")
		if count[c.Group]++; count[c.Group] == 1 {
			sums = append(sums, c.Group)
		}
	}
	for i, group := range sums {
		sums[i] = fmt.Sprintf("| %s | %d |", group, count[group])
		for _, p := range all {
			sums[i] += fmt.Sprintf(" %d |", refused[group+p.name])
		}
	}
	t.Logf("cases, and how many each did not pass on whole:\n%s", strings.Join(sums, "\n"))
	if name := os.Getenv("MILLRACE_WRONG_TABLE"); name != "" {
		f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		fmt.Fprintf(f, "%s\n\n%s\n", strings.Join(sums, "\n"), rows.String())
	}
}

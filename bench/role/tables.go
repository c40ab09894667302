package role

import (
	"fmt"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/gpukern/acl"
	"github.com/millrace/millrace/gpukern/lpm"
	"github.com/millrace/millrace/gpukern/tuple"
	"github.com/millrace/millrace/packet"
)

// openTables looks up the questions of the table file in its arguments without end, a batch a call. -as
// says what the table is: "rules" or "routes". All questions are asked once, and the answers compared,
// before the run.
func openTables(o roleOptions) (roleWork, error) {
	if len(o.args) != 1 {
		return roleWork{}, fmt.Errorf("which table?")
	}
	open := map[string]func(string) (*tableRun, error){"rules": openRules, "routes": openRoutes}[o.as]
	if open == nil {
		return roleWork{}, fmt.Errorf("no table %q", o.as)
	}
	t, err := open(o.args[0])
	if err != nil {
		return roleWork{}, err
	}
	for range t.batches {
		if err := t.step(); err != nil {
			return roleWork{}, err
		}
		for i, got := range t.found {
			if want := t.want[t.at*packet.BatchSize+i]; got != want {
				return roleWork{}, fmt.Errorf("%d to question %d, want %d", got, t.at*packet.BatchSize+i, want)
			}
		}
	}
	return roleWork{
		version: fmt.Sprintf("compiled in %.2f s, %.1f MB", t.compiled.Seconds(), float64(t.bytes)/1e6),
		step:    t.step,
		counts:  func() (map[string]uint64, error) { return map[string]uint64{"packets": t.n.Load()}, nil },
	}, nil
}

// tableRun is a compiled table with questions.
type tableRun struct {
	ask      func(from, to int)
	want     []uint16
	found    [packet.BatchSize]uint16
	batches  int
	at       int
	n        atomic.Uint64
	compiled time.Duration
	bytes    int
}

// step asks the questions of the next batch.
func (t *tableRun) step() error {
	if t.at++; t.at >= t.batches {
		t.at = 0
	}
	t.ask(t.at*packet.BatchSize, (t.at+1)*packet.BatchSize)
	t.n.Add(packet.BatchSize)
	return nil
}

func openRules(path string) (*tableRun, error) {
	_, entries, questions, err := readTable[fileRule, fileFlow](path)
	if err != nil {
		return nil, err
	}
	rules := make([]acl.Rule, len(entries))
	for i := range rules {
		rules[i] = entries[i].rule()
	}
	t := &tableRun{batches: len(questions) / packet.BatchSize}
	start := time.Now()
	acl, err := acl.Compile(rules)
	if err != nil {
		return nil, err
	}
	t.compiled, t.bytes = time.Since(start), acl.Size()
	flows := make([]tuple.Tuple, len(questions))
	for i, q := range questions {
		src, dst := prefixOf(q.Src, 32).Addr(), prefixOf(q.Dst, 32).Addr()
		flows[i] = tuple.New(netip.AddrPortFrom(src, q.SrcPort), netip.AddrPortFrom(dst, q.DstPort), q.Proto)
		t.want = append(t.want, q.To)
	}
	t.ask = func(from, to int) { acl.Match(flows[from:to], true, t.found[:]) }
	return t, nil
}

func openRoutes(path string) (*tableRun, error) {
	family, entries, questions, err := readTable[fileRoute, fileAddr](path)
	if err != nil {
		return nil, err
	}
	routes := make([]lpm.Route, len(entries))
	for i := range routes {
		routes[i] = entries[i].route(family)
	}
	t := &tableRun{batches: len(questions) / packet.BatchSize}
	start := time.Now()
	table, err := lpm.Compile(routes)
	if err != nil {
		return nil, err
	}
	t.compiled, t.bytes = time.Since(start), table.Size()
	a4, a6 := make([]uint32, len(questions)), make([][2]uint64, len(questions))
	for i, q := range questions {
		a4[i], a6[i] = uint32(q.Hi>>32), [2]uint64{q.Hi, q.Lo}
		t.want = append(t.want, uint16(q.To))
	}
	t.ask = func(from, to int) { table.Lookup6(a6[from:to], t.found[:]) }
	if family == 4 {
		t.ask = func(from, to int) { table.Lookup4(a4[from:to], t.found[:]) }
	}
	return t, nil
}

package inspect

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"weak"
)

// rulesOfAllKinds are rules of every kind that leave something with a flow: contents without an end, headers alone, bits.
func rulesOfAllKinds(n int) string {
	var b strings.Builder
	for i := range n {
		switch i % 5 {
		case 0:
			fmt.Fprintf(&b, "alert http any any -> any any (http.request_body; content:\"longer key%d,\"; content:\"nv%d\"; sid:%d;)\n", i%50, i, i+1)
		case 1:
			fmt.Fprintf(&b, "alert tcp any any -> any any (content:\"longer word%d,\"; content:\"nv%d\"; distance:0; sid:%d;)\n", i%50, i, i+1)
		case 2:
			fmt.Fprintf(&b, "alert tcp any any -> any %d (flow:established; flowbits:isset,b%d; pcre:\"/a/\"; sid:%d;)\n", 80-i%2, i, i+1)
		default:
			fmt.Fprintf(&b, "alert tcp any any -> any any (content:\"rare text %d\"; sid:%d;)\n", i, i+1)
		}
	}
	return b.String()
}

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// What an engine holds of many requests that are not complete is what its budget says, whatever the rules are.
func TestTheBudgetIsWhatIsHeld(t *testing.T) {
	const bound, flows = 8 << 20, 500
	var words strings.Builder
	for i := range 50 {
		fmt.Fprintf(&words, "longer key%d, longer word%d, ", i, i)
	}
	g := newGate(t, Config{MemoryBytes: bound}, rulesOfAllKinds(500))
	before := heap()
	for i := range flows {
		send := newOther(g, uint16(1000+i))
		seq := uint32(1)
		for _, s := range []string{"POST / HTTP/1.1\r\nContent-Length: 99000\r\nA: 1\r\n 2\r\n\r\n", words.String(), strings.Repeat("x", 1400), strings.Repeat("y", 1400)} {
			send(seq, s)
			seq += uint32(len(s))
		}
	}
	held := heap() - before
	_, used := g.e.Flows()
	t.Logf("%d bytes held, %d counted", held, used)
	if held > bound*5/4 || held > int64(used)*5/4 {
		t.Errorf("%d flows hold %d bytes, %d are counted, the bound is %d", flows, held, used, bound)
	}
	runtime.KeepAlive(g)
}

// Flows that are quiet keep nothing of the rules of their time: a hundred reloads take the memory of two.
func TestQuietFlowsKeepNoRules(t *testing.T) {
	const text = `drop http any any -> any any (http.request_body; content:"first"; content:"second"; sid:1;)
drop tcp any any -> any any (content:"third"; content:"fourth"; sid:2;)
alert tcp any any -> any 80 (flow:established; flowbits:isset,b; sid:3;)`
	g := newGate(t, Config{}, text)
	var gone []weak.Pointer[Rules]
	var sends []func(uint32, string) Result
	var seqs []uint32
	rules := g.e.rules
	for n := range 20 {
		send := newOther(g, uint16(1000+n))
		head := "POST / HTTP/1.1\r\nContent-Length: 100\r\n\r\nfirst third "
		send(1, head)
		sends, seqs = append(sends, send), append(seqs, 1+uint32(len(head)))
		gone = append(gone, weak.Make(rules))
		rules = rulesOf(t, fmt.Sprintf("%s\nalert tcp any any -> any 81 (content:\"other%d\"; sid:9;)", text, n), rules)
		g.e.Swap(rules, g.e.cfg)
	}
	g.e.in, g.e.result = Input{}, Result{}
	runtime.GC()
	runtime.GC()
	held := 0
	for _, w := range gone {
		if w.Value() != nil {
			held++
		}
	}
	if held > 0 {
		t.Errorf("%d of %d generations of rules are kept", held, len(gone))
	}
	for n, send := range sends { // what had begun to match goes on
		if r := send(seqs[n], []string{"second", "fourth"}[n%2]); r.Outcome != Drop {
			t.Errorf("flow %d: %+v", n, r)
		}
	}
	g.e.Flush()
	if n, used := g.e.Flows(); n != 0 || used != 0 || len(g.e.headers) != 0 {
		t.Errorf("%d flows, %d bytes and %d lists are left", n, used, len(g.e.headers))
	}
}

// Flows of one service share the rules that their header admits.
func TestFlowsShareTheRulesOfTheirHeader(t *testing.T) {
	g := newGate(t, Config{}, rulesOfAllKinds(5000))
	for n := range 200 {
		newOther(g, uint16(1000+n))(1, "text")
	}
	lists := map[*headerList]bool{}
	for f := g.e.oldest; f != nil; f = f.newer {
		for _, h := range f.sides[0].unsearched {
			lists[h.list] = true
		}
	}
	if len(lists) > 4 {
		t.Errorf("%d lists are those of 200 flows", len(lists))
	}
	if n := len(g.e.headers); n == 0 || n > 6 {
		t.Errorf("%d lists for 200 flows", n)
	}
}

// Rules that wait with a flow count, and their number is given back.
func TestWaitingRulesCount(t *testing.T) {
	g := newGate(t, Config{}, rulesOfAllKinds(500))
	send := newOther(g, 1000)
	var words strings.Builder
	for i := range 50 {
		fmt.Fprintf(&words, "longer word%d, ", i)
	}
	send(1, words.String())
	f := g.e.oldest
	if n := len(f.sides[0].pending); n < 10 || f.held < n*pendingSize {
		t.Errorf("%d rules wait, %d bytes are counted", n, f.held)
	}
}

// A bit keeps its number over a reload, and over one that lacks its name. Names that two generations lack are forgotten, however many
// reloads bring others, and their numbers go to no other name.
func TestNamesOfBitsOutliveAReloadAndNoMore(t *testing.T) {
	const text = `alert tcp any any -> any any (content:"begin"; flowbits:set,kept; noalert; sid:1;)
drop tcp any any -> any any (content:"end"; flowbits:isset,kept; sid:2;)`
	other := func(n int) string {
		return fmt.Sprintf(`alert tcp any any -> any any (content:"begin"; flowbits:set,bit%d; flowint:count%d,+,1; sid:3;)
drop tcp any any -> any any (content:"end"; flowbits:isset,bit%d; sid:4;)`, n, n, n+1)
	}
	for lacks, want := range map[int]Outcome{0: Drop, 1: Drop, 2: Pass, 30: Pass} {
		g := newGate(t, Config{}, text)
		send := newOther(g, 1000)
		send(1, "begin ")
		rules := g.e.rules
		for n := range lacks {
			rules = rulesOf(t, other(n), rules)
			g.e.Swap(rules, g.e.cfg)
		}
		rules = rulesOf(t, text, rules)
		g.e.Swap(rules, g.e.cfg)
		if r := send(7, "end"); r.Outcome != want {
			t.Errorf("behind %d generations without the bit: %v, want %v", lacks, r.Outcome, want)
		}
		if n := len(rules.names.own) + len(rules.names.before); n > 4 {
			t.Errorf("%d names of two generations", n)
		}
	}
}

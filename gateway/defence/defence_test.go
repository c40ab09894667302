package defence

import (
	"errors"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/filter/ebpf"
	"github.com/millrace/millrace/gateway/config"
)

const base = `
devices: [{name: gw0}]
services: [{name: web, address: 198.18.1.1:80, source: client, backends: [{address: 198.18.2.1:80}]}]
defence:
  max_verdicts: 4
  time: 1s
`

// read reads a configuration whose list file has some lines.
func read(t *testing.T, more string, list string) *config.Config {
	t.Helper()
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "list.txt"), []byte(list), 0o600))
	file := filepath.Join(dir, "gateway.yaml")
	must(t, os.WriteFile(file, []byte(base+more), 0o600))
	c, err := config.Load(file)
	must(t, err)
	return c
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func open(t *testing.T, more, list string) *Defence {
	t.Helper()
	d, err := Open(read(t, more, list))
	if errors.Is(err, unix.EPERM) && os.Getenv("MILLRACE_MUST_NETNS") == "" {
		t.Skip(err)
	}
	must(t, err)
	t.Cleanup(func() { must(t, d.Close()) })
	return d
}

func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }

func on(s string) Verdict { return Verdict{Source: prefix(s), Rule: "test"} }

// inKernel returns how many entries the kernel has.
func (d *Defence) inKernel(t *testing.T) (n int) {
	t.Helper()
	must(t, d.maps.Verdicts(func(ebpf.Verdict) { n++ }))
	return n
}

func TestVerdictsAreBounded(t *testing.T) {
	d := open(t, "  accept: [198.18.9.0/24]\n  drop: [198.18.8.0/24]\n", "")
	for i := range 4 {
		must(t, d.Submit(on(fmt.Sprintf("198.18.0.%d/32", i+1))))
	}
	for s, want := range map[string]error{"198.18.0.5/32": ErrFull, "198.18.9.7/32": ErrAccepted, "198.18.8.0/24": ErrListed} {
		if err := d.Submit(on(s)); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", s, err, want)
		}
	}
	st, err := d.Status()
	must(t, err)
	if len(st.Verdicts) != 4 || st.Refused["full"] != 1 || st.Refused["accepted"] != 1 || st.Refused["listed"] != 1 || st.Listed != 2 {
		t.Errorf("%+v", st)
	}
}

// A verdict that is decided on again begins anew and takes no second place; ended ones make place.
func TestVerdictsEndAndMakePlace(t *testing.T) {
	d := open(t, "", "")
	for range 3 {
		must(t, d.Submit(on("198.18.0.1/32")))
	}
	if n := d.verdicts.number.Load(); n != 1 {
		t.Errorf("%d places for one source", n)
	}
	d.sweep(time.Now().Add(2 * time.Second))
	if n := d.verdicts.number.Load(); n != 0 || d.inKernel(t) != 0 {
		t.Errorf("after the end %d places, %d entries in the kernel", n, d.inKernel(t))
	}
	must(t, d.Add(on("198.18.0.1/32"), true))
	d.sweep(time.Now().Add(time.Hour))
	if st, _ := d.Status(); len(st.Verdicts) != 1 || st.Verdicts[0].Left != 0 {
		t.Errorf("%+v, want one without an end", st.Verdicts)
	}
	must(t, d.Remove(prefix("198.18.0.1/32")))
	if err := d.Remove(prefix("198.18.0.1/32")); !errors.Is(err, ErrUnknown) {
		t.Error(err)
	}
}

// A verdict of the gateway does not shorten or weaken one in force; the operator's decides.
func TestVerdictInForceStays(t *testing.T) {
	const source = "198.18.0.1/32"
	type step struct {
		operator bool
		rate     int
		last     time.Duration // 0: until it is removed
	}
	gateway := func(rate int, last time.Duration) step { return step{rate: rate, last: last} }
	operator := func(rate int, last time.Duration) step { return step{operator: true, rate: rate, last: last} }
	d := open(t, "", "")
	for name, c := range map[string]struct {
		first, second step
		stays         bool
	}{
		"shorter":                        {gateway(0, time.Hour), gateway(0, time.Minute), true},
		"longer":                         {gateway(0, time.Minute), gateway(0, time.Hour), false},
		"shorter than the operator's":    {operator(0, time.Hour), gateway(0, time.Minute), true},
		"longer than the operator's":     {operator(0, time.Minute), gateway(0, time.Hour), true},
		"the operator's has no end":      {operator(0, 0), gateway(0, time.Hour), true},
		"the operator's is a limit":      {operator(10, time.Minute), gateway(0, time.Hour), true},
		"of the operator, shorter":       {operator(0, time.Hour), operator(0, time.Minute), false},
		"of the operator, a limit":       {gateway(0, time.Hour), operator(10, time.Minute), false},
		"a drop in place of a limit":     {gateway(10, time.Hour), gateway(0, time.Minute), false},
		"a limit in place of a drop":     {gateway(0, time.Minute), gateway(10, time.Hour), true},
		"a limit that is longer":         {gateway(10, time.Minute), gateway(20, time.Hour), false},
		"of the operator, without end":   {operator(0, time.Minute), operator(0, 0), false},
		"after one that has ended":       {gateway(0, time.Nanosecond), gateway(10, time.Minute), false},
		"after an operator's that ended": {operator(0, time.Nanosecond), gateway(10, time.Minute), false},
	} {
		t.Run(name, func(t *testing.T) {
			give := func(s step) error {
				v := on(source)
				v.Rate, v.For = s.rate, s.last
				if s.operator {
					return d.Add(v, s.last == 0)
				}
				return d.Submit(v)
			}
			must(t, give(c.first))
			time.Sleep(time.Microsecond)
			before := d.refused[refusedKept].Load()
			err, want := give(c.second), c.second
			if c.stays {
				want = c.first
			}
			if errors.Is(err, errKept) != c.stays || err != nil && !c.stays || d.refused[refusedKept].Load()-before != map[bool]uint64{true: 1}[c.stays] {
				t.Errorf("the second: %v", err)
			}
			st, err := d.Status()
			must(t, err)
			if v := st.Verdicts; len(v) != 1 || v[0].Packets != want.rate || time.Duration(v[0].Left*1e9) > want.last || want.last-time.Duration(v[0].Left*1e9) > 30*time.Second {
				t.Errorf("listed %+v, want %+v", v, want)
			}
			d.wantInKernel(t, source, want.rate, want.last)
			must(t, d.Remove(prefix(source)))
			if n := d.inKernel(t); n != 0 || d.verdicts.number.Load() != 0 {
				t.Errorf("%d entries after the removal, %d places", n, d.verdicts.number.Load())
			}
		})
	}
}

// wantInKernel checks the one entry of the kernel.
func (d *Defence) wantInKernel(t *testing.T, source string, rate int, last time.Duration) {
	t.Helper()
	n := 0
	must(t, d.maps.Verdicts(func(v ebpf.Verdict) {
		n++
		if v.Prefix != prefix(source) || int(v.Rate) != rate || v.For > last || last-v.For > 30*time.Second {
			t.Errorf("the kernel has %+v, want %s at %d for %v", v, source, rate, last)
		}
	}))
	if n != 1 {
		t.Errorf("%d entries in the kernel", n)
	}
}

// At max_verdicts the verdicts that are in force are still renewed.
func TestVerdictIsRenewedAtTheBound(t *testing.T) {
	d := open(t, "", "")
	for i := range 4 {
		must(t, d.Submit(on(fmt.Sprintf("198.18.0.%d/32", i+1))))
	}
	for i := range 4 {
		v := on(fmt.Sprintf("198.18.0.%d/32", i+1))
		v.For = time.Hour
		must(t, d.Submit(v))
	}
	if err := d.Submit(on("198.18.0.9/32")); !errors.Is(err, ErrFull) {
		t.Errorf("a fifth: %v", err)
	}
	st, err := d.Status()
	must(t, err)
	if len(st.Verdicts) != 4 || st.Verdicts[0].Left < 3500 || st.Verdicts[3].Left < 3500 || d.verdicts.number.Load() != 4 {
		t.Errorf("%+v", st.Verdicts)
	}
}

// Whatever goroutines do at once, the kernel has in the end what the list has.
func TestConcurrentVerdictsAgreeWithTheKernel(t *testing.T) {
	d := open(t, "", "")
	const sources, writers, each = 6, 4, 200
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			r := rand.New(rand.NewPCG(uint64(w), 1))
			for range each {
				v := on(fmt.Sprintf("198.18.0.%d/32", 1+r.IntN(sources)))
				v.Rate, v.For = 1000*r.IntN(3), time.Minute*time.Duration(1+r.IntN(50))
				switch r.IntN(4) {
				case 0:
					_ = d.Add(v, false)
				case 1:
					_ = d.Remove(v.Source)
				default:
					_ = d.Submit(v)
				}
			}
		})
	}
	all.Wait()
	kernel := map[netip.Prefix]ebpf.Verdict{}
	must(t, d.maps.Verdicts(func(v ebpf.Verdict) { kernel[v.Prefix] = v }))
	st, err := d.Status()
	must(t, err)
	if len(st.Verdicts) != len(kernel) || d.verdicts.number.Load() != int64(len(kernel)) || len(kernel) > 4 {
		t.Errorf("%d verdicts listed, %d places, %d in the kernel", len(st.Verdicts), d.verdicts.number.Load(), len(kernel))
	}
	for _, v := range st.Verdicts {
		k, ok := kernel[v.Source]
		if left := time.Duration(v.Left * 1e9); !ok || int(k.Rate) != v.Packets || (k.For-left).Abs() > 30*time.Second {
			t.Errorf("listed %+v, the kernel has %+v", v, k)
		}
	}
}

// The kernel is given so many verdicts in a second, and as many in the next.
func TestVerdictsOfASecondAreBounded(t *testing.T) {
	var l limiter
	for _, second := range []int64{100, 101} {
		for n := range verdictsPerSecond + 5 {
			if got, want := l.take(time.Unix(second, int64(n))), n < verdictsPerSecond; got != want {
				t.Fatalf("second %d, call %d: %v", second, n, got)
			}
		}
	}
	if l.take(time.Unix(100, 999)) || l.take(time.Unix(101, 999)) {
		t.Error("a call that is late by a second begins another")
	}
	if !l.take(time.Unix(50, 0)) {
		t.Error("a clock that was set back refuses verdicts until it comes to where it was")
	}
}

// A reload that fails leaves nothing that the next one does not remove.
func TestReloadAfterOneThatFailed(t *testing.T) {
	d := open(t, "  drop: [list.txt]\n", "198.18.8.0/24\n198.18.7.7\n")
	broken := read(t, "  drop: [list.txt]\n", "198.18.6.6\n198.18.5.5\n")
	p := broken.DefenceLists().Prefixes
	p[1].Accept, p[1].Packets = true, 1 // an entry that the kernel cannot have
	if err := d.Reload(broken); !errors.Is(err, ebpf.ErrValue) {
		t.Fatal(err)
	}
	must(t, d.Reload(read(t, "  drop: [list.txt]\n", "198.18.7.7\n")))
	d.wantInKernel(t, "198.18.7.7/32", 0, 0)
}

// The entries behind the one that failed were not written. Callers of Submit read the policy meanwhile, so that it does not change.
func TestListsThatFailedAreWrittenAgain(t *testing.T) {
	d := open(t, "  drop: [list.txt]\n", "198.18.8.0/24\n")
	broken := read(t, "  drop: [list.txt]\n", "198.18.5.5\n198.18.6.6\n")
	p := broken.DefenceLists().Prefixes
	p[0].Accept, p[0].Packets = true, 1 // an entry that the kernel cannot have
	behind := p[1].Prefix
	if err := d.Reload(broken); !errors.Is(err, ebpf.ErrValue) {
		t.Fatal(err)
	}
	if listed := d.policy.Load().listed; len(listed) != 1 {
		t.Errorf("the policy in force lists %v", listed)
	}
	must(t, d.Reload(read(t, "  drop: [list.txt]\n", behind.Addr().String()+"\n")))
	d.wantInKernel(t, behind.String(), 0, 0)
}

func TestReloadChangesLists(t *testing.T) {
	d := open(t, "  drop: [list.txt]\n", "198.18.8.0/24\n2001:db8::/32\n198.18.7.7\n")
	if n := d.inKernel(t); n != 3 {
		t.Errorf("%d entries, want 3", n)
	}
	must(t, d.Submit(on("198.18.0.1/32")))
	must(t, d.Submit(on("198.18.0.2/32")))
	must(t, d.Reload(read(t, "  drop: [list.txt]\n  accept: [198.18.0.2/31]\n  rates: [{sources: [192.0.2.0/24], packets: 10}]\n", "198.18.8.0/24\n198.18.0.1\n")))
	st, err := d.Status()
	must(t, err)
	if len(st.Verdicts) != 0 || st.Listed != 4 || d.inKernel(t) != 4 || d.verdicts.number.Load() != 0 {
		t.Errorf("%+v, %d entries in the kernel, %d places; want 4 of lists and no verdicts", st, d.inKernel(t), d.verdicts.number.Load())
	}
}

func TestExcessFindsTheSourceThatIsRefusedMost(t *testing.T) {
	e := NewExcess(100, time.Second)
	heavy, now := netip.MustParseAddr("198.18.0.1"), time.Duration(0)
	found := 0
	for i := range 400 {
		now += time.Millisecond
		if e.Add(heavy, 1, now) {
			found++
		}
		for j := range 50 { // others, each once or twice
			if e.Add(netip.AddrFrom4([4]byte{10, byte(j), byte(i >> 8), byte(i)}), 1, now) {
				t.Fatal("a source that was refused once is reported")
			}
		}
	}
	if found < 3 || found > 4 {
		t.Errorf("reported %d times for 400 refusals, want once in 100", found)
	}
	if e.Add(heavy, 99, now+2*time.Second) {
		t.Error("counts of another window are added")
	}
	if !e.Add(heavy, 1, now+2*time.Second) {
		t.Error("the hundredth of a window is not reported")
	}
}

// Of two sources that share a place the more frequent one keeps it, less what the other was refused (the vote of Boyer and
// Moore). One that was refused as often as what is left takes the place.
func TestExcessSharesAPlaceByVote(t *testing.T) {
	e := NewExcess(100, time.Second)
	place := func(a netip.Addr) uint64 { return maphash.Comparable(e.seed, a) % excessPlaces }
	a := netip.MustParseAddr("198.18.0.1")
	b := a.Next()
	for place(b) != place(a) {
		b = b.Next()
	}
	for i, c := range []struct {
		source netip.Addr
		n      int
		want   bool
	}{
		{a, 60, false},
		{b, 59, false}, // 1 of a is left
		{a, 98, false}, // 99
		{a, 1, true},   // 100
		{a, 150, true}, // 250
		{b, 249, false},
		{b, 1, false}, // takes the place of a, of which 1 was left
		{b, 98, false},
		{b, 1, true},
	} {
		if got := e.Add(c.source, c.n, 0); got != c.want {
			t.Fatalf("step %d: %v, want %v", i, got, c.want)
		}
	}
}

func TestSourceIsAnAddressOrA64(t *testing.T) {
	for addr, want := range map[string]string{"198.18.0.1": "198.18.0.1/32", "::ffff:198.18.0.1": "198.18.0.1/32", "2001:db8:1:2:3::4": "2001:db8:1:2::/64", "fe80::1%eth0": "fe80::/64"} {
		if got := Source(netip.MustParseAddr(addr)); got.String() != want {
			t.Errorf("%s: %v, want %s", addr, got, want)
		}
	}
}

// A verdict that was decided by the lists before a reload does not outlive those behind it.
func TestVerdictOfTheListsBeforeAReload(t *testing.T) {
	d := open(t, "", "")
	before := d.policy.Load()
	must(t, d.Reload(read(t, "  accept: [198.18.0.1]\n  drop: [198.18.0.2]\n", "")))
	for s, want := range map[string]error{"198.18.0.1/32": ErrAccepted, "198.18.0.2/32": ErrListed} {
		v := on(s)
		v.Rate = 77
		if err := d.submit(before, v, false); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", s, err, want)
		}
	}
	if st, _ := d.Status(); len(st.Verdicts) != 0 || d.verdicts.number.Load() != 0 || d.inKernel(t) != 2 {
		t.Errorf("%+v, %d places, %d entries in the kernel", st.Verdicts, d.verdicts.number.Load(), d.inKernel(t))
	}
	must(t, d.maps.Verdicts(func(v ebpf.Verdict) {
		if v.Rate != 0 {
			t.Errorf("the kernel has %+v", v)
		}
	}))
}

// between calls f once, at a step of the changes of this test.
func between(t *testing.T, at string, f func()) {
	was, called := step, false
	t.Cleanup(func() {
		if step = was; !called {
			t.Errorf("the step %q was not reached", at)
		}
	})
	step = func(what string) {
		if what == at && !called {
			called = true
			f()
		}
	}
}

// Of two decisions on one prefix at once the kernel has the one that the list has.
func TestAVerdictReplacesOneThatIsBeingWritten(t *testing.T) {
	d := open(t, "", "")
	v := on("198.18.0.1/32")
	v.Rate, v.For = 10, time.Hour
	between(t, "written", func() { // before another goroutine has written it, which the list has by now
		second := v
		second.Rate = 20
		must(t, d.Add(second, false))
		must(t, d.maps.Put(ebpf.Verdict{Prefix: v.Source, Rule: d.rules.number("test"), Rate: 10, For: time.Hour})) // the first writes last
	})
	must(t, d.Add(v, false))
	d.wantInKernel(t, "198.18.0.1/32", 20, time.Hour)
}

// A verdict that is decided while a reload lists its prefix leaves the prefix to the list.
func TestAVerdictThatIsBeingWrittenBesideAReload(t *testing.T) {
	d := open(t, "", "")
	v := on("198.18.0.1/32")
	v.Rate, v.For = 10, time.Hour
	between(t, "written", func() {
		must(t, d.Reload(read(t, "  drop: [list.txt]\n", "198.18.0.1\n")))
		must(t, d.maps.Put(ebpf.Verdict{Prefix: v.Source, Rate: 10, For: time.Hour})) // it writes last
	})
	if err := d.Submit(v); !errors.Is(err, ErrListed) {
		t.Error(err)
	}
	d.wantInKernel(t, "198.18.0.1/32", 0, 0)
}

// A verdict that ends while a reload lists its prefix takes nothing out of the list.
func TestAVerdictEndsBesideAReload(t *testing.T) {
	d := open(t, "", "")
	v := on("198.18.0.1/32")
	v.Rate, v.For = 10, time.Hour
	must(t, d.Add(v, false))
	between(t, "listed", func() { must(t, d.Remove(v.Source)) })
	must(t, d.Reload(read(t, "  drop: [list.txt]\n", "198.18.0.1\n")))
	d.wantInKernel(t, "198.18.0.1/32", 0, 0)
}

// A verdict that has ended is not shown, though nothing has removed it yet.
func TestStatusHasNoEndedVerdicts(t *testing.T) {
	d := open(t, "", "")
	for s, last := range map[string]time.Duration{"198.18.0.1/32": time.Millisecond, "198.18.0.2/32": time.Hour} {
		v := on(s)
		v.For = last
		must(t, d.Add(v, false))
	}
	time.Sleep(10 * time.Millisecond)
	if s, err := d.Status(); err != nil || len(s.Verdicts) != 1 || s.Verdicts[0].Source != prefix("198.18.0.2/32") || s.Rules[0].Verdicts != 1 {
		t.Errorf("%+v, %v", s, err)
	}
}

// A reload takes a prefix off the lists while an older goroutine writes what they had: the kernel ends with nothing.
func TestAListThatIsBeingWrittenBesideAReload(t *testing.T) {
	d := open(t, "  drop: [list.txt]\n", "198.18.0.1\n")
	source := prefix("198.18.0.1/32")
	between(t, "written", func() {
		must(t, d.Reload(read(t, "", "")))
		must(t, d.maps.Put(ebpf.Verdict{Prefix: source})) // it writes last
	})
	must(t, d.write(source))
	if n := d.inKernel(t); n != 0 {
		t.Errorf("the kernel has %d entries", n)
	}
}

// A driver's loss of its interface comes beside the look for interfaces that have come back: for the race detector.
func TestReattachBesideGone(t *testing.T) {
	d := &Defence{devices: []*device{{name: "a", opened: true}}}
	var wg sync.WaitGroup
	wg.Go(func() {
		for range 1000 {
			d.reattach()
		}
	})
	wg.Go(func() {
		for range 1000 {
			d.Gone("a")
		}
	})
	wg.Wait()
}

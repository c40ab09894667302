package inspection

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/filter"
	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/gpukern/tuple"
	"github.com/millrace/millrace/l4/datapath"
	"github.com/millrace/millrace/packet"
)

// accessOf compiles access rules.
func accessOf(t *testing.T, rules string) *access {
	t.Helper()
	list, err := filter.Parse("r", rules)
	if err != nil {
		t.Fatal(err)
	}
	a, err := newAccess(list.Rules())
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// Loops share the buckets of a rate, whatever the differences of their clocks.
func TestRateIsThatOfAllLoops(t *testing.T) {
	for _, rule := range []string{"rate 1kpps burst 10", "rate 1kpps burst 10 per source"} {
		a := accessOf(t, rule)
		var loops sync.WaitGroup
		var passed [4]int
		for loop := range passed {
			loops.Go(func() {
				for i := range 10_000 { // a second
					at := clock.Time(time.Hour) + clock.Time(i)*clock.Time(100*time.Microsecond) - clock.Time(loop)*clock.Time(300*time.Microsecond)
					if a.verdict(1, tuple.Tuple{SrcHi: 7, Known: tuple.Addresses}, true, 60, at) == packet.Undecided {
						passed[loop]++
					}
				}
			})
		}
		loops.Wait()
		n := 0
		for _, p := range passed {
			n += p
		}
		if n < 10+990 || n > 10+1001 {
			t.Errorf("%s: %v pass in a second", rule, passed)
		}
	}
}

// No token is given out twice, however many loops ask at once.
func TestTokensAreGivenOutOnce(t *testing.T) {
	a := accessOf(t, "rate 1pps burst 20000 per source")
	var loops sync.WaitGroup
	var passed atomic.Int64
	for range 4 {
		loops.Go(func() {
			for range 10_000 {
				if a.verdict(1, tuple.Tuple{SrcHi: 7, Known: tuple.Addresses}, true, 60, clock.Time(time.Hour)) == packet.Undecided {
					passed.Add(1)
				}
			}
		})
	}
	loops.Wait()
	if n := passed.Load(); n != 20_000 {
		t.Errorf("%d of a burst of 20000 pass", n)
	}
}

// A reload fills no bucket of a line that stays: a source beyond its rate stays beyond it.
func TestBucketsOutliveAReload(t *testing.T) {
	for _, rule := range []string{"rate 1pps burst 2 udp from 192.0.2.1\n", "rate 1pps burst 2 per source udp\n"} {
		i, dir := opened(t, "", rule, "alerts.json")
		l, now := i.Loop(0), clock.Time(time.Hour)
		var got []packet.Verdict
		for n := range 4 {
			if n == 2 {
				write(t, dir+"/a.access", "allow udp from 192.0.2.77\n"+rule)
				if err := i.Reload(parsed(t, dir, "alerts.json")); err != nil {
					t.Fatal(err)
				}
			}
			got = append(got, inspect1(l, now, uint16(1000+n), "x"))
		}
		if got[1] != packet.Forward || got[2] != packet.DropRateLimit || got[3] != packet.DropRateLimit {
			t.Errorf("%s: %v", rule, got)
		}
		if err := i.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A rule with capture writes its packets, also those that it drops, and no others.
func TestAccessRulesCapture(t *testing.T) {
	i, _ := opened(t, "", "deny capture udp from any port 1000\nallow capture udp from any port 1001\ndeny udp from any port 1002\n", "alerts.json")
	for n := range 4 { // of connections that are open: no alert writes them too
		inspectIn(i.Loop(0), datagramOf(uint16(1000+n), "x"), &datapath.Inspected{Now: clock.Time(n), FromClient: true})
	}
	if n, lost := i.packets.Load().counts(); n != 2 || lost != 0 {
		t.Errorf("%d packets are written and %d lost, want 2", n, lost)
	}
	if err := i.Close(); err != nil {
		t.Error(err)
	}
}

// The loops share the memory of a policy, and a file of packets that is there already counts against its size.
func TestBoundsAreThoseOfThePolicyAndTheFile(t *testing.T) {
	i, dir := openedAs(t, "", "deny capture udp\n", Options{}, func(c *config.Config) { c.Inspection.Memory = 64 << 20 })
	i.SetLoops(4)
	if cfg := i.Loop(0).config(i.set.Load().policy(1)); cfg.MemoryBytes != liveBytes(16<<20) {
		t.Errorf("a loop of four has %d bytes of 64 MiB", cfg.MemoryBytes)
	}
	inspect1(i.Loop(0), 1, 1000, "x")
	if n := liveBytes(64 << 20); n < 8<<20 || n > 32<<20 { // as much again is garbage
		t.Errorf("%d bytes of 64 MiB may be in use", n)
	}
	if err := i.Close(); err != nil {
		t.Fatal(err)
	}
	size := sizeOf(dir + "/p.pcapng")
	again, err := Open(parsed(t, dir, "alerts.json"), Options{Wall: func(clock.Time) time.Time { return time.Unix(1, 0) }})
	if err != nil {
		t.Fatal(err)
	}
	if f := again.packets.Load(); size < 200 || f.size != size {
		t.Errorf("the file had %d bytes, %d are counted", size, f.size)
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
}

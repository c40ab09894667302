package pool

import (
	"math/rand/v2"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/clock"
)

// affinePool is a pool with so many backends.
func affinePool(t *testing.T, n int) *Pool {
	t.Helper()
	p, err := New(Options{Name: "p"}, affineBackends(n), 1)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func affineBackends(n int) (list []BackendOptions) {
	for i := range n {
		list = append(list, BackendOptions{Name: string(rune('a' + i)), Address: netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 18, 1, byte(i)}), 80)})
	}
	return list
}

// A key keeps its backend for the time since its last use, over reloads, and leaves one that serves no more.
func TestKeysKeepTheirBackend(t *testing.T) {
	p, a := affinePool(t, 3), NewAffinity(100, time.Minute)
	now := clock.Time(time.Hour)
	at := func(s int) clock.Time { return now + clock.Time(s)*clock.Time(time.Second) }
	if b := p.Kept(now, a, 7); b != nil {
		t.Fatalf("%s of an empty table", b.Name())
	}
	b := p.ByName("b")
	a.Set(now, 7, b)
	if p.Kept(at(59), a, 7) != b || p.Kept(at(60), a, 7) != nil || p.Kept(now, a, 8) != nil {
		t.Error("the time of a key is not that of the table")
	}
	a.Set(at(30), 7, b)
	if p.Kept(at(89), a, 7) != b || p.Kept(at(90), a, 7) != nil {
		t.Error("a use does not prolong the time")
	}
	if err := p.Update(now, Options{Name: "p"}, affineBackends(3)); err != nil {
		t.Fatal(err)
	}
	if got := p.Kept(at(30), a, 7); got == nil || got.Name() != "b" {
		t.Error("a reload loses keys")
	}
	b.SetHealthy(at(30), false, nil)
	if p.Kept(at(31), a, 7) != nil {
		t.Error("an unhealthy backend keeps a key")
	}
	b.SetHealthy(at(32), true, nil)
	if p.Kept(at(33), a, 7) != b {
		t.Error("a key does not return to its backend")
	}
	a.Set(at(34), 7, p.ByName("c"))
	if p.Kept(at(35), a, 7) != p.ByName("c") {
		t.Error("a key does not change its backend")
	}
	if err := p.Update(at(36), Options{Name: "p"}, affineBackends(2)); err != nil {
		t.Fatal(err)
	}
	if p.Kept(at(36), a, 7) != nil {
		t.Error("a backend that is gone keeps a key")
	}
	if s := a.Stats(); s.Hits != 5 || s.Misses != 6 || s.Evicted != 0 {
		t.Errorf("%+v", s)
	}
}

// The table never grows: keys that were not used for longest make room.
func TestTheTableOfKeysIsBounded(t *testing.T) {
	p, a := affinePool(t, 2), NewAffinity(64, time.Hour)
	b := p.ByName("a")
	for key := range uint64(64 + 8) { // of eight buckets, each has nine keys
		a.Set(clock.Time(key+1), key, b)
	}
	if used, s := a.used(100), a.Stats(); used != 64 || s.Evicted != 8 {
		t.Errorf("%d keys, %+v", used, s)
	}
	for key := range uint64(72) {
		if _, ok := a.find(100, key); ok != (key >= 8) {
			t.Errorf("key %d: %v", key, ok)
		}
	}
	if used := a.used(clock.Time(2 * time.Hour)); used != 0 {
		t.Errorf("%d keys after their time", used)
	}
	for key := range uint64(64) { // of keys whose time is over none counts
		a.Set(clock.Time(2*time.Hour), 1000*64+key, b)
	}
	if s := a.Stats(); s.Evicted != 8 {
		t.Errorf("%+v", s)
	}
	for entries, want := range map[int]int{0: 8, 1: 8, 8: 8, 9: 16, 65536: 65536, 100000: 131072} {
		if n := len(NewAffinity(entries, time.Hour).buckets) * affinityWays; n != want {
			t.Errorf("%d entries: %d places", entries, n)
		}
	}
}

// Loops that use the table at a time find a backend that was set for the key, whatever they do to others of its bucket.
func TestLoopsShareTheTableOfKeys(t *testing.T) {
	p, a := affinePool(t, 4), NewAffinity(64, time.Hour)
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			random := rand.New(rand.NewPCG(uint64(i), 1))
			for n := range 20000 {
				key := random.Uint64N(200)
				if b := p.Kept(clock.Time(n), a, key); b != nil && b.Name() != string(rune('a'+key%4)) {
					t.Errorf("key %d has %s", key, b.Name())
					return
				}
				a.Set(clock.Time(n), key, p.ByName(string(rune('a'+key%4))))
			}
		})
	}
	all.Wait()
}

// used returns how many keys are in use.
func (a *Affinity) used(now clock.Time) (n int) {
	for i := range a.buckets {
		for k := range a.buckets[i] {
			if a.buckets[i][k].until > now {
				n++
			}
		}
	}
	return n
}

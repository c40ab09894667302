package flow

import (
	"math/rand/v2"
	"strings"
	"testing"
	"unsafe"
)

func newFlows(t testing.TB, cfg Config) *Table {
	t.Helper()
	f, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func TestFlowTablesThatAreTooLargeAreRefused(t *testing.T) {
	for want, cfg := range map[string]Config{
		"16777216":     {Flows: MaxFlows + 1},
		"1 to":         {Flows: 0},
		"4096":         {Flows: 1, Idle: MaxIdle + 1},
		"idle epochs ": {Flows: 1, Idle: -1},
	} {
		if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %s", cfg, err, want)
		}
	}
	if n := unsafe.Sizeof(entry{}); n != 64 {
		t.Errorf("an entry has %d bytes", n)
	}
}

// randomKey returns a key that no other call returns.
func randomKey(r *rand.Rand) key {
	return key{r.Uint64(), r.Uint64(), r.Uint64(), r.Uint64(), r.Uint64()<<32 | uint64(r.Uint32()&0xff)<<16 | 2}
}

// TestATableHoldsItsFlows measures how many flows find no room, at the size that the table was made for
// and above.
func TestATableHoldsItsFlows(t *testing.T) {
	for _, flows := range []int{1, 10, 100, 5000, 1 << 20} {
		table := newFlows(t, Config{Flows: flows, Seed: 1})
		r := rand.New(rand.NewPCG(uint64(flows), 1))
		fill := func(n int) uint64 {
			before := table.Stats().Full
			for range n {
				k := randomKey(r)
				table.find(&k, table.hash.sum(&k))
			}
			return table.Stats().Full - before
		}
		lost := fill(flows)
		if lost > uint64(flows)/50000 {
			t.Errorf("%d of %d flows found no room", lost, flows)
		}
		if flows < 5000 {
			continue
		}
		if table.Len() != flows-int(lost) {
			t.Errorf("%d flows, want %d", table.Len(), flows)
		}
		more := flows / 8
		full := fill(more)
		t.Logf("%d flows: %d bytes each, %d found no room; of %d more, %d", flows, table.Size()/flows, lost, more, full)
		if full > uint64(more)/100 {
			t.Errorf("%d of %d flows more found no room", full, more)
		}
	}
}

func TestDeletedFlowsAreForgotten(t *testing.T) {
	table := newFlows(t, Config{Flows: 12, Seed: 1})
	r := rand.New(rand.NewPCG(1, 1))
	keys := make([]key, 16)
	slot := make([]uint32, len(keys))
	for i := range keys {
		keys[i] = randomKey(r)
		slot[i] = table.find(&keys[i], table.hash.sum(&keys[i])) + 1
	}
	for i := range keys {
		if _, ok := table.Entry(slot[i]); !ok || !table.Delete(slot[i]) || table.Delete(slot[i]) {
			t.Fatalf("flow %d is not deleted once", i)
		}
		if table.Len() != len(keys)-1-i {
			t.Fatalf("%d flows", table.Len())
		}
		for k := i + 1; k < len(keys); k++ {
			if got := table.find(&keys[k], table.hash.sum(&keys[k])) + 1; got != slot[k] {
				t.Fatalf("flow %d moved from slot %d to %d", k, slot[k], got)
			}
		}
	}
	if table.Delete(0) || table.Delete(table.Slots()+1) {
		t.Error("slots that do not exist are deleted")
	}
	if _, ok := table.Entry(table.Slots() + 1); ok {
		t.Error("a slot that does not exist has a flow")
	}
}

// TestAFlowWhoseHashIsZero has a tag nevertheless.
func TestAFlowWhoseHashIsZeroHasATag(t *testing.T) {
	table := newFlows(t, Config{Flows: 1000, Seed: 1})
	r := rand.New(rand.NewPCG(1, 1))
	for range 3 {
		k := randomKey(r)
		for table.hash.sum(&k)&0xffff != 0 {
			k.aHi++
		}
		i := table.find(&k, table.hash.sum(&k))
		if f, ok := table.Entry(i + 1); !ok || f.First != 0 || table.find(&k, table.hash.sum(&k)) != i {
			t.Fatalf("slot %d: %+v", i+1, f)
		}
	}
	if table.Len() != 3 {
		t.Errorf("%d flows, want 3", table.Len())
	}
}

// TestEpochsWrap: tags have 15 bits of them. A flow is over after the idle limit, until it looks young
// again after 16384 epochs, and Entry tells the epoch of its last packet up to there.
func TestEpochsWrap(t *testing.T) {
	table := newFlows(t, Config{Flows: 1000, Idle: MaxIdle, Seed: 1})
	table.epoch = 1<<32 - 5000 // and the epoch itself wraps
	k := key{aHi: 1, rest: 2}
	i := table.find(&k, table.hash.sum(&k))
	for age, idle := range map[uint32]bool{0: false, 1: false, MaxIdle: false, MaxIdle + 1: true, 1<<14 - 1: true, 1 << 14: false} {
		table.epoch = 1<<32 - 5000 + age
		f, ok := table.Entry(i + 1)
		if !ok || f.Idle != idle || f.First != 1<<32-5000 || f.Last != 1<<32-5000 {
			t.Errorf("age %d: %+v, want idle %v", age, f, idle)
		}
	}
}

// TestFlowHash compares with numbers that another program made from the definition.
func TestFlowHash(t *testing.T) {
	v4 := key{0xc0000201 << 32, 0, 0xc0000202 << 32, 0, 4096<<48 | 53<<32 | 17<<16 | 1<<8 | 2}
	v6 := key{0x20010db800000000, 1, 0x20010db800000000, 2, 58<<16 | 1}
	for _, tc := range []struct{ seed, v4, v6 uint64 }{
		{1, 0xc1b85bcad70d4660, 0xa46769cf1d4be3e9},
		{0xdeadbeefcafe, 0x7c346fa57c188421, 0x4814c303345d510b},
	} {
		var h hasher
		h.seeded(tc.seed)
		if a, b := h.sum(&v4), h.sum(&v6); a != tc.v4 || b != tc.v6 {
			t.Errorf("seed %x: %#x, %#x", tc.seed, a, b)
		}
	}
}

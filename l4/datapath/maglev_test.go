package datapath

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

func sharesOf(n int) (s []Share) {
	for i := range n {
		s = append(s, Share{Name: fmt.Sprintf("backend-%d", i), Weight: 1, ID: uint32(100 + i)})
	}
	return s
}

// counts returns the slots of each backend.
func counts(m *maglev) map[uint32]int {
	n := map[uint32]int{}
	for i := range m.slots {
		id, _ := m.Pick(uint64(i))
		n[id]++
	}
	return n
}

func TestEverySlotHoldsABackendAndSharesAreEven(t *testing.T) {
	for _, size := range []int{251, 1021, 65537} {
		for _, n := range []int{1, 2, 3, 10, 100} {
			m := newMaglev(sharesOf(n), size)
			got := counts(&m)
			if len(got) != n || len(m.slots) != size {
				t.Fatalf("size %d: %d of %d backends in %d slots", size, len(got), n, len(m.slots))
			}
			for id, c := range got {
				if c < size/n || c > size/n+1 {
					t.Errorf("size %d, %d backends: %d has %d slots", size, n, id, c)
				}
			}
		}
	}
}

func TestSlotsFollowTheWeights(t *testing.T) {
	shares := []Share{{"a", 1, 1}, {"b", 2, 2}, {"c", 7, 3}, {"off", 0, 4}, {"d", 990, 5}}
	m := newMaglev(shares, 65537)
	got := counts(&m)
	if got[4] != 0 {
		t.Errorf("weight 0 has %d slots", got[4])
	}
	for _, s := range shares {
		want := 65537 * s.Weight / 1000
		if d := got[s.ID] - want; d < -2 || d > 2 {
			t.Errorf("weight %d has %d slots, want %d", s.Weight, got[s.ID], want)
		}
	}
}

func TestTheOrderOfBackendsDoesNotMatter(t *testing.T) {
	shares := sharesOf(20)
	for i := range shares {
		shares[i].Weight = 1 + i%3
	}
	want := newMaglev(shares, 1021)
	for range 10 {
		rand.Shuffle(len(shares), func(i, j int) { shares[i], shares[j] = shares[j], shares[i] })
		got := newMaglev(shares, 1021)
		for i := range got.slots {
			if a, b := got.ids[got.slots[i]], want.ids[want.slots[i]]; a != b {
				t.Fatalf("slot %d is %d, was %d", i, a, b)
			}
		}
	}
}

// Gateways must agree with each other over versions and machines: the table and the hash are pinned.
func TestTheSelectionIsTheSameEverywhere(t *testing.T) {
	m := newMaglev(sharesOf(5), 251)
	var got []uint32
	for i := range 16 {
		id, _ := m.Pick(selection.sum(addr4([]byte{198, 18, 0, byte(i)}), uint64(40000+i)<<16|80))
		got = append(got, id-100)
	}
	want := []uint32{4, 1, 1, 2, 1, 1, 0, 3, 1, 1, 3, 3, 2, 0, 0, 0}
	if !slices.Equal(got, want) {
		t.Errorf("got %d, want %d", got, want)
	}
}

// The paper's claim: when a backend leaves, its slots move and few others do. Beyond the tenth that
// must move, at most 2 % of all slots may.
func TestFewSlotsMoveWhenOneOfTenBackendsLeaves(t *testing.T) {
	all := sharesOf(10)
	before := newMaglev(all, 65537)
	for gone := range all {
		after := newMaglev(slices.Delete(slices.Clone(all), gone, gone+1), 65537)
		moved := 0
		for i := range before.slots {
			was, is := before.ids[before.slots[i]], after.ids[after.slots[i]]
			if was != is && was != all[gone].ID {
				moved++
			}
		}
		if share := float64(moved) / 65537; share > 0.02 {
			t.Errorf("without %d, %.2f %% of the slots move that need not", gone, 100*share)
		}
	}
}

func TestNoBackendIsPickedFromNone(t *testing.T) {
	for _, shares := range [][]Share{nil, {{"a", 0, 1}}} {
		m := newMaglev(shares, 251)
		if _, ok := m.Pick(7); ok {
			t.Error("picked a backend")
		}
	}
}

// TestConnectionsSpreadEvenly runs the whole selection, hash and table, over clients of one network.
func TestConnectionsSpreadEvenly(t *testing.T) {
	m := newMaglev(sharesOf(10), 65537)
	n := map[uint32]int{}
	for host := range 100 {
		for port := range 1000 {
			id, _ := m.Pick(selection.sum(addr4([]byte{198, 18, 0, byte(host)}), uint64(32768+port)<<16|80))
			n[id]++
		}
	}
	for id, c := range n {
		if c < 9500 || c > 10500 {
			t.Errorf("backend %d has %d of 100000 connections", id, c)
		}
	}
}

func BenchmarkMaglevTable(b *testing.B) {
	shares := sharesOf(100)
	for b.Loop() {
		newMaglev(shares, 65537)
	}
}

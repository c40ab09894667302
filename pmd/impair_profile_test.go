package pmd_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/pmd"
)

func TestProfileTextStandsForTheStruct(t *testing.T) {
	both := func(d pmd.Impairment) pmd.Profile { return pmd.Profile{Rx: d, Tx: d} }
	const ms = time.Millisecond
	tests := []struct {
		text, canonical string
		want            pmd.Profile
	}{
		{"", "", pmd.Profile{}},
		{"seed=7", "seed=7", pmd.Profile{Seed: 7}},
		{"delay=10ms±2ms", "delay=10ms±2ms", both(pmd.Impairment{Delay: 10 * ms, Jitter: 2 * ms})},
		{"delay=1.5ms+-500us/normal", "delay=1.5ms±500µs/normal", both(pmd.Impairment{Delay: 1500 * time.Microsecond, Jitter: 500 * time.Microsecond, Shape: pmd.Normal})},
		{"burst=1%,25%", "burst=1%,25%,100%,0%", both(pmd.Impairment{Burst: pmd.Burst{Start: 1, End: 25, LostBad: 100}})},
		{"burst=0.1%,5%,80.1%,0.3%", "burst=0.1%,5%,80.1%,0.3%", both(pmd.Impairment{Burst: pmd.Burst{Start: 0.1, End: 5, LostBad: 80.1, LostGood: 0.3}})},
		{"rate=1.5mbit queue=64KiB", "rate=1500kbit queue=65536B", both(pmd.Impairment{Rate: 1_500_000, Queue: pmd.Queue{Bytes: 65536}})},
		{"rate=2gbit queue=10", "rate=2gbit queue=10", both(pmd.Impairment{Rate: 2e9, Queue: pmd.Queue{Packets: 10}})},
		{"loss=0.1% corrupt=0.01%,3 ce=1% dup=0.1%", "loss=0.1% dup=0.1% corrupt=0.01%,3 ce=1%", both(pmd.Impairment{Loss: 0.1, Dup: 0.1, Corrupt: 0.01, CorruptBits: 3, CE: 1})},
		{"corrupt=0%,3 reorder=0%,4ms", "", pmd.Profile{}},
		{"mtu=1400 reorder=0.5%,3ms fifo", "mtu=1400 reorder=0.5%,3ms fifo", both(pmd.Impairment{MTU: 1400, Reorder: 0.5, ReorderHold: 3 * ms, FIFO: true})},
		{
			"loss=1% rx: delay=5ms tx: delay=20ms loss=2% seed=3", "rx: loss=1% delay=5ms tx: loss=2% delay=20ms seed=3",
			pmd.Profile{Rx: pmd.Impairment{Loss: 1, Delay: 5 * ms}, Tx: pmd.Impairment{Loss: 2, Delay: 20 * ms}, Seed: 3},
		},
		{"tx: loss=100%", "rx: tx: loss=100%", pmd.Profile{Tx: pmd.Impairment{Loss: 100}}},
		{
			"delay=10ms±2ms loss=1% burst=1%,30% reorder=0.5% dup=0.1% corrupt=0.01% ce=1% rate=100mbit queue=64 seed=7",
			"loss=1% burst=1%,30%,100%,0% dup=0.1% corrupt=0.01% ce=1% rate=100mbit queue=64 delay=10ms±2ms reorder=0.5% seed=7",
			pmd.Profile{
				Rx: pmd.Impairment{Loss: 1, Burst: pmd.Burst{Start: 1, End: 30, LostBad: 100}, Dup: 0.1, Corrupt: 0.01, CE: 1, Rate: 1e8, Queue: pmd.Queue{Packets: 64}, Delay: 10 * ms, Jitter: 2 * ms, Reorder: 0.5},
				Tx: pmd.Impairment{Loss: 1, Burst: pmd.Burst{Start: 1, End: 30, LostBad: 100}, Dup: 0.1, Corrupt: 0.01, CE: 1, Rate: 1e8, Queue: pmd.Queue{Packets: 64}, Delay: 10 * ms, Jitter: 2 * ms, Reorder: 0.5}, Seed: 7,
			},
		},
	}
	for _, tt := range tests {
		got, err := pmd.ParseProfile(tt.text)
		if err != nil {
			t.Errorf("%q: %v", tt.text, err)
			continue
		}
		if d := cmp.Diff(tt.want, got); d != "" {
			t.Errorf("%q: %s", tt.text, d)
		}
		if got.String() != tt.canonical {
			t.Errorf("%q prints as %q, want %q", tt.text, got.String(), tt.canonical)
		}
		if again, err := pmd.ParseProfile(got.String()); err != nil || again != got {
			t.Errorf("%q prints as %q, which reads as %v, %v", tt.text, got, again, err)
		}
	}
}

func TestProfileErrorsPointAtTheColumn(t *testing.T) {
	tests := []struct {
		text   string
		column int
	}{
		{"lose=1%", 1},
		{"delay=10ms±2ms loss=1", 21},
		{"loss=101%", 6},
		{"loss=-1%", 6},
		{"loss=NaN%", 6},
		{"loss", 1},
		{"loss=1%  loss=2%", 10},
		{"tx: loss=1% rx: fifo=1", 17},
		{"burst=1%", 7},
		{"burst=1%,2%,3%,4%,5%", 19},
		{"burst=1%,x", 10},
		{"corrupt=1%,65", 12},
		{"corrupt=1%,0", 12},
		{"rate=100", 6},
		{"rate=0bit", 6},
		{"rate=1e30gbit", 6},
		{"rate=99999999999999999999mbit", 6},
		{"queue=0", 7},
		{"queue=5GB", 7},
		{"delay=10", 7},
		{"delay=-1ms", 7},
		{"delay=1ms±x", 11},
		{"delay=1ms±1ms/gauss", 15},
		{"delay=1ms/normal", 11},
		{"reorder=1%,1", 12},
		{"mtu=0", 5},
		{"loss=1% queue=64", 15},
		{"rx: rate=1mbit queue=5 tx: queue=6", 34},
		{"rx: queue=5 tx: rate=1mbit queue=6", 11},
		{"seed=-1", 6},
		{"seed", 1},
	}
	for _, tt := range tests {
		_, err := pmd.ParseProfile(tt.text)
		var pe *pmd.ProfileError
		if !errors.As(err, &pe) {
			t.Errorf("%q was accepted: %v", tt.text, err)
			continue
		}
		if pe.Column != tt.column {
			t.Errorf("%q: %v; want column %d", tt.text, err, tt.column)
		}
	}
}

func FuzzProfile(f *testing.F) {
	for _, s := range []string{
		"", "delay=10ms±2ms/pareto loss=1% burst=1%,25%,90%,0.1% reorder=0.5%,2ms dup=0.1% corrupt=0.01%,3 ce=1% rate=100mbit queue=64kB mtu=1400 fifo seed=7",
		"rx: loss=1% tx: delay=1ms+-1us seed=18446744073709551615", "rate=0.5bit", "rate=1mbit queue=1.1KiB",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, err := pmd.ParseProfile(text)
		var pe *pmd.ProfileError
		if err != nil {
			if !errors.As(err, &pe) || pe.Column < 1 || pe.Column > len([]rune(text))+1 {
				t.Fatalf("%q: %v", text, err)
			}
			return
		}
		again, err := pmd.ParseProfile(p.String())
		if err != nil || again != p {
			t.Fatalf("%q prints as %q, which reads as %+v, %v", text, p, again, err)
		}
	})
}

package packet

import (
	"math/rand/v2"
	"testing"
)

// descsOf returns descriptors with the lengths given; a negative length is a piece with FlagMore.
func descsOf(lengths ...int) (d []Desc) {
	for _, n := range lengths {
		if n < 0 {
			d = append(d, Desc{Len: uint16(-n), Flags: FlagMore | FlagIPv4})
			continue
		}
		d = append(d, Desc{Len: uint16(n), Flags: FlagIPv4})
	}
	return d
}

func TestChain(t *testing.T) {
	for _, tt := range []struct {
		lengths []int
		want    int
	}{
		{nil, 0},
		{[]int{60}, 1},
		{[]int{60, -60}, 1},
		{[]int{-2048, 60}, 2},
		{[]int{-2048, -2048, 1, 60}, 3},
		{[]int{-2048}, 0},
		{[]int{-2048, -2048}, 0},
	} {
		if got := Chain(descsOf(tt.lengths...)); got != tt.want {
			t.Errorf("Chain(%v) = %d, want %d", tt.lengths, got, tt.want)
		}
	}
}

func TestWhole(t *testing.T) {
	lengths := []int{60, -1, -1, 1, 60, -1, 1}
	for limit, want := range []int{0, 1, 1, 1, 4, 5, 5, 7, 7} {
		if got := Whole(descsOf(lengths...), limit); got != want {
			t.Errorf("Whole(%v, %d) = %d, want %d", lengths, limit, got, want)
		}
	}
	if got := Whole(descsOf(-1, -1), 2); got != 0 {
		t.Errorf("Whole of a packet without its end = %d, want 0", got)
	}
}

// TestCounts compares the counts of random lists with those of a list of packets.
func TestCounts(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		var d []Desc
		var packets, bytes uint64
		ends := []int{0} // of the packets, in descriptors
		for range r.IntN(6) {
			lengths := make([]int, 1+r.IntN(3))
			for i := range lengths {
				n := 1 + r.IntN(2048)
				bytes += uint64(n)
				if lengths[i] = n; i < len(lengths)-1 {
					lengths[i] = -n
				}
			}
			packets++
			d = append(d, descsOf(lengths...)...)
			ends = append(ends, len(d))
		}
		if p, b := Count(d); p != packets || b != bytes || Packets(d) != packets {
			t.Fatalf("Count = %d, %d, Packets = %d; want %d, %d", p, b, Packets(d), packets, bytes)
		}
		for n, end := range ends {
			if got := Chains(d, uint64(n)); got != end {
				t.Fatalf("Chains(%d) = %d, want %d", n, got, end)
			}
			if got := Whole(d, end); got != end {
				t.Fatalf("Whole(%d) = %d at the end of a packet", end, got)
			}
		}
	}
}

func TestGatherStopsAtTheLimit(t *testing.T) {
	a := &Arena{Mem: []byte("abcd....efg.....hi......"), Shift: 3}
	d := []Desc{{Off: 0, Len: 4, Flags: FlagMore}, {Off: 8, Len: 3, Flags: FlagMore}, {Off: 16, Len: 2}}
	for limit, want := range []string{"-", "-a", "-ab", "-abc", "-abcd", "-abcde", "-abcdef", "-abcdefg", "-abcdefgh", "-abcdefghi", "-abcdefghi"} {
		if got := string(a.Gather([]byte("-"), d, limit)); got != want {
			t.Errorf("Gather with a limit of %d = %q, want %q", limit, got, want)
		}
	}
}

// BenchmarkPackets counts the packets of a burst, which loops and drivers do for each.
func BenchmarkPackets(b *testing.B) {
	d := descsOf(make([]int, 64)...)
	var sink uint64
	b.Run("packets", func(b *testing.B) {
		for b.Loop() {
			sink += Packets(d)
		}
	})
	b.Run("bytes", func(b *testing.B) {
		for b.Loop() {
			_, n := Count(d)
			sink += n
		}
	})
}

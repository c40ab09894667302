package datapath

import (
	"testing"
)

func TestOwnersAreSpreadEvenly(t *testing.T) {
	const n, clients = 3, 30000
	var got [n]int
	for i := range uint64(clients) {
		got[ownerLoop(addr{0, mapped | 0xc6120000 + i}, uint16(i*7), n)]++
	}
	for i, c := range got {
		if c < clients/n*9/10 || c > clients/n*11/10 {
			t.Errorf("loop %d owns %d of %d", i, c, clients)
		}
	}
}

func TestEveryPortOfARangeNamesTheLoopWhosePartHoldsIt(t *testing.T) {
	r := PortRange{1024, 65535}
	for n := 1; n <= 7; n++ {
		for i := range n {
			part := r.Part(i, n)
			for _, port := range []uint16{part.First, part.Last} {
				if got := r.loopOf(port, n); got != i {
					t.Errorf("port %d of %d loops belongs to %d, not %d", port, n, got, i)
				}
			}
		}
	}
}

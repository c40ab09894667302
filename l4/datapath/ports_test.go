package datapath

import (
	"math/rand/v2"
	"testing"
)

// TestPortsAreDistinctUntilAllAreInUse takes and gives back at random and compares with a set.
func TestPortsAreDistinctUntilAllAreInUse(t *testing.T) {
	for _, span := range []PortRange{{1024, 1024}, {1024, 1087}, {1000, 1100}, {65000, 65535}, {1, 65535}} {
		p := newPorts(span, 1)
		pair := portPair{endpoint: 3, snat: 1}
		takeFor(p, portPair{endpoint: 3, snat: 2})
		used := map[uint16]bool{}
		for range 3 * span.Size() {
			n, port, ok := takeFor(p, pair)
			if ok != (len(used) < span.Size()) {
				t.Fatalf("%v: take is %v with %d in use", span, ok, len(used))
			}
			if !ok {
				break
			}
			if p.list[n] != p.pairs[pair] {
				t.Fatalf("%v: number %d is another pair's", span, n)
			}
			if used[port] || !span.Contains(port) {
				t.Fatalf("%v: port %d, in use: %v", span, port, used[port])
			}
			used[port] = true
			if rand.IntN(3) == 0 {
				for q := range used {
					p.put(p.pairs[pair].number, q)
					delete(used, q)
					break
				}
			}
		}
		for q := range used {
			p.put(p.pairs[pair].number, q)
		}
		if m := p.pairs[pair]; m.free != span.Size() {
			t.Errorf("%v: %d of %d ports are free at the end", span, m.free, span.Size())
		}
	}
}

func TestEveryPortIsUsedBeforeExhaustion(t *testing.T) {
	span := PortRange{2000, 2999}
	p := newPorts(span, 7)
	for i := range 1000 {
		if _, _, ok := takeFor(p, portPair{1, 1}); !ok {
			t.Fatalf("exhausted after %d", i)
		}
	}
	if _, _, ok := takeFor(p, portPair{1, 1}); ok {
		t.Error("a port too many")
	}
	if _, _, ok := takeFor(p, portPair{2, 1}); !ok {
		t.Error("another endpoint has none")
	}
	if _, _, ok := takeFor(p, portPair{1, 2}); !ok {
		t.Error("another address has none")
	}
}

func TestAPortRestsBeforeItIsUsedAgain(t *testing.T) {
	p := newPorts(PortRange{1024, 65535}, 9)
	n, first, _ := takeFor(p, portPair{1, 1})
	p.put(n, first)
	for i := range 7000 {
		n, port, _ := takeFor(p, portPair{1, 1})
		p.put(n, port)
		if port == first {
			t.Fatalf("port %d again after %d connections", port, i+1)
		}
	}
}

func TestLoopsHaveDisjointPorts(t *testing.T) {
	all := PortRange{1024, 65535}
	for _, n := range []int{1, 2, 3, 64} {
		last := all.First - 1
		for i := range n {
			r := all.Part(i, n)
			if r.First != last+1 || r.Last > all.Last || r.Size() != all.Size()/n {
				t.Errorf("loop %d of %d has %v", i, n, r)
			}
			last = r.Last
		}
	}
}

func TestUnusedPairsAreForgotten(t *testing.T) {
	p := newPorts(PortRange{1024, 2047}, 1)
	n, port, _ := takeFor(p, portPair{1, 1})
	takeFor(p, portPair{2, 1})
	p.put(n, port)
	p.trim(func(portPair) bool { return false })
	if len(p.pairs) != 1 || p.pairs[portPair{2, 1}] == nil {
		t.Errorf("%d pairs are left, want the one in use", len(p.pairs))
	}
	third, _, _ := takeFor(p, portPair{3, 1})
	fourth, _, _ := takeFor(p, portPair{4, 1})
	if third != n || fourth != 3 || p.list[n] != p.pairs[portPair{3, 1}] {
		t.Errorf("new pairs have the numbers %d and %d, want that of the one forgotten, %d, and 3", third, fourth, n)
	}
}

func TestAPairThatWasForgottenGetsOtherPorts(t *testing.T) {
	p, pair := newPorts(PortRange{1024, 2047}, 1), portPair{1, 1}
	old := p.pair(pair)
	p.trim(func(portPair) bool { return false })
	if m := p.pair(pair); m == old || p.pairs[pair] != m || p.list[m.number] != m {
		t.Errorf("the pair has the ports %p, its old ones are %p; listed are %p and %p", m, old, p.pairs[pair], p.list[m.number])
	}
}

// takeFor takes a port of a pair, and returns the pair's number with it.
func takeFor(p *ports, pair portPair) (number uint32, port uint16, ok bool) {
	m := p.pair(pair)
	port, ok = p.take(m)
	return m.number, port, ok
}

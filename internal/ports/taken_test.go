package ports

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/millrace/millrace/wire"
)

// TestTakenIsAScanOfAllSockets compares the counts with the obvious form.
func TestTakenIsAScanOfAllSockets(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 1))
	addr := func() wire.Addr {
		switch rnd.IntN(4) {
		case 0:
			return wire.Addr{}
		case 1:
			return wire.Unspecified4
		case 2:
			return wire.Addr{0x20, 1, 15: byte(rnd.IntN(3))}
		}
		return wire.AddrFrom4([4]byte{127, 0, 0, byte(rnd.IntN(3))})
	}
	random := func() claim {
		return claim{NewScope(addr(), rnd.IntN(2) == 0), Terms{rnd.IntN(2) == 0, rnd.IntN(3) > 0, uint32(rnd.IntN(2))}}
	}
	for round := range 200 {
		var all []claim
		var taken Taken
		most := 1 + rnd.IntN(4*fewClaims)
		for range 100 {
			if len(all) < most && rnd.IntN(3) > 0 {
				c := random()
				all = append(all, c)
				taken.Add(c.scope, c.terms)
			} else if len(all) > 0 {
				i := rnd.IntN(len(all))
				taken.Remove(all[i].scope, all[i].terms)
				all = slices.Delete(all, i, i+1)
			}
			x := random()
			conflict := slices.ContainsFunc(all, func(c claim) bool { return c.scope.Overlaps(x.scope) && !c.terms.together(x.terms) })
			if got := taken.Conflict(x.scope, x.terms); got != conflict || taken.Len() != len(all) {
				t.Fatalf("round %d: %v beside %v: %v, want %v (%d)", round, x, all, got, conflict, taken.Len())
			}
		}
	}
}

// TestByScopeFindsTheMostSpecific compares it with a sorted list of all scopes.
func TestByScopeFindsTheMostSpecific(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 1))
	loopback := func() wire.Addr { return wire.AddrFrom4([4]byte{127, 0, 0, byte(rnd.IntN(40))}) }
	for range 200 {
		var b ByScope[int]
		all := map[Scope]*int{}
		for range 200 {
			s := NewScope(loopback(), false)
			switch rnd.IntN(12) {
			case 0:
				s = NewScope(wire.Addr{}, rnd.IntN(2) == 0)
			case 1:
				s = NewScope(wire.Unspecified4, false)
			}
			if all[s] == nil && rnd.IntN(3) > 0 {
				all[s] = new(int)
				b.Set(s, all[s])
			} else if all[s] != nil {
				delete(all, s)
				b.Delete(s)
			}
			if b.Get(s) != all[s] || b.Empty() != (len(all) == 0) {
				t.Fatalf("%v: %p, want %p", s, b.Get(s), all[s])
			}
			a := loopback()
			var want []*int
			for _, s := range []Scope{NewScope(a, false), NewScope(wire.Unspecified4, false), NewScope(wire.Addr{}, false)} {
				if all[s] != nil {
					want = append(want, all[s])
				}
			}
			var got []*int
			for x, next := b.Covering(a, 0); x != nil; x, next = b.Covering(a, next) {
				got = append(got, x)
			}
			if !slices.Equal(got, want) {
				t.Fatalf("%v: %v, want %v", a, got, want)
			}
			if len(b.few) > fewScopes+3 {
				t.Fatalf("%d scopes in the list", len(b.few))
			}
		}
	}
}

// TestSharersAreASlice compares the bitmaps with a plain slice.
func TestSharersAreASlice(t *testing.T) {
	rnd := rand.New(rand.NewPCG(7, 1))
	for _, most := range []int{3, 70, 200, 5000} {
		var s Sharers[int]
		var plain []*int
		for range 4 * most {
			if open := s.Len(); open < most && rnd.IntN(100) < 55 {
				m := new(int)
				want := slices.Index(plain, nil)
				if want < 0 {
					want, plain = len(plain), append(plain, nil)
				}
				if plain[want] = m; s.Add(m) != want {
					t.Fatal("not the first free index")
				}
			} else if open > 0 {
				i := rnd.IntN(len(plain))
				for plain[i] == nil {
					i = (i + 1) % len(plain)
				}
				s.Remove(i)
				for plain[i] = nil; len(plain) > 0 && plain[len(plain)-1] == nil; {
					plain = plain[:len(plain)-1]
				}
			}
			if s.Indexes() != len(plain) {
				t.Fatalf("%d indexes, want %d", s.Indexes(), len(plain))
			}
			if len(plain) == 0 {
				continue
			}
			i := rnd.IntN(len(plain))
			j := i
			for plain[j] == nil {
				j = (j + 1) % len(plain)
			}
			if s.From(i) != plain[j] {
				t.Fatalf("from %d: another than %d", i, j)
			}
		}
		n := 0
		for m, next := s.Next(0); m != nil; m, next = s.Next(next) {
			n++
		}
		if n != s.Len() {
			t.Errorf("%d members, want %d", n, s.Len())
		}
	}
}

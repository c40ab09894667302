package ports

import (
	"slices"

	"github.com/millrace/millrace/wire"
)

// ByScope finds what is bound to a port by the scope of its address. Most ports have one or two scopes, which a
// short list finds fastest. A user may bind each address of 127/8 to one port: those beyond fewScopes are in a map, so
// that no packet and no request looks at more than fewScopes of them.
type ByScope[T any] struct {
	few  []scoped[T]      // by rank, the most specific first; at most fewScopes with an address
	many map[wire.Addr]*T // the other scopes with an address
}

type scoped[T any] struct {
	scope Scope
	of    *T
}

const fewScopes = 8

// Get returns what has exactly the scope, nil for nothing.
func (b *ByScope[T]) Get(s Scope) *T {
	for i := range b.few {
		if b.few[i].scope == s {
			return b.few[i].of
		}
	}
	if s.Addr.Unspecified() {
		return nil
	}
	return b.many[s.Addr]
}

// Set makes t what has the scope, which had nothing.
func (b *ByScope[T]) Set(s Scope, t *T) {
	if !s.Addr.Unspecified() && len(b.few) >= fewScopes {
		if b.many == nil {
			b.many = map[wire.Addr]*T{}
		}
		b.many[s.Addr] = t
		return
	}
	at, _ := slices.BinarySearchFunc(b.few, s.Rank()+1, func(x scoped[T], rank int) int { return x.scope.Rank() - rank })
	b.few = slices.Insert(b.few, at, scoped[T]{s, t})
}

// Delete removes what has the scope.
func (b *ByScope[T]) Delete(s Scope) {
	if i := slices.IndexFunc(b.few, func(x scoped[T]) bool { return x.scope == s }); i >= 0 {
		b.few = slices.Delete(b.few, i, i+1)
		return
	}
	if delete(b.many, s.Addr); len(b.many) == 0 {
		b.many = nil
	}
}

// Empty reports whether no scope has anything.
func (b *ByScope[T]) Empty() bool { return len(b.few) == 0 && b.many == nil }

// Covering returns what has a scope that covers an address: the most specific for step 0, and then, with the step that
// the call before returned, the next one. nil is the end.
func (b *ByScope[T]) Covering(a wire.Addr, step int) (t *T, next int) {
	if step == 0 && b.many != nil {
		if t := b.many[a]; t != nil {
			return t, 1
		}
	}
	for i := max(step-1, 0); i < len(b.few); i++ {
		if b.few[i].scope.Covers(a) {
			return b.few[i].of, i + 2
		}
	}
	return nil, 0
}

package memory

import (
	"errors"
	"math/rand/v2"
	"testing"
)

// TestBind executes binds that are right and wrong, and looks at what the key reaches then.
func TestBind(t *testing.T) {
	const va, size = 0x1000, 100
	a, b := Accessor{PD: 1, QP: 10}, Accessor{PD: 1, QP: 11}
	for _, c := range []struct {
		name   string
		kind   WindowType
		region Access
		by     Accessor
		change func(*Binding)
		ok     bool
	}{
		{"type 1", Type1, all | WindowBind, a, nil, true},
		{"type 2B", Type2B, all | WindowBind, a, nil, true},
		{"to the last byte", Type1, all | WindowBind, a, func(b *Binding) { b.VA, b.Length = va, size }, true},
		{"a region without the right", Type1, all, a, nil, false},
		{"another domain", Type1, all | WindowBind, Accessor{PD: 2, QP: 10}, nil, false},
		{"the tag that it has", Type2B, all | WindowBind, a, func(b *Binding) { b.Window-- }, false},
		{"another window", Type2B, all | WindowBind, a, func(b *Binding) { b.Window ^= 1 << 9 }, false},
		{"a guessed upper byte", Type2B, all | WindowBind, a, func(b *Binding) { b.Window ^= 1 << 31 }, false},
		{"an unknown region", Type2B, all | WindowBind, a, func(b *Binding) { b.Region ^= 1 }, false},
		{"before the region", Type1, all | WindowBind, a, func(b *Binding) { b.VA = va - 1 }, false},
		{"beyond the region", Type1, all | WindowBind, a, func(b *Binding) { b.Length = size - 9 }, false},
		{"around the last address", Type1, all | WindowBind, a, func(b *Binding) { b.Length = 1<<64 - 1 }, false},
		{"writes to a region that is read only", Type1, RemoteRead | WindowBind, a, nil, false},
		{"reads of one", Type1, WindowBind, a, func(b *Binding) { b.Access = RemoteRead }, true},
		{"a local right, which does not count", Type1, all | WindowBind, a, func(b *Binding) { b.Access |= LocalWrite }, true},
		{"no bytes, type 2B", Type2B, all | WindowBind, a, func(b *Binding) { b.Length = 0 }, false},
	} {
		tab := newTable()
		mem := make([]byte, size)
		region, err1 := tab.Register(1, mem, va, c.region)
		key, err2 := tab.AllocWindow(1, c.kind)
		if err := errors.Join(err1, err2); err != nil {
			t.Fatal(err)
		}
		bind := Binding{Window: key&^0xff | (key+1)&0xff, Region: region, VA: va + 10, Length: 20, Access: RemoteWrite | RemoteRead}
		if c.change != nil {
			c.change(&bind)
		}
		if got := tab.Bind(c.by, &bind); got != c.ok {
			t.Errorf("%s: %v", c.name, got)
		}
		reaches := tab.Permits(a, bind.Window, bind.VA, 1, RemoteRead)
		if reaches != c.ok || tab.Permits(b, bind.Window, bind.VA, 1, RemoteRead) != (c.ok && c.kind == Type1) {
			t.Errorf("%s: the new key reaches the memory: %v", c.name, reaches)
		}
		if tab.Permits(a, key, bind.VA, 1, RemoteRead) {
			t.Errorf("%s: the key from before reaches the memory", c.name)
		}
		if err := tab.Deregister(region); errors.Is(err, ErrBound) != c.ok {
			t.Errorf("%s: deregistration of the region: %v", c.name, err)
		}
	}
}

// TestWindowLifetimes binds, binds anew, invalidates and deallocates.
func TestWindowLifetimes(t *testing.T) {
	tab := newTable()
	a, b := Accessor{PD: 1, QP: 10}, Accessor{PD: 1, QP: 11}
	mem := make([]byte, 64)
	region, _ := tab.Register(1, mem, 0, all|WindowBind)
	next := func(key uint32) uint32 { return key&^0xff | (key+1)&0xff }
	if _, err := tab.AllocWindow(1, 3); !errors.Is(err, ErrWindowType) {
		t.Errorf("type 3: %v", err)
	}
	one, _ := tab.AllocWindow(1, Type1)
	two, _ := tab.AllocWindow(1, Type2B)
	bind := func(key, region uint32, length uint64, want bool) uint32 {
		t.Helper()
		if tab.Bind(a, &Binding{Window: next(key), Region: region, VA: 8, Length: length, Access: RemoteRead}) != want {
			t.Fatalf("bind of key %#x: %v", key, !want)
		}
		if want {
			return next(key)
		}
		return key
	}
	one = bind(one, region, 8, true)
	one = bind(one, region, 16, true) // type 1 needs no invalidation
	two = bind(two, region, 8, true)
	two = bind(two, region, 16, false)
	if tab.Invalidate(a, one) || tab.Invalidate(b, two) || tab.Invalidate(a, region) {
		t.Error("a window of type 1, another queue pair's, or a region with windows was invalidated")
	}
	if tab.Slice(a, one, 8, 8, LocalRead) != nil || tab.Slice(a, two, 8, 8, LocalWrite) != nil || tab.Deregister(one) == nil {
		t.Error("the key of a window works as that of a region")
	}
	if n := len(tab.Slice(a, one, 8, 16, RemoteRead)); n != 16 || tab.Slice(a, one, 8, 17, RemoteRead) != nil || tab.Slice(a, one, 7, 2, RemoteRead) != nil {
		t.Errorf("a window reaches %d bytes", n)
	}
	if !tab.Invalidate(a, two) || tab.Permits(a, two, 8, 8, RemoteRead) || tab.Invalidate(a, two) {
		t.Error("a window of type 2B is invalidated once")
	}
	two = bind(two, region, 8, true)
	tab.UnbindQueuePair(b)
	if !tab.Permits(a, two, 8, 8, RemoteRead) {
		t.Error("the end of another queue pair unbinds a window")
	}
	tab.UnbindQueuePair(a)
	if tab.Permits(a, two, 8, 8, RemoteRead) || !tab.Permits(a, one, 8, 8, RemoteRead) {
		t.Error("the end of a queue pair unbinds its windows of type 2B")
	}
	if bound, _ := tab.AllocWindow(1, Type1); tab.Bind(a, &Binding{Window: next(bound), Region: one, VA: 8, Length: 8}) {
		t.Error("a window is bound to a window")
	} else if err := tab.DeallocWindow(bound); err != nil {
		t.Error(err)
	}
	one = bind(one, 0, 0, true) // unbinds
	if tab.Permits(a, one, 8, 8, RemoteRead) {
		t.Error("the window is bound still")
	}
	one = bind(one, region, 8, true)
	if err := errors.Join(tab.DeallocWindow(one), tab.DeallocWindow(two), tab.Deregister(region)); err != nil || tab.Windows() != 0 || tab.Len() != 0 {
		t.Errorf("%v; %d windows, %d regions", err, tab.Windows(), tab.Len())
	}
	if tab.Permits(a, one, 8, 8, RemoteRead) || tab.DeallocWindow(one) == nil {
		t.Error("the window goes on after its end")
	}
}

// TestNothingOutsideOfWindows compares random binds and accesses with a slow form that keeps lists.
func TestNothingOutsideOfWindows(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	tab := newTable()
	mem := make([]byte, 256)
	region, _ := tab.Register(1, mem, 0, all|WindowBind)
	type window struct {
		key      uint32
		kind     WindowType
		va, size uint64
		access   Access
		qp       uint32
	}
	list := make([]window, 8)
	for i := range list {
		list[i].kind = Type1 + WindowType(i%2)
		list[i].key, _ = tab.AllocWindow(1, list[i].kind)
	}
	reached := 0
	for range 20000 {
		w := &list[r.IntN(len(list))]
		by := Accessor{PD: 1, QP: uint32(r.IntN(3))}
		switch r.IntN(4) {
		case 0:
			b := Binding{Window: w.key&^0xff | r.Uint32()&0xff, Region: region, VA: r.Uint64N(300), Length: r.Uint64N(64), Access: Access(2 * r.IntN(8))}
			fits := b.Length > 0 && b.VA+b.Length <= 256 && b.Window != w.key && (w.kind == Type1 || w.size == 0)
			unbinds := w.kind == Type1 && b.Length == 0 && b.Window != w.key
			if got := tab.Bind(by, &b); got != (fits || unbinds) {
				t.Fatalf("bind %+v of %+v: %v", b, w, got)
			} else if got {
				*w = window{b.Window, w.kind, b.VA, b.Length, b.Access, by.QP}
			}
		case 1:
			want := w.kind == Type2B && w.size > 0 && w.qp == by.QP
			if tab.Invalidate(by, w.key) != want {
				t.Fatalf("invalidate of %+v by %v: %v", w, by, !want)
			}
			if want {
				w.size = 0
			}
		default:
			va, n := r.Uint64N(300), uint32(1+r.IntN(64))
			right := []Access{RemoteWrite, RemoteRead, RemoteAtomic}[r.IntN(3)]
			want := w.size > 0 && va >= w.va && va+uint64(n) <= w.va+w.size && w.access&right != 0 && (w.kind == Type1 || w.qp == by.QP)
			b := tab.Slice(by, w.key, va, n, right)
			if (b != nil) != want || want && &b[0] != &mem[va] {
				t.Fatalf("access of %d bytes at %d by %v to %+v: %v", n, va, by, w, b != nil)
			}
			reached += len(b)
		}
	}
	if reached == 0 {
		t.Error("nothing was reached")
	}
}

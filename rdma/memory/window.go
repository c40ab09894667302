package memory

import "errors"

// WindowType is the type of a memory window (10.6.7.2).
type WindowType uint8

// The types.
const (
	Type1  WindowType = 1 // reached by all queue pairs of its domain
	Type2B WindowType = 2 // reached by the queue pair that bound it; ended by an invalidation
)

// Errors of windows.
var (
	ErrWindowType = errors.New("rdma: a memory window is of type 1 or 2B")
	ErrBound      = errors.New("rdma: memory windows are bound to the region: deallocate or bind them anew first")
)

// A window is a place like a region. While it is bound it holds the bytes of a part of a region, which cannot be deregistered meanwhile. Its
// key is a remote one alone: lists of the own side do not reach memory by it.

// Binding describes an operation of bind.
type Binding struct {
	Window     uint32 // the key that the window has from now on: its present one with another tag
	Region     uint32 // key of the region; no meaning where Length is 0
	VA, Length uint64 // the bytes; 0 unbinds a window of type 1
	Access     Access // of which the remote rights count
}

// AllocWindow makes a window that is not bound, and returns its key.
func (t *Table) AllocWindow(pd PD, kind WindowType) (uint32, error) {
	if kind != Type1 && kind != Type2B {
		return 0, ErrWindowType
	}
	return t.enter(region{pd: pd, window: kind})
}

// DeallocWindow ends a window, bound or not. The tag of its key does not matter: binds may wait that change it.
func (t *Table) DeallocWindow(key uint32) error {
	w := t.window(key)
	if w == nil {
		return ErrKey
	}
	t.unbind(w)
	t.leave(w)
	return nil
}

// window returns the window in the place of a key, whatever its tag; nil where there is none.
func (t *Table) window(key uint32) *region {
	if p := key >> tagBits & (mostPlace - 1); int(p) < len(t.regions) {
		if w := &t.regions[p]; w.window != 0 && (w.key^key)>>tagBits == 0 {
			return w
		}
	}
	return nil
}

// Bind executes a bind of a queue pair (10.6.7.2.3, 11.3.1). It reports false where that is not permitted, and changes nothing then.
func (t *Table) Bind(by Accessor, b *Binding) bool {
	w := t.window(b.Window)
	if w == nil || w.pd != by.PD || w.key == b.Window {
		return false
	}
	if w.window == Type1 && b.Length == 0 {
		t.unbind(w)
		w.key = b.Window
		return true
	}
	r := t.find(b.Region)
	switch {
	case w.window == Type2B && w.size != 0: // it is invalidated first
		return false
	case r == nil || r.pd != by.PD || r.access&WindowBind == 0: // windows do not have that right
		return false
	case b.Access&(RemoteWrite|RemoteAtomic) != 0 && r.access&LocalWrite == 0:
		return false
	}
	off := b.VA - r.va // wraps below the region to more than its length
	if b.Length == 0 || off >= r.size || b.Length > r.size-off {
		return false
	}
	t.unbind(w)
	w.key, w.access, w.parent, w.qp = b.Window, b.Access&remoteRights, b.Region, by.QP
	w.va, w.size, w.remote, w.addr = b.VA, b.Length, r.remote, r.addr+off
	if r.remote == nil {
		w.mem = r.mem[off : off+b.Length : off+b.Length]
	}
	r.windows++
	return true
}

// unbind takes the bytes from a window.
func (t *Table) unbind(w *region) {
	if w.size == 0 {
		return
	}
	t.find(w.parent).windows-- // it is there: it cannot be deregistered while a window is bound to it
	*w = region{key: w.key, pd: w.pd, window: w.window}
}

// UnbindQueuePair takes their bytes from the windows of type 2B that a queue pair has bound: its number may be used again.
func (t *Table) UnbindQueuePair(by Accessor) {
	for i := range t.regions {
		if w := &t.regions[i]; w.window == Type2B && w.size != 0 && w.pd == by.PD && w.qp == by.QP {
			t.unbind(w)
		}
	}
}

// Windows returns the number of windows.
func (t *Table) Windows() int { return t.windows }

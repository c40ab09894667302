package rdma

import (
	"errors"
	"testing"

	"github.com/millrace/millrace/rdma/memory"
	"github.com/millrace/millrace/rdma/transport"
)

// TestMemoryWindows binds windows of both types, writes by their keys, and ends them.
func TestMemoryWindows(t *testing.T) {
	c := openContext(t, 1, Config{})
	a, b := newSide(t, c, RC, 4096), newSide(t, c, RC, 8)
	join(t, a, b, ConnectConfig{})
	mr, err := b.pd.RegMR(make([]byte, 4096), LocalWrite|WindowBind) // peers reach it by windows alone
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []WindowType{Type1, Type2B} {
		mw, err := b.pd.AllocMW(kind)
		if err != nil {
			t.Fatal(err)
		}
		key, err := b.qp.PostBind(mw, &Bind{ID: 5, Flags: Signaled, MR: mr, Off: 100, N: 50, Access: RemoteWrite})
		if err != nil || key != mw.RKey() {
			t.Fatal(key, mw.RKey(), err)
		}
		if k := b.completions(1)[0]; k.ID != 5 || k.Status != transport.Success || k.Op != OpBind {
			t.Fatalf("%+v", k)
		}
		copy(a.mr.Bytes(), "window")
		a.post(SendWR{Op: OpWrite, List: []SGE{a.mr.SGE(0, 6)}, RemoteAddr: mr.Addr() + 144, RKey: key})
		if k := a.completions(1)[0]; k.Status != transport.Success || string(mr.Bytes()[144:150]) != "window" {
			t.Fatalf("type %d: %+v", kind, k)
		}
		if err := mr.Dereg(); !errors.Is(err, memory.ErrBound) {
			t.Errorf("deregistration of a region with a window: %v", err)
		}
		if err := errors.Join(mw.Dealloc(), nil); err != nil || !errors.Is(mw.Dealloc(), ErrClosed) {
			t.Errorf("dealloc: %v", err)
		}
	}
	a.post(SendWR{Op: OpWrite, List: []SGE{a.mr.SGE(0, 6)}, RemoteAddr: mr.Addr() + 144, RKey: mr.RKey()})
	if k := a.completions(1)[0]; k.Status != transport.RemoteAccess {
		t.Errorf("by the region's key: %+v", k)
	}
	if _, err := b.qp.PostBind(&MW{pd: b.pd}, &Bind{}); !errors.Is(err, transport.ErrRequest) {
		t.Errorf("a bind without a region: %v", err)
	}
	if _, err := b.pd.AllocMW(7); !errors.Is(err, memory.ErrWindowType) {
		t.Errorf("type 7: %v", err)
	}
	if err := mr.Dereg(); err != nil {
		t.Error(err)
	}
}

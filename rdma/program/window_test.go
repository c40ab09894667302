package program

import (
	"syscall"
	"testing"

	"github.com/millrace/millrace/rdma/memory"
	"github.com/millrace/millrace/rdma/transport"
)

// TestWindows binds a window to memory of a program, and reaches it from another one until it is invalidated.
func TestWindows(t *testing.T) {
	s := openServer(t, Config{})
	x, y := connected(newClient(t, s), newClient(t, s))
	for _, kind := range []uint32{0, 3, 1 << 31} {
		if _, _, err := y.k.call(request{op: uint32(opAllocMW), pd: y.pd, service: kind}); err != syscall.EINVAL { //nolint:errorlint // it is an Errno
			t.Errorf("type %d: %v", kind, err)
		}
	}
	addr := y.mr.addr(0)
	region := y.k.must(request{op: uint32(opRegMR), pd: y.pd, addr: addr, length: 4096, va: addr, access: uint32(memory.LocalWrite | memory.WindowBind)})
	mw := y.k.must(request{op: uint32(opAllocMW), pd: y.pd, service: uint32(memory.Type2B)})
	bind := send{
		id: 1, op: uint8(transport.OpBind), flags: uint8(transport.Signaled), rkey: mw.key&^0xff | (mw.key+1)&0xff, imm: region.key,
		remote: y.mr.addr(100), compare: 50, swap: uint64(memory.RemoteWrite),
	}
	y.k.postSend(y.qp, bind, nil)
	if k := y.k.next(y.cq); k.id != 1 || k.status != 0 || k.op != uint32(transport.OpBind) {
		t.Fatalf("bind: %+v", k)
	}
	write := send{id: 2, op: uint8(transport.OpWrite), flags: uint8(transport.Signaled), rkey: bind.rkey, remote: y.mr.addr(144)}
	x.k.postSend(x.qp, write, []byte("window"))
	if k := x.k.next(x.cq); k.status != 0 || string(y.mr.b[144:150]) != "window" {
		t.Fatalf("write: %+v", k)
	}
	if _, _, err := y.k.call(request{op: uint32(opDeregMR), object: region.object}); err != syscall.EBUSY { //nolint:errorlint // it is an Errno
		t.Errorf("deregistration of a region with a window: %v", err)
	}
	y.k.postSend(y.qp, send{id: 3, op: uint8(transport.OpLocalInvalidate), flags: uint8(transport.Signaled), imm: bind.rkey}, nil)
	if k := y.k.next(y.cq); k.status != 0 {
		t.Errorf("invalidation: %+v", k)
	}
	x.k.postSend(x.qp, write, []byte("closed"))
	if k := x.k.next(x.cq); k.status != uint32(transport.RemoteAccess) || string(y.mr.b[144:150]) != "window" {
		t.Errorf("after the invalidation: %+v", k)
	}
	y.k.must(request{op: uint32(opDeallocMW), object: mw.object})
	y.k.must(request{op: uint32(opDeregMR), object: region.object})
	if _, _, err := y.k.call(request{op: uint32(opDeallocMW), object: mw.object}); err != syscall.EINVAL { //nolint:errorlint // it is an Errno
		t.Errorf("a window that has ended: %v", err)
	}
}

// TestWindowsEndWithTheirProgram: a program dies with a window that is bound.
func TestWindowsEndWithTheirProgram(t *testing.T) {
	s := openServer(t, Config{})
	stays := newClient(t, s)
	k := newClient(t, s)
	y := newEnd(k)
	y.connect(y.qpn)
	addr := y.mr.addr(0)
	region := k.must(request{op: uint32(opRegMR), pd: y.pd, addr: addr, length: 4096, va: addr, access: uint32(memory.LocalWrite | memory.WindowBind)})
	mw := k.must(request{op: uint32(opAllocMW), pd: y.pd, service: uint32(memory.Type1)})
	k.postSend(y.qp, send{id: 1, op: uint8(transport.OpBind), flags: 1, rkey: mw.key&^0xff | (mw.key+1)&0xff, imm: region.key, remote: addr, compare: 8}, nil)
	if c := k.next(y.cq); c.status != 0 {
		t.Fatalf("bind: %+v", c)
	}
	k.c.Close()
	stays.await("the end of the program", func() bool { return s.Stats().Programs == 1 })
	if r := s.cfg.Context.Report(); r.Regions != 0 || r.Windows != 0 || r.QueuePairs != 0 {
		t.Errorf("left of a program: %+v", r)
	}
}

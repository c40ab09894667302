package program

import (
	"bytes"
	"encoding/binary"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/rdma/transport"
	shmring "github.com/millrace/millrace/shim/ring"
)

// fill writes bytes that depend on their place.
func fill(b []byte, seed byte) {
	for i := range b {
		b[i] = byte(i) ^ byte(i>>8) ^ seed
	}
}

// TestOperations moves bytes between the queue pairs of two programs, by every operation of RC.
func TestOperations(t *testing.T) {
	s := openServer(t, Config{})
	x, y := connected(newClient(t, s), newClient(t, s))
	fill(x.mr.b[:30000], 1)
	fill(y.mr.b[30000:60000], 2)
	y.k.postRecv(submitRecv, y.qp, recv{id: 70, elements: 2, list: [recvElements]element{y.mr.element(0, 100), y.mr.element(200, 20000)}})
	for _, c := range []struct {
		op   transport.Op
		send send
	}{
		{transport.OpSendImm, send{imm: 0xcafe, list: [sendElements]element{x.mr.element(0, 5000)}}},
		{transport.OpWrite, send{remote: y.mr.addr(25000), rkey: y.mr.key, list: [sendElements]element{x.mr.element(0, 3000)}}},
		{transport.OpRead, send{remote: y.mr.addr(30000), rkey: y.mr.key, list: [sendElements]element{x.mr.element(30000, 10000)}}},
		{transport.OpFetchAdd, send{remote: y.mr.addr(60000), rkey: y.mr.key, swap: 5, list: [sendElements]element{x.mr.element(60000, 8)}}},
	} {
		v := c.send
		v.id, v.op, v.flags, v.elements = uint64(c.op), uint8(c.op), uint8(transport.Signaled), 1
		x.k.postSend(x.qp, v, nil)
		if k := x.k.next(x.cq); k.id != v.id || k.status != 0 || k.op != uint32(c.op) || k.qpn != x.qpn {
			t.Fatalf("%v: %+v", c.op, k)
		}
	}
	if k := y.k.next(y.cq); k.id != 70 || k.bytes != 5000 || k.imm != 0xcafe || k.flags != uint32(transport.WithImm)|completionRecv || k.done != 1 {
		t.Errorf("receive: %+v", k)
	}
	if got := append(bytes.Clone(y.mr.b[:100]), y.mr.b[200:5100]...); !bytes.Equal(got, x.mr.b[:5000]) {
		t.Error("SEND has moved other bytes")
	}
	if !bytes.Equal(y.mr.b[25000:28000], x.mr.b[:3000]) || !bytes.Equal(x.mr.b[30000:40000], y.mr.b[30000:40000]) {
		t.Error("WRITE or READ has moved other bytes")
	}
	if binary.NativeEndian.Uint64(y.mr.b[60000:]) != 5 {
		t.Error("FETCH_ADD has not added")
	}
}

// TestInlineAndLists sends bytes from the staging memory, and from lists of several entries.
func TestInlineAndLists(t *testing.T) {
	s := openServer(t, Config{})
	k := newClient(t, s)
	x, y := connected(k, k)
	y.k.postRecv(submitRecv, y.qp, recv{id: 1, elements: 1, list: [recvElements]element{y.mr.element(0, 1000)}})
	x.k.postSend(x.qp, send{id: 2, op: uint8(transport.OpSend), flags: uint8(transport.Signaled)}, []byte("copied when it was posted"))
	if c := x.k.next(x.cq); c.id != 2 || c.status != 0 {
		t.Fatalf("%+v", c)
	}
	if c := y.k.next(y.cq); c.bytes != 25 || string(y.mr.b[:25]) != "copied when it was posted" {
		t.Fatalf("%+v: %q", c, y.mr.b[:25])
	}
	for i := range 11 {
		x.mr.b[i*10] = byte('a' + i)
	}
	y.k.postRecv(submitRecv, y.qp, recv{id: 3, elements: 1, list: [recvElements]element{y.mr.element(0, 1000)}})
	for i := range 2 { // ten elements before the entry, and one in it
		var v list
		for j := range v.elements {
			v.elements[j] = x.mr.element((i*listElements+j)*10, 1)
		}
		e := shmring.Entry{Connection: x.qp, Operation: submitList}
		e.Length = uint8(store(e.Data[:], &v))
		x.k.put(&e)
	}
	x.k.postSend(x.qp, send{id: 4, op: uint8(transport.OpSend), elements: 11, list: [sendElements]element{x.mr.element(100, 1)}}, nil)
	if c := y.k.next(y.cq); c.id != 3 || string(y.mr.b[:11]) != "abcdefghijk" {
		t.Fatalf("%+v: %q", c, y.mr.b[:11])
	}
}

// TestEvents waits for completions by the pipe of a channel: one event for each time that the queue was armed, of the kind
// that was asked for.
func TestEvents(t *testing.T) {
	s := openServer(t, Config{})
	k := newClient(t, s)
	x, y := connected(k, k)
	recvs := func() {
		y.k.postRecv(submitRecv, y.qp, recv{elements: 1, list: [recvElements]element{y.mr.element(0, 100)}})
	}
	k.cqs[y.cq].Arm(false)
	recvs()
	x.k.postSend(x.qp, send{op: uint8(transport.OpSend)}, []byte("a"))
	if e := k.event(k.channels[y.channel]); e.kind != eventCompletion || e.object != y.cq {
		t.Fatalf("%+v", e)
	}
	k.next(y.cq)
	k.cqs[y.cq].Arm(true)
	recvs()
	recvs()
	x.k.postSend(x.qp, send{id: 1, op: uint8(transport.OpSend)}, []byte("b"))
	k.next(y.cq)
	if n, _ := unix.Poll([]unix.PollFd{{Fd: int32(k.channels[y.channel]), Events: unix.POLLIN}}, 0); n != 0 {
		t.Fatal("a message that is not solicited has caused an event")
	}
	x.k.postSend(x.qp, send{op: uint8(transport.OpSend), flags: uint8(transport.Solicited)}, []byte("c"))
	k.event(k.channels[y.channel])
	k.next(y.cq)
}

// TestFailures completes requests with errors, and reports the end of a queue pair.
func TestFailures(t *testing.T) {
	s := openServer(t, Config{})
	k := newClient(t, s)
	x, y := connected(k, k)
	x.k.postSend(x.qp, send{id: 9, op: uint8(transport.OpWrite), remote: y.mr.addr(0), rkey: y.mr.key + 1, elements: 1, list: [sendElements]element{x.mr.element(0, 8)}}, nil)
	if c := k.next(x.cq); c.id != 9 || transport.Status(c.status) != transport.RemoteAccess {
		t.Errorf("%+v", c)
	}
	fatal := map[uint32]bool{}
	for range 2 {
		e := k.event(k.events)
		fatal[e.object] = e.kind == eventQPFatal
	}
	if !fatal[x.qp] || !fatal[y.qp] {
		t.Errorf("events of %v", fatal)
	}
	if r := k.must(request{op: uint32(opQueryQP), object: x.qp}); r.state != 6 || r.sendsDone != 1 {
		t.Errorf("%+v", r)
	}
	// A request that the transport refuses.
	a, b := connected(k, k)
	_ = b
	a.k.postSend(a.qp, send{id: 10, op: uint8(transport.OpFetchAdd), remote: 1, elements: 1, list: [sendElements]element{a.mr.element(0, 8)}}, nil)
	if c := k.next(a.cq); c.id != 10 || transport.Status(c.status) != transport.LocalQPOperation {
		t.Errorf("%+v", c)
	}
}

// TestUnmappedMemory has a program give its memory back to the kernel: requests for it fail.
func TestUnmappedMemory(t *testing.T) {
	s := openServer(t, Config{})
	k := newClient(t, s)
	x, y := connected(k, k)
	if err := unix.Mprotect(y.mr.b, unix.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	if err := unix.Madvise(y.mr.b, unix.MADV_DONTNEED); err != nil {
		t.Fatal(err)
	}
	whole := y.mr.b
	addr := y.mr.addr(0)
	if _, _, e := unix.Syscall(unix.SYS_MUNMAP, uintptr(addr), uintptr(len(whole)), 0); e != 0 {
		t.Fatal(e)
	}
	x.k.postSend(x.qp, send{id: 9, op: uint8(transport.OpWrite), remote: addr, rkey: y.mr.key, elements: 1, list: [sendElements]element{x.mr.element(0, 8)}}, nil)
	if c := k.next(x.cq); transport.Status(c.status) != transport.RemoteAccess {
		t.Errorf("%+v", c)
	}
}

// TestProgramEnds has all that a program had go away with its socket.
func TestProgramEnds(t *testing.T) {
	s := openServer(t, Config{})
	stays, goes := newClient(t, s), newClient(t, s)
	x, y := connected(stays, goes)
	goes.must(request{op: uint32(opCreateAH), pd: y.pd, gid: goes.hello.gid})
	goes.must(request{op: uint32(opCreateSRQ), pd: y.pd, depth: 4})
	goes.c.Close()
	stays.await("the end of the program", func() bool { return s.Stats().Programs == 1 })
	x.k.postSend(x.qp, send{id: 5, op: uint8(transport.OpWrite), remote: y.mr.addr(0), rkey: y.mr.key}, []byte("x"))
	if n := s.Stats(); n.Violations != 0 {
		t.Errorf("%+v", n)
	}
	stays.must(request{op: uint32(opDestroyQP), object: x.qp})
}

// TestObjects checks what requests refuse, and that what is in use stays.
func TestObjects(t *testing.T) {
	s := openServer(t, Config{})
	k := newClient(t, s)
	x := newEnd(k)
	for _, c := range []struct {
		name string
		q    request
		want syscall.Errno
	}{
		{"domain in use", request{op: uint32(opDeallocPD), object: x.pd}, syscall.EBUSY},
		{"queue in use", request{op: uint32(opDestroyCQ), object: x.cq}, syscall.EBUSY},
		{"channel in use", request{op: uint32(opDestroyChannel), object: x.channel}, syscall.EBUSY},
		{"no domain", request{op: uint32(opDeallocPD), object: 77}, syscall.EINVAL},
		{"no region", request{op: uint32(opDeregMR), object: 77}, syscall.EINVAL},
		{"region without a domain", request{op: uint32(opRegMR), pd: 77, addr: 4096, length: 1}, syscall.EINVAL},
		{"region of nothing", request{op: uint32(opRegMR), pd: x.pd, addr: 4096}, syscall.EINVAL},
		{"region that wraps", request{op: uint32(opRegMR), pd: x.pd, addr: 1<<64 - 4, length: 8}, syscall.EINVAL},
		{"rights that contradict", request{op: uint32(opRegMR), pd: x.pd, addr: 4096, length: 8, access: 2}, syscall.EINVAL},
		{"large queue", request{op: uint32(opCreateCQ), depth: mostCQE + 1, channel: none}, syscall.EINVAL},
		{"queue of no channel", request{op: uint32(opCreateCQ), depth: 1, channel: 77}, syscall.EINVAL},
		{"unknown service", request{op: uint32(opCreateQP), pd: x.pd, sendCQ: x.cq, recvCQ: x.cq, srq: none, service: 9}, syscall.EINVAL},
		{"no shared queue", request{op: uint32(opCreateQP), pd: x.pd, sendCQ: x.cq, recvCQ: x.cq, srq: 5, service: typeRC}, syscall.EINVAL},
		{"transition", request{op: uint32(opModifyQP), object: x.qp, state: 3}, syscall.EINVAL},
		{"state", request{op: uint32(opModifyQP), object: x.qp, state: 7}, syscall.EINVAL},
		{"handle to multicast", request{op: uint32(opCreateAH), pd: x.pd, gid: [16]byte{10: 0xff, 11: 0xff, 12: 239}}, syscall.ENETUNREACH},
	} {
		if _, fds, err := k.call(c.q); err != c.want || len(fds) > 0 { //nolint:errorlint // it is an Errno
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
	for _, q := range []request{
		{op: uint32(opDestroyQP), object: x.qp},
		{op: uint32(opDestroyCQ), object: x.cq},
		{op: uint32(opDestroyChannel), object: x.channel},
		{op: uint32(opDeregMR), object: x.mr.object},
		{op: uint32(opDeallocPD), object: x.pd},
	} {
		k.must(q)
	}
	if r := k.must(request{op: uint32(opAllocPD)}); r.object != x.pd {
		t.Errorf("number %d is not used again", x.pd)
	}
	first := k.must(request{op: uint32(opCreateCQ), depth: 1, channel: none})
	k.must(request{op: uint32(opDestroyCQ), object: first.object})
	if r := k.must(request{op: uint32(opCreateCQ), depth: 1, channel: none}); r.object != first.object || r.generation == first.generation {
		t.Errorf("number %d of generation %d, after %d of %d", r.object, r.generation, first.object, first.generation)
	}
}

// TestPostsComeBeforeRequests posts without waking the loop, and changes the queue pair: what was posted is flushed.
func TestPostsComeBeforeRequests(t *testing.T) {
	s := openServer(t, Config{})
	k := newClient(t, s)
	x := newEnd(k)
	v := recv{id: 8}
	e := shmring.Entry{Connection: x.qp, Operation: submitRecv}
	e.Length = uint8(store(e.Data[:], &v))
	k.must(request{op: uint32(opModifyQP), object: x.qp, state: 1})
	if ok, err := k.submit.Put(&e); !ok || err != nil {
		t.Fatal(ok, err)
	}
	k.must(request{op: uint32(opModifyQP), object: x.qp, state: 6})
	if c := k.next(x.cq); c.id != 8 || transport.Status(c.status) != transport.Flushed {
		t.Errorf("%+v", c)
	}
}

// TestPostingWakesTheLoop posts after the loop has gone to sleep, many times.
func TestPostingWakesTheLoop(t *testing.T) {
	s := openServer(t, Config{})
	k := newClient(t, s)
	x, y := connected(k, k)
	for i := range uint64(50) {
		x.k.postSend(x.qp, send{id: i, op: uint8(transport.OpWrite), flags: uint8(transport.Signaled), remote: y.mr.addr(0), rkey: y.mr.key}, []byte{byte(i)})
		if c := k.next(x.cq); c.id != i || c.status != 0 || y.mr.b[0] != byte(i) {
			t.Fatalf("%+v", c)
		}
		if i%10 == 9 {
			time.Sleep(3 * activeTime)
		}
	}
}

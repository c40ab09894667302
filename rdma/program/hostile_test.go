package program

import (
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/metrics"
	"github.com/millrace/millrace/rdma/transport"
	shmring "github.com/millrace/millrace/shim/ring"
)

// ended waits until only n programs are left, and checks that one more has been ended for what it wrote.
func ended(t *testing.T, s *Server, k *client, n int, violations uint64) {
	t.Helper()
	k.await("the end of the program", func() bool { return s.Stats().Programs == n })
	if got := s.Stats().Violations; got != violations {
		t.Errorf("%d violations, want %d", got, violations)
	}
}

// TestHostileEntries ends programs that write what no library does, and no other.
func TestHostileEntries(t *testing.T) {
	s := openServer(t, Config{})
	honest := newClient(t, s)
	x, y := connected(honest, honest)
	entry := func(operation uint8, v any) *shmring.Entry {
		e := &shmring.Entry{Operation: operation}
		switch v := v.(type) {
		case send:
			e.Length = uint8(store(e.Data[:], &v))
		case list:
			e.Length = uint8(store(e.Data[:], &v))
		case recv:
			e.Length = uint8(store(e.Data[:], &v))
		}
		return e
	}
	beyond := entry(submitSend, send{inlined: 1, length: 32})
	beyond.Offset = stagingSize/stagingUnit - 1
	far := entry(submitSend, send{inlined: 1, length: 1})
	far.Offset = 1<<32 - 1
	for i, list := range [][]*shmring.Entry{
		{entry(0, nil)},
		{entry(99, nil)},
		{entry(submitSend, send{elements: sendElements + 1})},
		{entry(submitSend, send{elements: 255})},
		{entry(submitRecv, recv{elements: recvElements + 1})},
		{entry(submitRecv, recv{elements: 1 << 31})},
		{entry(submitList, list{}), entry(submitList, list{}), entry(submitList, list{}), entry(submitList, list{})},
		{{Operation: submitList, Length: 15}},
		{{Operation: submitList, Length: 84}},
		{entry(submitList, list{}), entry(submitSend, send{elements: 1})},
		{entry(submitSend, send{inlined: 1, length: transport.MaxInline + 1})},
		{entry(submitSend, send{inlined: 1, length: 4, elements: 1})},
		{beyond},
		{far},
	} {
		k := newClient(t, s)
		newEnd(k)
		for _, e := range list {
			k.put(e)
		}
		honest.await("the end of the program", func() bool { return s.Stats().Programs == 1 })
		if got := s.Stats().Violations; got != uint64(i+1) {
			t.Fatalf("case %d: %d violations", i, got)
		}
	}
	x.k.postSend(x.qp, send{op: uint8(transport.OpWrite), flags: uint8(transport.Signaled), remote: y.mr.addr(0), rkey: y.mr.key}, []byte("x"))
	if c := honest.next(x.cq); c.status != 0 {
		t.Errorf("%+v", c)
	}
}

// TestHostileIndex has a program claim to have taken completions that it was not given.
func TestHostileIndex(t *testing.T) {
	s := openServer(t, Config{})
	honest := newClient(t, s)
	k := newClient(t, s)
	x, _ := connected(k, k)
	for i := range 64 { // as many as the queue has slots
		k.postSend(x.qp, send{id: uint64(i), op: uint8(transport.OpWrite), flags: uint8(transport.Signaled)}, []byte{})
		k.await("a completion", func() bool { return k.must(request{op: uint32(opQueryQP), object: x.qp}).sendsDone == uint32(i+1) })
	}
	const consumedAt = 128
	consumed := (*atomic.Uint64)(unsafe.Pointer(&k.maps[x.cq][consumedAt]))
	consumed.Store(1 << 40)
	k.postSend(x.qp, send{op: uint8(transport.OpWrite), flags: uint8(transport.Signaled)}, []byte{})
	ended(t, s, honest, 1, 1)
}

// TestOverrun loses completions that the program has no slot for, and reports it once.
func TestOverrun(t *testing.T) {
	s := openServer(t, Config{})
	k := newClient(t, s)
	x, _ := connected(k, k)
	for i := range 70 {
		k.postSend(x.qp, send{id: uint64(i), op: uint8(transport.OpWrite), flags: uint8(transport.Signaled)}, []byte{})
		k.await("a completion", func() bool { return k.must(request{op: uint32(opQueryQP), object: x.qp}).sendsDone == uint32(i+1) })
	}
	if e := k.event(k.events); e.kind != eventCQError || e.object != x.cq {
		t.Errorf("%+v", e)
	}
	if c := k.next(x.cq); c.id != 0 {
		t.Errorf("%+v", c)
	}
	if n := s.Stats(); n.Violations != 0 || n.Programs != 1 {
		t.Errorf("%+v", n)
	}
}

// TestHostileRequests ends processes that are no library.
func TestHostileRequests(t *testing.T) {
	s := openServer(t, Config{})
	honest := newClient(t, s)
	file, err := os.Create(filepath.Join(t.TempDir(), "mem"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	comm, err := os.OpenFile("/proc/self/comm", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer comm.Close()
	readOnly, err := os.Open("/proc/self/mem")
	if err != nil {
		t.Fatal(err)
	}
	defer readOnly.Close()
	for name, f := range map[string]*os.File{"a file": file, "another file of proc": comm, "memory that cannot be written": readOnly} {
		if _, _, err := dial(t, s).call(request{op: uint32(opHello)}, int(f.Fd())); err == nil {
			t.Errorf("%s is taken for the memory of a program", name)
		}
	}
	if _, _, err := dial(t, s).call(request{op: uint32(opHello)}); err == nil {
		t.Error("HELLO without memory is answered")
	}
	if _, _, err := dial(t, s).call(request{op: uint32(opAllocPD)}); err == nil {
		t.Error("a request before HELLO is answered")
	}
	for _, b := range [][]byte{make([]byte, requestSize), make([]byte, requestSize-1), make([]byte, 4096), binary.NativeEndian.AppendUint32(nil, Version)} {
		k := newClient(t, s)
		if _, err := k.c.Write(b); err != nil {
			t.Fatal(err)
		}
		if n, err := k.c.Read(make([]byte, 1)); err == nil && n > 0 {
			t.Error("garbage is answered")
		}
	}
	k := newClient(t, s)
	mem, err := os.OpenFile("/proc/self/mem", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer mem.Close()
	if _, _, err := k.call(request{op: uint32(opHello)}, int(mem.Fd())); err == nil {
		t.Error("a second HELLO is answered")
	}
	honest.await("the end of all others", func() bool { return s.Stats().Programs == 1 })
	honest.must(request{op: uint32(opAllocPD)})
}

// TestAdmission refuses users that the configuration does not name, and more programs than one user may have.
func TestAdmission(t *testing.T) {
	s := openServer(t, Config{Programs: 2, Groups: []uint32{77}})
	s.mu.Lock()
	s.users[4242] = 2
	s.mu.Unlock()
	for _, c := range []struct {
		uid    uint32
		groups []uint32
		want   bool
	}{
		{0, nil, true},
		{uint32(os.Geteuid()), nil, true},
		{4241, nil, false},
		{4241, []uint32{1, 77}, true},
		{4242, []uint32{77}, false},
	} {
		if got := s.permits(c.uid, c.groups); got != c.want {
			t.Errorf("uid %d of %v: %v", c.uid, c.groups, got)
		}
	}
}

// FuzzEntries writes entries of any content to the submission queue. Memory outside of the region stays as it is.
func FuzzEntries(f *testing.F) {
	v := send{op: uint8(transport.OpSend), elements: 1}
	var data [shmring.EntryBytes]byte
	n := store(data[:], &v)
	f.Add(slices.Concat([]byte{submitSend, 0, byte(n)}, data[:n]))
	f.Add(slices.Concat([]byte{submitRecv, 0, byte(n)}, data[:n], []byte{submitList, 0, 80}, data[:n]))
	s := openServer(f, Config{})
	guard := make([]byte, 1<<16)
	f.Fuzz(func(t *testing.T, b []byte) {
		k := newClient(t, s)
		x, y := connected(k, k)
		half := len(y.mr.b) / 2
		r := k.must(request{op: uint32(opRegMR), pd: x.pd, addr: y.mr.addr(0), length: uint64(half), va: y.mr.addr(0), access: everything})
		k.must(request{op: uint32(opDeregMR), object: y.mr.object})
		k.must(request{op: uint32(opDeregMR), object: x.mr.object})
		for count := 0; len(b) >= 3 && count < 64; count++ {
			e := shmring.Entry{Operation: b[0] % 6, Connection: uint32(b[1] % 4), Length: min(b[2], shmring.EntryBytes), Offset: uint32(b[1]) * 300}
			b = b[3:]
			b = b[copy(e.Data[:], b):]
			if e.Operation == submitSend && b == nil { // the key cannot be guessed
				binary.NativeEndian.PutUint32(e.Data[32:], r.key)
			}
			if ok, err := k.submit.Put(&e); !ok || err != nil {
				break
			}
		}
		_, _, _ = k.call(request{op: uint32(opQueryQP), object: x.qp}) // does what is posted
		if string(y.mr.b[half:]) != string(guard[:half]) || string(x.mr.b) != string(guard[:len(x.mr.b)]) {
			t.Error("memory that is not registered was written")
		}
		k.c.Close()
	})
}

// FuzzRequests sends requests of any content.
func FuzzRequests(f *testing.F) {
	q := request{version: Version, op: uint32(opCreateQP), srq: none}
	f.Add(unsafe.Slice((*byte)(unsafe.Pointer(&q)), requestSize))
	s := openServer(f, Config{})
	f.Fuzz(func(t *testing.T, b []byte) {
		k := newClient(t, s)
		newEnd(k)
		for len(b) > 0 {
			q, err := decodeRequest(append(slices.Clip(b[:min(len(b), requestSize)]), make([]byte, max(0, requestSize-len(b)))...))
			b = b[min(len(b), requestSize):]
			if err != nil {
				continue
			}
			_, fds, err := k.call(q)
			closeAll(fds)
			if op(q.op) == opHello {
				if err == nil {
					t.Error("a second HELLO is answered")
				}
				break
			}
		}
		k.c.Close()
	})
}

// TestMetrics counts programs and what they did wrong.
func TestMetrics(t *testing.T) {
	s := openServer(t, Config{})
	honest := newClient(t, s)
	newClient(t, s).put(&shmring.Entry{Operation: 99})
	ended(t, s, honest, 1, 1)
	var r metrics.Registry
	r.Add(s.WriteMetrics)
	var out strings.Builder
	if err := r.WriteText(&out, metrics.Selection{}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"millrace_rdma_programs{address=\"198.18.0.1\"} 1\n", "millrace_rdma_programs_denied_total{address=\"198.18.0.1\"} 0\n",
		"millrace_rdma_program_violations_total{address=\"198.18.0.1\"} 1\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %s in\n%s", want, &out)
		}
	}
}

// TestMemoryOfAProcess has a process execute another program, and end: the descriptor of its memory reaches neither the program that
// follows nor another process.
func TestMemoryOfAProcess(t *testing.T) {
	cmd := exec.Command("sh", "-c", "echo here; read line; exec cat")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	answer := make([]byte, 5)
	if _, err := io.ReadFull(out, answer); err != nil {
		t.Fatal(err)
	}
	stack := stackOf(t, cmd.Process.Pid)
	fd, err := unix.Open(fmt.Sprintf("/proc/%d/mem", cmd.Process.Pid), unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	m, err := openImage(fd)
	if err != nil {
		t.Fatal(err)
	}
	defer m.close()
	b := make([]byte, 8)
	if !m.Read(b, stack) || !m.Write(b, stack) {
		t.Fatal("the memory of the process is not reached")
	}
	if m.Read(b, 0) {
		t.Error("address 0 is read")
	}
	if _, err := io.WriteString(in, "go\nhere\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(out, answer); err != nil { // cat answers
		t.Fatal(err)
	}
	if now := stackOf(t, cmd.Process.Pid); m.Read(b, now) || m.Write(b, now) || m.Read(b, stack) {
		t.Error("the memory of the program that follows is reached")
	}
	in.Close()
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// stackOf returns an address in the stack of a process.
func stackOf(t *testing.T, pid int) (addr uint64) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, "[stack]") {
			if _, err := fmt.Sscanf(line, "%x-", &addr); err != nil {
				t.Fatal(err)
			}
		}
	}
	return addr
}

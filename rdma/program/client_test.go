package program

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/node"
	"github.com/millrace/millrace/node/nexthop"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/pmd/device"
	"github.com/millrace/millrace/rdma"
	"github.com/millrace/millrace/ring"
	shmring "github.com/millrace/millrace/shim/ring"
)

// openServer returns a server on a node whose device is memory.
func openServer(t testing.TB, cfg Config) *Server {
	t.Helper()
	n, err := node.Open(node.Config{
		Loops: 1, Devices: []node.Device{{Name: "m0"}},
		OpenDevice: func(_ node.Device, pools []*ring.Pool) (*device.Device, error) {
			a, b, err := pmd.NewMemory(pmd.MemoryConfig{A: pools[0], B: pools[0]})
			if err != nil {
				return nil, err
			}
			return device.New("memory", []pmd.Driver{a}, func() error { return errors.Join(a.Close(), b.Close()) }), nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	c, err := rdma.New(n, rdma.Config{Addr: netip.MustParseAddr("198.18.0.1"), Hops: nexthop.Static{}})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(n.Add(c.Service()), n.Start()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- n.Run(ctx) }()
	cfg.Context, cfg.Path = c, filepath.Join(t.TempDir(), "rdma.sock")
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		err := s.Close()
		cancel()
		if err := errors.Join(err, <-done, n.Close()); err != nil {
			t.Error(err)
		}
	})
	return s
}

// client does what the library does, in Go.
type client struct {
	t        testing.TB
	c        *net.UnixConn
	hello    reply
	submit   *shmring.QueueProducer
	memory   []byte // of the submission queue, and the staging memory behind
	doorbell int
	events   int
	cqs      map[uint32]*shmring.QueueConsumer
	channels map[uint32]int
	maps     map[uint32][]byte // of completion queues
}

func dial(t testing.TB, s *Server) *client {
	t.Helper()
	c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: s.cfg.Path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return &client{t: t, c: c, cqs: map[uint32]*shmring.QueueConsumer{}, channels: map[uint32]int{}, maps: map[uint32][]byte{}}
}

// newClient returns one that has introduced itself.
func newClient(t testing.TB, s *Server) *client {
	t.Helper()
	k := dial(t, s)
	mem, err := os.OpenFile("/proc/self/mem", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer mem.Close()
	var fds []int
	k.hello, fds, err = k.call(request{op: uint32(opHello)}, int(mem.Fd()))
	if err != nil || len(fds) != 3 {
		t.Fatalf("HELLO: %v, %d descriptors", err, len(fds))
	}
	k.memory = k.mapFile(fds[0], shmring.QueueSize(int(k.hello.slots))+int(k.hello.staging))
	k.doorbell, k.events = fds[1], fds[2]
	t.Cleanup(func() { closeAll(fds[1:]) })
	if k.submit, err = shmring.NewQueueProducer(k.memory[:shmring.QueueSize(int(k.hello.slots))]); err != nil {
		t.Fatal(err)
	}
	return k
}

func (k *client) mapFile(fd, size int) []byte {
	k.t.Helper()
	b, err := unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		k.t.Fatal(err)
	}
	unix.Close(fd)
	k.t.Cleanup(func() { _ = unix.Munmap(b) })
	return b
}

// call does a request.
func (k *client) call(q request, fds ...int) (r reply, got []int, err error) {
	q.version = Version
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	_ = k.c.SetDeadline(time.Now().Add(20 * time.Second))
	if _, _, err := k.c.WriteMsgUnix(unsafe.Slice((*byte)(unsafe.Pointer(&q)), requestSize), rights, nil); err != nil {
		return r, nil, err
	}
	in, oob := make([]byte, replySize+1), make([]byte, 64)
	n, oobn, _, _, err := k.c.ReadMsgUnix(in, oob)
	if err != nil || n != replySize {
		return r, nil, errors.Join(err, errors.New("no reply"))
	}
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&r)), replySize), in)
	if r.errno != 0 {
		return r, descriptors(oob[:oobn]), syscall.Errno(r.errno)
	}
	return r, descriptors(oob[:oobn]), nil
}

// must is call without an error.
func (k *client) must(q request) reply {
	k.t.Helper()
	r, fds, err := k.call(q)
	if err != nil {
		k.t.Fatalf("operation %d: %v", q.op, err)
	}
	switch op(q.op) {
	case opCreateCQ:
		k.maps[r.object] = k.mapFile(fds[0], shmring.QueueSize(int(r.slots)))
		c, err := shmring.NewQueueConsumer(k.maps[r.object])
		if err != nil {
			k.t.Fatal(err)
		}
		k.cqs[r.object] = c
	case opCreateChannel:
		k.channels[r.object] = fds[0]
		k.t.Cleanup(func() { unix.Close(fds[0]) })
	}
	return r
}

// put posts an entry, and wakes the loop.
func (k *client) put(e *shmring.Entry) {
	k.t.Helper()
	k.await("a free slot", func() bool {
		ok, err := k.submit.Put(e)
		if err != nil {
			k.t.Fatal(err)
		}
		return ok
	})
	if k.submit.Wakes(false) {
		one := [8]byte{1}
		if _, err := unix.Write(k.doorbell, one[:]); err != nil {
			k.t.Fatal(err)
		}
	}
}

func (k *client) postSend(qp uint32, v send, inlined []byte) {
	k.t.Helper()
	e := shmring.Entry{Connection: qp, Operation: submitSend}
	if inlined != nil {
		v.inlined, v.length = 1, uint32(len(inlined))
		copy(k.memory[shmring.QueueSize(int(k.hello.slots)):], inlined)
	}
	e.Length = uint8(store(e.Data[:], &v))
	k.put(&e)
}

func (k *client) postRecv(operation uint8, number uint32, v recv) {
	k.t.Helper()
	e := shmring.Entry{Connection: number, Operation: operation}
	e.Length = uint8(store(e.Data[:], &v))
	k.put(&e)
}

// next returns the next completion.
func (k *client) next(cq uint32) (v completion) {
	k.t.Helper()
	k.await("a completion", func() bool {
		var e shmring.Entry
		ok, err := k.cqs[cq].Take(&e)
		if err != nil {
			k.t.Fatal(err)
		}
		v = load[completion](e.Data[:])
		return ok
	})
	return v
}

// event reads an event.
func (k *client) event(fd int) (e event) {
	k.t.Helper()
	poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	k.await("an event", func() bool {
		n, _ := unix.Poll(poll, 100)
		return n == 1
	})
	if _, err := unix.Read(fd, unsafe.Slice((*byte)(unsafe.Pointer(&e)), unsafe.Sizeof(e))); err != nil {
		k.t.Fatal(err)
	}
	return e
}

func (k *client) await(what string, ok func() bool) {
	k.t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(20 * time.Microsecond) {
		if time.Now().After(end) {
			k.t.Fatalf("%s did not come", what)
		}
	}
}

// region is registered memory of the test's process.
type region struct {
	b      []byte
	object uint32
	key    uint32
}

const everything = 15 // all access flags

func (k *client) region(pd uint32, n int) region {
	k.t.Helper()
	b, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		k.t.Fatal(err)
	}
	k.t.Cleanup(func() { _ = unix.Munmap(b) })
	addr := uint64(uintptr(unsafe.Pointer(&b[0])))
	r := k.must(request{op: uint32(opRegMR), pd: pd, addr: addr, length: uint64(n), va: addr, access: everything})
	return region{b, r.object, r.key}
}

func (r *region) addr(off int) uint64 { return uint64(uintptr(unsafe.Pointer(&r.b[off]))) }

func (r *region) element(off, n int) element { return element{r.addr(off), uint32(n), r.key} }

// pair is a queue pair with its objects.
type end struct {
	k           *client
	pd, cq, qp  uint32
	qpn         uint32
	mr          region
	channel     uint32
	shared      uint32
	serviceType uint32
}

const (
	typeRC = 2
	typeUD = 4
)

// newEnd makes a queue pair of RC with a region of 64 KiB.
func newEnd(k *client) *end {
	k.t.Helper()
	e := &end{k: k, serviceType: typeRC}
	e.pd = k.must(request{op: uint32(opAllocPD)}).object
	e.channel = k.must(request{op: uint32(opCreateChannel)}).object
	e.cq = k.must(request{op: uint32(opCreateCQ), depth: 64, channel: e.channel}).object
	r := k.must(request{op: uint32(opCreateQP), pd: e.pd, sendCQ: e.cq, recvCQ: e.cq, srq: none, depth: 16, recvDepth: 16, service: e.serviceType})
	e.qp, e.qpn = r.object, r.key
	e.mr = k.region(e.pd, 1<<16)
	return e
}

// connect leads e to RTS, towards a queue pair of the same node.
func (e *end) connect(peer uint32) {
	e.k.t.Helper()
	for state := uint32(1); state <= 3; state++ {
		r := e.k.must(request{
			op: uint32(opModifyQP), object: e.qp, state: state, access: everything, mtu: 1024, destQP: peer, gid: e.k.hello.gid,
			maxDestReads: 4, maxReads: 4, rnrTimer: 12, timeout: 14, retries: 7, rnrRetries: 7,
		})
		if r.state != state {
			e.k.t.Fatalf("state %d, want %d", r.state, state)
		}
	}
}

// connected returns two ends that are connected.
func connected(a, b *client) (x, y *end) {
	a.t.Helper()
	x, y = newEnd(a), newEnd(b)
	x.connect(y.qpn)
	y.connect(x.qpn)
	return x, y
}

package shim

import (
	"net/netip"
	"os"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/socket"
)

// sendBufferOf is SO_SNDBUF of a socket.
func sendBufferOf(t *testing.T, fd int) int {
	t.Helper()
	n, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// edges returns an epoll instance that reports the edges of fd at which it becomes writable.
func edges(t *testing.T, fd int) (next func(wait time.Duration) uint32) {
	t.Helper()
	e, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(e) })
	if err := unix.EpollCtl(e, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLOUT | unix.EPOLLET&(1<<32-1)}); err != nil {
		t.Fatal(err)
	}
	return func(wait time.Duration) uint32 {
		var ev [1]unix.EpollEvent
		for {
			n, err := unix.EpollWait(e, ev[:], int(wait.Milliseconds()))
			if err == syscall.EINTR {
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			if n == 0 {
				return 0
			}
			return ev[0].Events
		}
	}
}

// TestSmallBuffer: a socket with a small buffer is not writable, nor is it while it gets its own again, and all that was written to
// it is counted. The edge comes when its buffer is enlarged, or when what fill has written was read.
func TestSmallBuffer(t *testing.T) {
	for _, size := range []int{ringSendBuffer, sendBuffer} {
		for _, late := range []bool{false, true} {
			ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK, 0)
			if err != nil {
				t.Fatal(err)
			}
			p := ends[0]
			raiseBuffer(p, unix.SO_SNDBUFFORCE, unix.SO_SNDBUF, size)
			size := sendBufferOf(t, p)
			if err := writeGuard(p); err != nil {
				t.Fatal(err)
			}
			n, err := newSmallBuffer(p)
			if err != nil {
				t.Fatal(err)
			}
			next := edges(t, p)
			if ev := next(0); ev != 0 {
				t.Fatalf("a small buffer: events %#x", ev)
			}
			filled := smallBytes
			if late {
				more, err := n.fill()
				if err != nil {
					t.Fatal(err)
				}
				filled += more
				if ev := next(0); ev != 0 {
					t.Errorf("filled: events %#x", ev)
				}
				r := &relay{fd: ends[1], drop: make([]byte, scratchSize)}
				if err := r.skip(filled); err != nil {
					t.Error(err)
				}
			} else {
				n.restore()
			}
			if ev := next(limit); ev != unix.EPOLLOUT {
				t.Errorf("size %d, late %v: events %#x", size, late, ev)
			}
			want := 1 + smallBytes
			if late {
				want = 1
			}
			if have, err := unix.IoctlGetInt(ends[1], unix.SIOCINQ); err != nil || have != want {
				t.Errorf("size %d, late %v: %d bytes are left, %v, want %d", size, late, have, err, want)
			}
			if got := sendBufferOf(t, p); got != size {
				t.Errorf("late %v: a send buffer of %d bytes, before %d", late, got, size)
			}
			n.close()
			unix.Close(ends[0])
			unix.Close(ends[1])
		}
	}
}

// TestConnectIsNotFilled: a socket that does not block is not writable during a short handshake without a copy, and has its
// buffer afterwards.
func TestConnectIsNotFilled(t *testing.T) {
	b := newBed(t, nil)
	c := b.dial(t)
	for range 20 {
		p, peer := b.join(t, c)
		k := b.sockOf(t, p.fd)
		k.mu.Lock()
		fd, n := k.fd, k.small
		k.mu.Unlock()
		if n == nil || n.p != -1 {
			t.Fatalf("%+v after the handshake", n)
		}
		if k.refilled == 0 { // it took less than smallTime
			if have, err := unix.IoctlGetInt(fd, unix.SIOCINQ); err != nil || have != 1+smallBytes {
				t.Errorf("%d bytes in the node's end, %v", have, err)
			}
		}
		if got := sendBufferOf(t, p.fd); got < 2*sendBuffer*9/10 {
			t.Errorf("a send buffer of %d bytes", got)
		}
		echo(t, p, peer, []byte("bytes both ways"))
		p.close()
		peer.Close()
	}
	until(t, "the sockets are released", func() bool { return b.Stats().Sockets == 0 })
}

// TestConnectThatTakesLong: the socket stays unwritable, also for edges, and the node gives up its descriptor of it: then it
// sees that the program closes it.
func TestConnectThatTakesLong(t *testing.T) {
	b := newBed(t, nil)
	p := b.dial(t).socket(unix.SOCK_STREAM, false)
	if r := p.ask(request{op: opConnect, addr: netip.MustParseAddrPort("198.18.0.99:80")}, p.fd); r.errno != syscall.EINPROGRESS {
		t.Fatal(r.errno)
	}
	next := edges(t, p.fd)
	k := b.sockOf(t, p.fd)
	until(t, "the descriptor is closed", func() bool {
		k.mu.Lock()
		defer k.mu.Unlock()
		return k.small.p < 0
	})
	if ev := next(20 * time.Millisecond); ev&unix.EPOLLOUT != 0 && ev&unix.EPOLLERR == 0 {
		t.Errorf("events %#x", ev)
	}
	p.close()
	until(t, "the socket is released", func() bool { return b.Stats().Sockets == 0 })
}

// TestConnectIsFilledMeanwhile: the handshake ends after the socket was filled, and nothing of that reaches the peer.
func TestConnectIsFilledMeanwhile(t *testing.T) {
	b := newBed(t, nil)
	l := b.listenPeer(t, "0")
	c := b.dial(t)
	b.join(t, c) // the neighbour is known from now on
	p := c.socket(unix.SOCK_STREAM, false)
	ch := &channel{s: b.Server, user: b.userOf(uint32(os.Getuid())), owner: &socket.Process{}}
	done := make(chan error, 1)
	go b.cfg.Stack.EnterLoop(0, func(in socket.LoopStack) {
		k, err := b.findNow(ch, p.fd)
		if err == nil {
			err = k.connect(ch, &request{op: opConnect, addr: netip.MustParseAddrPort(peerPort(l))}, &reply{}, p.fd, in.Connect, true)
			k.fillSmall()
		}
		if k.refilled == 0 || k.small.p >= 0 {
			t.Errorf("%d bytes were written", k.refilled)
		}
		done <- err
	})
	if err := <-done; err != syscall.EINPROGRESS {
		t.Fatal(err)
	}
	peer, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if ev := p.poll(unix.POLLOUT, limit); ev != unix.POLLOUT {
		t.Fatalf("events %#x", ev)
	}
	echo(t, p, peer, []byte("the first bytes"))
}

// TestLateFillAfterTheHandshake: a handshake that has ended while its answer waits to be sent needs no fill: connect(2) is over.
func TestLateFillAfterTheHandshake(t *testing.T) {
	for state, want := range map[state]error{connected: nil, released: syscall.ENETDOWN} {
		k := &sock{state: state}
		if err := k.fillLate(-1); err != want {
			t.Errorf("%v: %v, want %v", state, err, want)
		}
	}
}

// TestSmallBufferIsForAMoment: a handshake that takes long leaves the node no descriptor of the program's end, and the socket is filled.
func TestSmallBufferIsForAMoment(t *testing.T) {
	b := newBed(t, nil)
	p := b.dial(t).socket(unix.SOCK_STREAM, false)
	if r := p.ask(request{op: opConnect, addr: netip.MustParseAddrPort("198.18.0.99:80")}, p.fd); r.errno != syscall.EINPROGRESS { // no neighbour
		t.Fatal(r.errno)
	}
	k := b.sockOf(t, p.fd)
	until(t, "the small buffer is gone", func() bool {
		k.mu.Lock()
		defer k.mu.Unlock()
		return k.small != nil && k.small.p < 0 && k.refilled > 0
	})
	if ev := p.poll(unix.POLLOUT, 0); ev&unix.POLLERR == 0 && ev != 0 {
		t.Errorf("events %#x", ev)
	}
}

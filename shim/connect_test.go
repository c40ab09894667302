package shim

import (
	"bytes"
	"crypto/sha256"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"runtime"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/socket"
)

// listenPeer listens on the other stack.
func (b *bed) listenPeer(t testing.TB, port string) net.Listener {
	t.Helper()
	l, err := b.peer.Listen("tcp", ":"+port)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func peerPort(l net.Listener) string {
	return netip.AddrPortFrom(netip.MustParseAddr(peerAddr), l.Addr().(*net.TCPAddr).AddrPort().Port()).String()
}

// join returns a connection of a program of c to the other stack.
func (b *bed) join(t testing.TB, c *client) (*program, net.Conn) {
	t.Helper()
	l := b.listenPeer(t, "0")
	p := c.socket(unix.SOCK_STREAM, false)
	if err := p.connect(peerPort(l)); err != nil {
		t.Fatal(err)
	}
	peer, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { peer.Close() })
	return p, peer
}

func TestConnect(t *testing.T) {
	b := newBed(t, nil)
	c := b.dial(t)
	l := b.listenPeer(t, "80")
	p := c.socket(unix.SOCK_STREAM, false)
	r := p.ask(request{op: opConnect, addr: netip.MustParseAddrPort(peerAddr + ":80")}, p.fd)
	if r.errno != syscall.EINPROGRESS || r.remote.String() != peerAddr+":80" || r.local.Addr().String() != nodeAddr || r.local.Port() == 0 {
		t.Fatalf("%+v", r)
	}
	peer, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if ev := p.poll(unix.POLLOUT|unix.POLLIN, limit); ev != unix.POLLOUT {
		t.Fatalf("events %#x", ev)
	}
	if n, err := p.name(); err != nil || n.local != r.local || n.remote != r.remote {
		t.Errorf("name %+v, %v", n, err)
	}
	if peer.RemoteAddr().String() != r.local.String() {
		t.Errorf("the peer sees %v", peer.RemoteAddr())
	}
	if n := p.ask(request{op: opNames}, p.fd); n.local != r.local || n.remote != r.remote {
		t.Errorf("names %+v", n)
	}
	if r := p.ask(request{op: opConnect, addr: r.remote}, p.fd); r.errno != 0 {
		t.Errorf("second connect: %v", r.errno)
	}
	if r := p.ask(request{op: opConnect, addr: r.remote}, p.fd); r.errno != syscall.EISCONN {
		t.Errorf("third connect: %v", r.errno)
	}
	for range 100 {
		echo(t, p, peer, []byte("request"))
	}
	peer.Close()
	if n, err := p.read(make([]byte, 10)); err != io.EOF {
		t.Errorf("after the peer's close: %d, %v", n, err)
	}
	p.close()
	until(t, "the socket is released", func() bool { return b.Stats().Sockets == 0 })
}

// echo sends a message from a to b and back.
func echo(t testing.TB, a, b io.ReadWriter, message []byte) {
	t.Helper()
	for range 2 {
		if _, err := a.Write(message); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, len(message))
		if _, err := io.ReadFull(b, got); err != nil || !bytes.Equal(got, message) {
			t.Fatalf("%q, %v", got, err)
		}
		a, b = b, a
	}
}

func TestConnectFails(t *testing.T) {
	b := newBed(t, nil)
	c := b.dial(t)
	for to, want := range map[string]syscall.Errno{
		peerAddr + ":81":     syscall.ECONNREFUSED,
		"192.0.2.1:80":       syscall.ENETUNREACH,
		"[2001:db8::1]:80":   syscall.EAFNOSUPPORT,
		"255.255.255.255:80": syscall.ENETUNREACH,
	} {
		p := c.socket(unix.SOCK_STREAM, false)
		if err := p.connect(to); err != want {
			t.Errorf("connect to %s: %v, want %v", to, err, want)
		}
		if n := p.soError(); n != 0 {
			t.Errorf("SO_ERROR again: %v", n)
		}
		if ReadMark(p.fd).Connected && want != syscall.ECONNREFUSED {
			t.Errorf("connect to %s: the socket has the mark of a connection", to)
		}
		p.close()
	}
	v6 := c.socket(unix.SOCK_STREAM, true)
	if err := v6.setInt(unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1); err != nil {
		t.Fatal(err)
	}
	if err := v6.connect("[::ffff:" + peerAddr + "]:81"); err != syscall.ENETUNREACH { // as Linux
		t.Errorf("connect of a socket for IPv6 alone: %v", err)
	}
	v6.close()
	until(t, "the sockets are released", func() bool { return b.Stats().Sockets == 0 })
}

// TestRefusedIsAsOfTCP compares poll(2) of a refused connection with that of the kernel's TCP.
func TestRefusedIsAsOfTCP(t *testing.T) {
	b := newBed(t, nil)
	p := b.dial(t).socket(unix.SOCK_STREAM, false)
	if r := p.ask(request{op: opConnect, addr: netip.MustParseAddrPort(peerAddr + ":81")}, p.fd); r.errno != syscall.EINPROGRESS {
		t.Fatal(r.errno)
	}
	const want = unix.POLLIN | unix.POLLOUT | unix.POLLERR | unix.POLLHUP | unix.POLLRDHUP
	until(t, "all events", func() bool { return p.poll(want, time.Second) == want })
	if r := p.ask(request{op: opConnect, addr: netip.MustParseAddrPort(peerAddr + ":81")}, p.fd); r.errno != syscall.ECONNREFUSED {
		t.Errorf("connect(2) again: %v", r.errno)
	}
}

// TestTransfer sends 16 MiB each way at once, and half-closes both directions.
func TestTransfer(t *testing.T) {
	b := newBed(t, nil)
	p, peer := b.join(t, b.dial(t))
	transfer := func(w io.Writer, closeWrite func(), sum chan<- [32]byte) {
		h := sha256.New()
		r := rand.New(rand.NewPCG(1, 2))
		buf := make([]byte, 100_000)
		for left := 16 << 20; left > 0; {
			n := min(1+r.IntN(len(buf)), left)
			for i := range n {
				buf[i] = byte(r.Uint32())
			}
			if _, err := w.Write(buf[:n]); err != nil {
				t.Error(err)
				break
			}
			h.Write(buf[:n])
			left -= n
		}
		closeWrite()
		sum <- [32]byte(h.Sum(nil))
	}
	collect := func(r io.Reader, sum chan<- [32]byte) {
		h := sha256.New()
		if _, err := io.CopyBuffer(struct{ io.Writer }{h}, struct{ io.Reader }{r}, make([]byte, 70_000)); err != nil {
			t.Error(err)
		}
		sum <- [32]byte(h.Sum(nil))
	}
	var sums [4]chan [32]byte
	for i := range sums {
		sums[i] = make(chan [32]byte, 1)
	}
	go transfer(p, func() { unix.Shutdown(p.fd, unix.SHUT_WR) }, sums[0])
	go collect(peer, sums[1])
	go transfer(peer, func() { peer.(interface{ CloseWrite() error }).CloseWrite() }, sums[2])
	go collect(p, sums[3])
	if <-sums[0] != <-sums[1] || <-sums[2] != <-sums[3] {
		t.Error("the bytes differ")
	}
	until(t, "the node's end is released after both FINs", func() bool { return b.Stats().Sockets == 0 })
	if ev := p.poll(unix.POLLIN|unix.POLLRDHUP, limit); ev&unix.POLLHUP == 0 || ev&unix.POLLERR != 0 {
		t.Errorf("events after the end: %#x", ev)
	}
}

// TestBulk: much that a program writes at once is taken out of its socket. All of it arrives without more being written, a byte
// stays in the socket all the time, and the end of the connection is a reset for the program.
func TestBulk(t *testing.T) {
	b := newBed(t, nil)
	p, peer := b.join(t, b.dial(t))
	k := b.sockOf(t, p.fd)
	block := make([]byte, 300_000)
	for i := range block {
		block[i] = byte(i * i >> 8)
	}
	bulk := 0
	k.mu.Lock()
	conn := k.conn
	k.mu.Unlock()
	for range 20 {
		written := make(chan error, 1)
		go func() { written <- p.write(block) }()
		got := make([]byte, len(block))
		if _, err := io.ReadFull(peer, got); err != nil || !bytes.Equal(got, block) {
			t.Fatalf("other bytes, %v", err)
		}
		if err := <-written; err != nil {
			t.Fatal(err)
		}
		conn.Do(func(socket.LoopConn) {
			r := k.relayed
			have, err := unix.IoctlGetInt(r.fd, unix.SIOCINQ)
			if err != nil || have != r.unconsumed || have < 1 {
				t.Errorf("%d bytes in the socket, %d of them read, %v", have, r.unconsumed, err)
			}
			if r.bulk {
				bulk++
			}
		})
		echo(t, p, peer, []byte("few bytes"))
	}
	if bulk == 0 {
		t.Error("no burst was a large one")
	}
	k.abort()
	if n, err := p.read(make([]byte, 1)); err != syscall.ECONNRESET {
		t.Errorf("after the end: %d, %v", n, err)
	}
}

// blocking is connect(2) that waits.
func (p *program) blocking(to string, more int32) (reply, int) {
	p.t.Helper()
	return p.askMemory(request{op: opConnect, addr: netip.MustParseAddrPort(to), arg: blocks | more}, p.fd)
}

// TestBlockingConnectIsAnsweredAtTheEndOfTheHandshake: with or without rings, and the socket was never filled.
func TestBlockingConnectIsAnsweredAtTheEndOfTheHandshake(t *testing.T) {
	// The peer's loop runs in this process. With a processor of the runtime for each thread that waits in a system call, and no more,
	// it would wait for one.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + 2))
	tiers(t, func(t *testing.T, rings bool) {
		b := newBed(t, nil)
		l := b.listenPeer(t, "0")
		c := b.dial(t)
		atOnce := 0
		for tries := 0; tries < 200 && atOnce < 20; tries++ { // a loaded machine takes a millisecond here and there
			p := c.socket(unix.SOCK_STREAM, false)
			r, memory := p.blocking(peerPort(l), map[bool]int32{true: wantRings}[rings])
			if r.errno != 0 && r.errno != syscall.EINPROGRESS || (memory >= 0) != rings || !r.local.IsValid() || r.remote.String() != peerPort(l) {
				t.Fatalf("%+v, %d", r, memory)
			}
			if r.errno == 0 {
				atOnce++
				if ev := p.poll(unix.POLLOUT, 0); ev != unix.POLLOUT {
					t.Errorf("events %#x after connect(2)", ev)
				}
				k := b.sockOf(t, p.fd)
				k.mu.Lock()
				fd := k.fd
				k.mu.Unlock()
				if n, err := unix.IoctlGetInt(fd, unix.SIOCINQ); err != nil || n != 1 {
					t.Errorf("%d bytes in the node's end, %v; want the guard byte alone", n, err)
				}
			}
			peer, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			if memory >= 0 {
				unix.Close(memory)
			} else {
				echo(t, p, peer, []byte("bytes both ways"))
			}
			peer.Close()
			p.close()
		}
		if atOnce == 0 {
			t.Error("no connect(2) was answered at the end of the handshake")
		}
	})
}

// TestBlockingConnectThatTakesLong: the reply comes all the same, and the socket is not writable.
func TestBlockingConnectThatTakesLong(t *testing.T) {
	b := newBed(t, nil)
	c := b.dial(t)
	p := c.socket(unix.SOCK_STREAM, false)
	r, _ := p.blocking("198.18.0.99:80", 0) // no neighbour
	if r.errno != syscall.EINPROGRESS {
		t.Fatal(r.errno)
	}
	if ev := p.poll(unix.POLLOUT, 50*time.Millisecond); ev&unix.POLLOUT != 0 && ev&unix.POLLERR == 0 {
		t.Errorf("events %#x", ev)
	}
	if r, _ := p.blocking("198.18.0.99:80", 0); r.errno != syscall.EALREADY {
		t.Errorf("a second connect(2): %v", r.errno)
	}
	k := &sock{s: b.Server, state: released, answer: func(error) {}}
	if err := k.fillLate(p.fd); err != syscall.ENETDOWN || k.answer != nil {
		t.Errorf("of a socket that was shut down meanwhile: %v", err)
	}
}

// TestBlockingConnectThatIsRefused shows that as one that does not wait.
func TestBlockingConnectThatIsRefused(t *testing.T) {
	b := newBed(t, nil)
	c := b.dial(t)
	b.join(t, c) // the neighbour is known from now on
	for range 10 {
		p := c.socket(unix.SOCK_STREAM, false)
		if r, _ := p.blocking(peerAddr+":9", 0); r.errno != syscall.EINPROGRESS {
			t.Fatal(r.errno)
		}
		if ev := p.poll(unix.POLLOUT, limit); ev&unix.POLLERR == 0 {
			t.Errorf("events %#x", ev)
		}
		if err := p.soError(); err != syscall.ECONNREFUSED {
			t.Error(err)
		}
	}
}

// TestProcessEndsDuringConnect: another one that has the socket sees it unwritable, as long as the handshake goes on.
func TestProcessEndsDuringConnect(t *testing.T) {
	b := newBed(t, nil)
	c := b.dial(t)
	p := c.socket(unix.SOCK_STREAM, false)
	var out [requestSize]byte
	q := request{op: opConnect, id: 99, addr: netip.MustParseAddrPort("198.18.0.99:80"), arg: blocks}
	q.encode(out[:])
	if _, err := unix.SendmsgN(c.fd, out[:], unix.UnixRights(p.fd), nil, unix.MSG_NOSIGNAL); err != nil {
		t.Fatal(err)
	}
	_ = unix.Shutdown(c.fd, unix.SHUT_RDWR)
	until(t, "the channel is gone", func() bool { return b.Stats().Channels == 0 })
	if ev := p.poll(unix.POLLOUT, 50*time.Millisecond); ev&unix.POLLOUT != 0 && ev&unix.POLLERR == 0 {
		t.Errorf("events %#x", ev)
	}
}

// sockOf returns what the node has of a socket.
func (b *bed) sockOf(t *testing.T, fd int) *sock {
	cookie, err := cookieOf(fd)
	if err != nil {
		t.Fatal(err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	k := b.sockets[cookie]
	if k == nil {
		t.Fatal("the socket is not known")
	}
	return k
}

package shim

import (
	"io"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/shim/ring"
	"github.com/millrace/millrace/socket"
)

// ringed is a program's connection with rings, whose memory the test writes as it likes.
type ringed struct {
	*program
	page []byte
}

func (r *ringed) word(at int) *atomic.Uint32 { return (*atomic.Uint32)(unsafe.Pointer(&r.page[at])) }

func (r *ringed) long(at int) *atomic.Uint64 { return (*atomic.Uint64)(unsafe.Pointer(&r.page[at])) }

// Offsets of ring/layout.txt: words of the page, and of its directions: from the program, or from the one that has called connect(2),
// and to it.
const (
	pageHead, pageState, pageShut, pageOwn, pageData, pageEnd = 64, 64, 128, 2048, 4096, 4096 + 2*ring.DefaultSize

	outTail, outNotified, outHead, outArm, outFreed = 256, 264, 384, 392, 400
	inTail, inNotified, inSpace, inHead, inArm      = 512, 520, 528, 640, 648

	tailLeft, tailFinal = 1 << 63, 1 << 62
)

// askMemory is ask for a request whose reply comes with a descriptor, -1 if it has none.
func (c *client) askMemory(q request, fd int) (reply, int) {
	c.t.Helper()
	q.id = c.last.Add(1)
	var b [requestSize]byte
	q.encode(b[:])
	if _, err := unix.SendmsgN(c.fd, b[:], unix.UnixRights(fd), nil, unix.MSG_NOSIGNAL); err != nil {
		c.t.Fatal(err)
	}
	var in [replySize]byte
	oob := make([]byte, 64)
	n, oobn, _, _, err := unix.Recvmsg(c.fd, in[:], oob, unix.MSG_CMSG_CLOEXEC)
	for err == unix.EINTR { // a child has stopped
		n, oobn, _, _, err = unix.Recvmsg(c.fd, in[:], oob, unix.MSG_CMSG_CLOEXEC)
	}
	if err != nil || n != replySize {
		c.t.Fatal(n, err)
	}
	r, err := decodeReply(in[:])
	if err != nil {
		c.t.Fatal(err)
	}
	msgs, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil || len(msgs) == 0 {
		return r, -1
	}
	fds, err := unix.ParseUnixRights(&msgs[0])
	if err != nil || len(fds) != 1 {
		c.t.Fatal(fds, err)
	}
	return r, fds[0]
}

// joinRings returns a connection with rings to the other stack.
func (b *bed) joinRings(t testing.TB, c *client) (*ringed, net.Conn) {
	t.Helper()
	l := b.listenPeer(t, "0")
	p := c.socket(unix.SOCK_STREAM, false)
	r, memory := p.askMemory(request{op: opConnect, addr: netip.MustParseAddrPort(peerPort(l)), arg: wantRings}, p.fd)
	if r.errno != syscall.EINPROGRESS || memory < 0 {
		t.Fatal(r.errno, memory)
	}
	page, err := unix.Mmap(memory, 0, pageEnd, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	unix.Close(memory)
	peer, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		peer.Close()
		_ = unix.Munmap(page)
	})
	if ev := p.poll(unix.POLLOUT, limit); ev != unix.POLLOUT {
		t.Fatalf("events %#x", ev)
	}
	g := &ringed{p, page}
	if s := ring.State(g.word(pageState).Load()); s != ring.Open {
		t.Fatalf("state %d", s)
	}
	return g, peer
}

// put writes to the ring, and always a doorbell byte.
func (r *ringed) put(text string) {
	tail := r.long(outTail).Load()
	copy(r.page[pageData+int(tail):], text)
	r.long(outTail).Store(tail + uint64(len(text)))
	r.word(outNotified + 4).Add(1)
	if err := r.program.write([]byte{0}); err != nil {
		r.t.Fatal(err)
	}
}

// isReset waits until both ends see a reset.
func (r *ringed) isReset(peer net.Conn) {
	r.t.Helper()
	b := make([]byte, 1000)
	_ = peer.SetReadDeadline(time.Now().Add(limit))
	var err error
	for err == nil {
		_, err = peer.Read(b)
	}
	if err == io.EOF {
		r.t.Error("the peer sees the end of the stream")
	}
	for err = nil; err == nil; {
		_, err = r.read(b)
	}
	if err != syscall.ECONNRESET {
		r.t.Errorf("the program sees %v", err)
	}
}

// TestWrongIndexes: indexes that cannot be reset the connection, whichever side finds them, and nothing else.
func TestWrongIndexes(t *testing.T) {
	for what, spoil := range map[string]func(r *ringed, peer net.Conn){
		"tail too far": func(r *ringed, _ net.Conn) { r.long(outTail).Store(ring.DefaultSize + 1); r.put("") },
		"tail goes back": func(r *ringed, _ net.Conn) {
			r.put("some bytes")
			time.Sleep(20 * time.Millisecond)
			r.long(outTail).Store(3)
			r.put("")
		},
		"head not yet": func(r *ringed, peer net.Conn) { r.long(inHead).Store(1); _, _ = peer.Write([]byte("x")) },
		"head long ago": func(r *ringed, peer net.Conn) {
			r.long(inHead).Store(^uint64(ring.DefaultSize))
			_, _ = peer.Write([]byte("x"))
		},
		"found by moving": func(r *ringed, _ net.Conn) { r.long(inHead).Store(9); r.ask(request{op: opMove}, r.fd) },
	} {
		t.Run(what, func(t *testing.T) {
			b := newBed(t, nil)
			g, peer := b.joinRings(t, b.dial(t))
			spoil(g, peer)
			g.isReset(peer)
			until(t, "the socket is released", func() bool { return b.Stats().Sockets == 0 })
			if n := b.Stats(); n.Violations != 1 || n.Rings != 1 {
				t.Errorf("%+v", n)
			}
			b.works(t)
		})
	}
}

// TestHostileMemory writes everything that a program can write, while bytes move. The node stays there for others.
func TestHostileMemory(t *testing.T) {
	b := newBed(t, nil)
	c := b.dial(t)
	for seed := range uint32(20) {
		g, peer := b.joinRings(t, c)
		go func() { _, _ = io.Copy(peer, peer) }()
		x := seed*2654435761 + 1
		for range 3000 {
			x ^= x << 13
			x ^= x >> 17
			x ^= x << 5
			at := int(x>>8) % 1024 &^ 3
			switch x % 3 {
			case 0:
				g.word(at).Store(x >> (x % 32))
			case 1:
				g.word(at).Add(1)
			default:
				_, _ = unix.SendmsgN(g.fd, []byte{1}, nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
			}
		}
		g.close()
		peer.Close()
	}
	until(t, "the sockets are released", func() bool { return b.Stats().Sockets == 0 })
	b.works(t)
}

// TestUnreadRing: a program that closes its socket with bytes unread in the ring resets the connection, one that has read all
// does not, though a doorbell byte is left.
func TestUnreadRing(t *testing.T) {
	for _, read := range []bool{true, false} {
		b := newBed(t, nil)
		g, peer := b.joinRings(t, b.dial(t))
		if _, err := peer.Write([]byte("some bytes")); err != nil {
			t.Fatal(err)
		}
		if ev := g.poll(unix.POLLIN, limit); ev != unix.POLLIN {
			t.Fatalf("events %#x", ev)
		}
		g.put("last words")
		if read {
			g.long(inHead).Store(g.long(inTail).Load())
			got := make([]byte, 10)
			if _, err := io.ReadFull(peer, got); err != nil || string(got) != "last words" {
				t.Fatal(string(got), err)
			}
		}
		g.close()
		_ = peer.SetReadDeadline(time.Now().Add(limit))
		n, err := peer.Read(make([]byte, 100))
		for !read && err == nil {
			n, err = peer.Read(make([]byte, 100))
		}
		if n != 0 || (err == io.EOF) != read {
			t.Errorf("read %v: the peer sees %d bytes, %v", read, n, err)
		}
	}
}

// TestMoveTwice: a second request does nothing, nor does one for a socket without rings.
func TestMoveTwice(t *testing.T) {
	b := newBed(t, nil)
	c := b.dial(t)
	g, peer := b.joinRings(t, c)
	g.put("in the ring ")
	if r := g.ask(request{op: opMove}, g.fd); r.errno != 0 || len(r.value) != 4 || order.Uint32(r.value) != 0 {
		t.Fatalf("%v, %v", r.errno, r.value)
	}
	if s := ring.State(g.word(pageState).Load()); s != ring.Moved {
		t.Errorf("state %d", s)
	}
	if r := g.ask(request{op: opMove}, g.fd); r.errno != syscall.EALREADY {
		t.Errorf("again: %v", r.errno)
	}
	if err := g.write([]byte("in the socket")); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 25)
	if _, err := io.ReadFull(peer, got); err != nil || string(got) != "in the ring in the socket" {
		t.Fatalf("%q, %v", got, err)
	}
	echo(t, g, peer, []byte("both ways"))
	p, other := b.join(t, c)
	if r := p.ask(request{op: opMove}, p.fd); r.errno != syscall.EALREADY {
		t.Errorf("of tier 0: %v", r.errno)
	}
	echo(t, p, other, []byte("as before"))
}

// TestMoveWhileConnecting: the larger send buffer is not writable before the handshake is complete either.
func TestMoveWhileConnecting(t *testing.T) {
	b := newBed(t, nil)
	c := b.dial(t)
	p := c.socket(unix.SOCK_STREAM, false)
	r, memory := p.askMemory(request{op: opConnect, addr: netip.MustParseAddrPort("198.18.0.99:80"), arg: wantRings}, p.fd) // no neighbour
	if r.errno != syscall.EINPROGRESS || memory < 0 {
		t.Fatal(r.errno, memory)
	}
	unix.Close(memory)
	if r := p.ask(request{op: opMove}, p.fd); r.errno != 0 {
		t.Fatal(r.errno)
	}
	if ev := p.poll(unix.POLLOUT, 50*time.Millisecond); ev&unix.POLLOUT != 0 && ev&unix.POLLERR == 0 {
		t.Errorf("events %#x", ev)
	}
}

// TestRingLimit: beyond the limit of a user, connections are of tier 0.
func TestRingLimit(t *testing.T) {
	b := newBed(t, func(c *Config) { c.Limits.Rings = 1 })
	u := b.userOf(12345)
	k := &sock{s: b.Server, user: u}
	p := rawSocket(t, unix.SOCK_STREAM)
	defer unix.Close(p)
	one := k.newRings(p, new(ringBudget))
	if two := k.newRings(p, new(ringBudget)); one.fd == 0 || two.fd != 0 {
		t.Errorf("descriptors %v, %v", one, two)
	}
	k.dropRings(&reply{memory: one})
	if again := k.newRings(p, new(ringBudget)); again.fd == 0 {
		t.Error("freed memory counts")
	} else {
		k.dropRings(&reply{memory: again})
	}
}

// TestAcceptedRingsAreOpen: who has an accepted connection may write to its ring at once, and its socket is writable, or move it:
// then the peer gets what is written, and nothing of the node.
func TestAcceptedRingsAreOpen(t *testing.T) {
	b := newBed(t, nil)
	server := b.dial(t).socket(unix.SOCK_STREAM, false)
	if r := server.ask(request{op: opBind, addr: netip.MustParseAddrPort(nodeAddr + ":0")}, server.fd); r.errno != 0 {
		t.Fatal(r.errno)
	}
	at := server.ask(request{op: opListen, arg: 16, name: wantRings}, server.fd)
	if at.errno != 0 {
		t.Fatal(at.errno)
	}
	for i := range 300 {
		peer := b.dialNode(t, at.local.Port())
		p, _, memory, err := server.acceptMemory()
		if err != nil || memory < 0 {
			t.Fatal(memory, err)
		}
		var state [4]byte
		_, err = unix.Pread(memory, state[:], pageState)
		unix.Close(memory)
		if s := ring.State(order.Uint32(state[:])); err != nil || s != ring.Open {
			t.Fatalf("connection %d: state %d, %v", i, s, err)
		}
		if r := p.ask(request{op: opMove}, p.fd); r.errno != 0 {
			t.Fatalf("connection %d: it is not moved: %v", i, r.errno)
		}
		if err := p.write([]byte("x")); err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		p.close()
		_ = peer.SetReadDeadline(time.Now().Add(limit))
		if got, err := io.ReadAll(peer); string(got) != "x" || err != nil {
			t.Fatalf("connection %d: the peer has %d bytes, %v", i, len(got), err)
		}
		peer.Close()
	}
}

// TestDoorbellAtTheEnd: a doorbell byte that comes between the last look into the socket and its close does not turn the end of the
// stream into ECONNRESET.
func TestDoorbellAtTheEnd(t *testing.T) {
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(ends[0])
	node := os.NewFile(uintptr(ends[1]), "node")
	defer node.Close()
	if _, err := unix.Write(ends[0], make([]byte, 3)); err != nil { // doorbell bytes of before
		t.Fatal(err)
	}
	r := &relay{fd: ends[1], drop: make([]byte, scratchSize), rings: &rings{}}
	r.skipAll()
	if err := unix.Send(ends[0], make([]byte, 1), unix.MSG_NOSIGNAL); err != syscall.EPIPE {
		t.Errorf("a doorbell byte: %v, want EPIPE", err)
	}
	node.Close()
	if n, err := unix.Read(ends[0], make([]byte, 1)); n != 0 || err != nil {
		t.Errorf("%d bytes, %v, want the end", n, err)
	}
}

// TestMovedWithTheEnd: the FIN that has reached a ring before its connection is moved to the socket follows the bytes there, and the program's
// socket has the send buffer of one without rings.
func TestMovedWithTheEnd(t *testing.T) {
	b := newBed(t, nil)
	g, peer := b.joinRings(t, b.dial(t))
	k := b.sockOf(t, g.fd)
	if _, err := peer.Write([]byte("the last bytes")); err != nil {
		t.Fatal(err)
	}
	if err := peer.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	until(t, "the ring has the end", func() (ended bool) {
		k.mu.Lock()
		conn, r := k.conn, k.relayed
		k.mu.Unlock()
		conn.Do(func(socket.LoopConn) { ended = r.peerEnded })
		return ended
	})
	r := g.ask(request{op: opMove}, g.fd)
	if r.errno != 0 {
		t.Fatal(r.errno)
	}
	for left := order.Uint32(r.value); left > 0; left-- { // doorbell bytes
		if n, err := g.read(make([]byte, 1)); n != 1 || err != nil {
			t.Fatal(n, err)
		}
	}
	if all, err := io.ReadAll(g.program); err != nil || string(all) != "the last bytes" {
		t.Errorf("%q, %v", all, err)
	}
	if n := sendBufferOf(t, g.fd); n < 2*sendBuffer*9/10 {
		t.Errorf("a send buffer of %d bytes", n)
	}
}

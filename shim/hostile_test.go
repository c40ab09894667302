package shim

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/metrics"
)

// works checks that the server still serves others.
func (b *bed) works(t *testing.T) {
	t.Helper()
	p, peer := b.join(t, b.dial(t))
	echo(t, p, peer, []byte("still there"))
	p.close()
	peer.Close()
}

// TestWrongDescriptors sends descriptors that are no sockets of the library.
func TestWrongDescriptors(t *testing.T) {
	b := newBed(t, nil)
	c := b.dial(t)
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	file, err := unix.Open(filepath.Join(t.TempDir(), "file"), unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	inet, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	mark := func(fd int) int {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PRIORITY, markInet); err != nil {
			t.Fatal(err)
		}
		return fd
	}
	listening := mark(rawSocket(t, unix.SOCK_STREAM))
	if err := unix.Bind(listening, &unix.SockaddrUnix{Name: "@" + t.Name()}); err != nil {
		t.Fatal(err)
	}
	if err := unix.Listen(listening, 1); err != nil {
		t.Fatal(err)
	}
	made := func(fd int, err error) int {
		if err != nil {
			t.Fatal(err)
		}
		return fd
	}
	for what, fd := range map[string]int{
		"memfd": made(unix.MemfdCreate("test", unix.MFD_CLOEXEC)), "epoll": made(unix.EpollCreate1(unix.EPOLL_CLOEXEC)),
		"pidfd": made(unix.PidfdOpen(os.Getpid(), 0)), "eventfd": made(unix.Eventfd(0, unix.EFD_CLOEXEC)),
		"netlink": mark(made(unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0))),
		"pipe":    pipe[0], "file": file, "AF_INET": mark(inet), "socketpair": mark(pair[0]), "listener": listening,
		"datagrams": mark(rawSocket(t, unix.SOCK_DGRAM)), "no mark": rawSocket(t, unix.SOCK_STREAM), "channel": c.fd,
	} {
		for _, o := range []op{opBind, opConnect, opListen, opNames, opSetOption, opGetOption} {
			q := request{op: o, addr: netip.MustParseAddrPort(peerAddr + ":80"), level: unix.IPPROTO_TCP, name: unix.TCP_NODELAY, arg: 4}
			if r := c.ask(q, fd); r.errno == 0 && !(o == opNames && what == "socketpair") {
				t.Errorf("%s, request %d: no error", what, o)
			}
		}
		unix.Close(fd)
		if what == "channel" {
			c.fd = -1
			c = b.dial(t)
		}
	}
	unix.Close(pipe[1])
	unix.Close(pair[1])
	if r := c.ask(request{op: opNames}); r.errno != syscall.EBADF {
		t.Errorf("without a descriptor: %v", r.errno)
	}
	if n := b.Stats().Sockets; n != 0 {
		t.Errorf("%d sockets are registered", n)
	}
	b.works(t)
}

// TestOtherLanguages: what is no request closes the channel, and leaves no descriptor behind.
func TestOtherLanguages(t *testing.T) {
	b := newBed(t, nil)
	send := func(what string, hello bool, b2 []byte, fds ...int) {
		t.Helper()
		c := &client{t: t, fd: rawSocket(t, unix.SOCK_SEQPACKET)}
		defer func() {
			unix.Close(c.fd)
			c.fd = -1
		}()
		if hello {
			unix.Close(c.fd)
			c = b.dial(t)
		} else if err := unix.Connect(c.fd, &unix.SockaddrUnix{Name: b.cfg.Path}); err != nil {
			t.Fatal(err)
		}
		if _, err := unix.SendmsgN(c.fd, b2, unix.UnixRights(fds...), nil, unix.MSG_NOSIGNAL); err != nil {
			t.Fatal(err)
		}
		_ = unix.SetsockoptTimeval(c.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 30})
		if n, err := recv(c.fd, make([]byte, 1000)); n > 0 || err != nil && err != unix.ECONNRESET {
			t.Errorf("%s: %d bytes, %v", what, n, err)
		}
	}
	encode := func(q request) []byte {
		var b [requestSize]byte
		q.encode(b[:])
		return b[:]
	}
	base := descriptors(t)
	for range 20 {
		fd := rawSocket(t, unix.SOCK_STREAM)
		send("short", true, encode(request{op: opNames})[:100], fd)
		send("long", true, append(encode(request{op: opNames}), 0), fd)
		send("two descriptors", true, encode(request{op: opNames}), fd, fd)
		send("nine descriptors", true, encode(request{op: opNames}), fd, fd, fd, fd, fd, fd, fd, fd, fd)
		send("no such operation", true, encode(request{op: 99}), fd)
		send("before HELLO", false, encode(request{op: opNames}), fd)
		unix.Close(fd)
	}
	until(t, "descriptors are closed", func() bool { return descriptors(t) <= base+2 })
	c := &client{t: t, fd: rawSocket(t, unix.SOCK_SEQPACKET)}
	defer unix.Close(c.fd)
	if err := unix.Connect(c.fd, &unix.SockaddrUnix{Name: b.cfg.Path}); err != nil {
		t.Fatal(err)
	}
	if r := c.ask(request{op: opHello, arg: 288}); r.errno != syscall.EPROTO {
		t.Errorf("HELLO of another size: %v", r.errno)
	}
	b.works(t)
}

// descriptors returns how many descriptors the process has.
func descriptors(t testing.TB) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// TestHello has the rules of who may use the stack.
func TestHello(t *testing.T) {
	b := newBed(t, nil)
	n, err := Hello(b.cfg.Path)
	if err != nil || n.Name != "stack" || len(n.Token) < 32 || int(n.UID) != os.Geteuid() {
		t.Fatalf("%+v, %v", n, err)
	}
	b.distrust()
	if _, err := Hello(b.cfg.Path); !errors.Is(err, syscall.EACCES) {
		t.Errorf("a user without a group: %v", err)
	}
	t.Setenv("MILLRACE_SHIM_TOKEN", n.Token)
	if again, err := Hello(b.cfg.Path); err != nil || again.Token != n.Token {
		t.Errorf("with a token: %+v, %v", again, err)
	}
	t.Setenv("MILLRACE_SHIM_TOKEN", n.Token[1:]+"x")
	if _, err := Hello(b.cfg.Path); !errors.Is(err, syscall.EACCES) {
		t.Errorf("with a wrong token: %v", err)
	}
	b.cfg.Groups = []uint32{uint32(os.Getegid())} // and the tokens of before mean nothing
	if _, err := Hello(b.cfg.Path); err != nil {
		t.Errorf("a member of the group: %v", err)
	}
	if n := b.Stats().Denied; n != 2 {
		t.Errorf("%d were denied", n)
	}
}

// distrust makes the user of this process one like others.
func (b *bed) distrust() {
	b.mu.Lock()
	defer b.mu.Unlock()
	uid := uint32(os.Geteuid())
	b.users[uid] = &user{uid: uid}
}

// TestLimits: a user gets no more than the limits say, and again after it has closed something.
func TestLimits(t *testing.T) {
	b := newBed(t, func(c *Config) { c.Everyone, c.Limits = true, Limits{Sockets: 3, Channels: 2, Connects: 4} })
	b.distrust()
	c := b.dial(t)
	second := b.dial(t)
	third := &client{t: t, fd: rawSocket(t, unix.SOCK_SEQPACKET)}
	defer unix.Close(third.fd)
	if err := unix.Connect(third.fd, &unix.SockaddrUnix{Name: b.cfg.Path}); err != nil {
		t.Fatal(err)
	}
	if _, err := third.try(request{op: opHello, arg: requestSize}); err == nil {
		t.Error("a third channel")
	}
	unix.Close(second.fd)
	second.fd = -1
	var open []*program
	for range 3 {
		p := c.socket(unix.SOCK_STREAM, false)
		if r := p.ask(request{op: opNames}, p.fd); r.errno != 0 {
			t.Fatal(r.errno)
		}
		open = append(open, p)
	}
	p := c.socket(unix.SOCK_STREAM, false)
	if r := p.ask(request{op: opNames}, p.fd); r.errno != syscall.EMFILE {
		t.Errorf("a fourth socket: %v", r.errno)
	}
	open[0].close()
	until(t, "there is room for another", func() bool { return p.ask(request{op: opNames}, p.fd).errno == 0 })
	refused := 0
	for range 10 {
		p.close()
		p = c.socket(unix.SOCK_STREAM, false)
		until(t, "there is room for another", func() bool { return p.ask(request{op: opNames}, p.fd).errno == 0 })
		r := p.ask(request{op: opConnect, addr: netip.MustParseAddrPort(peerAddr + ":9")}, p.fd)
		if r.errno == syscall.EAGAIN {
			refused++
		}
	}
	if refused == 0 {
		t.Error("ten connects in a second with a limit of four")
	}
	if b.Stats().Limited == 0 {
		t.Error("nothing was counted")
	}
}

// TestPeerResets: the program sees what came before, and then ECONNRESET.
func TestPeerResets(t *testing.T) {
	b := newBed(t, nil)
	p, peer := b.join(t, b.dial(t))
	if _, err := peer.Write([]byte("last words")); err != nil {
		t.Fatal(err)
	}
	p.poll(unix.POLLIN, limit)
	if err := peer.(interface{ Abort() error }).Abort(); err != nil {
		t.Fatal(err)
	}
	until(t, "POLLERR", func() bool { return p.poll(unix.POLLIN, limit)&unix.POLLERR != 0 })
	got := make([]byte, 100)
	n, err := p.read(got)
	if err != nil || string(got[:n]) != "last words" {
		t.Errorf("%q, %v", got[:n], err)
	}
	if _, err := p.read(got); err != syscall.ECONNRESET {
		t.Errorf("after the reset: %v", err)
	}
	if n := p.soError(); n != syscall.ECONNRESET {
		t.Errorf("SO_ERROR: %v", n)
	}
	until(t, "the socket is released", func() bool { return b.Stats().Sockets == 0 })
}

// TestProgramDies: what it wrote arrives with the end if it has read all, and otherwise a reset.
func TestProgramDies(t *testing.T) {
	b := newBed(t, nil)
	for _, unread := range []bool{false, true} {
		p, peer := b.join(t, b.dial(t))
		data := make([]byte, 300_000)
		for i := range data {
			data[i] = byte(i)
		}
		if unread {
			if _, err := peer.Write([]byte("x")); err != nil {
				t.Fatal(err)
			}
			p.poll(unix.POLLIN, limit)
		}
		closed := make(chan struct{})
		go func() {
			defer close(closed)
			if err := p.write(data); err != nil {
				t.Error(err)
			}
			p.close()
		}()
		got, err := io.ReadAll(struct{ io.Reader }{peer})
		switch {
		case unread && !errors.Is(err, syscall.ECONNRESET):
			t.Errorf("after a close with data unread: %v", err)
		case !unread && (err != nil || !bytes.Equal(got, data)):
			t.Errorf("%d of %d bytes, %v", len(got), len(data), err)
		}
		<-closed
	}
	until(t, "the sockets are released", func() bool { return b.Stats().Sockets == 0 })
}

// TestLastWords: what a program writes before it closes with data unread arrives before the reset, as on Linux.
func TestLastWords(t *testing.T) {
	b := newBed(t, nil)
	c := b.dial(t)
	for i := range 50 {
		p, peer := b.join(t, c)
		if _, err := peer.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		p.poll(unix.POLLIN, limit)
		if err := p.write([]byte("last words")); err != nil {
			t.Fatal(err)
		}
		p.close()
		got, err := io.ReadAll(struct{ io.Reader }{peer})
		if string(got) != "last words" || !errors.Is(err, syscall.ECONNRESET) {
			t.Fatalf("connection %d: %q, %v", i, got, err)
		}
	}
	until(t, "the sockets are released", func() bool { return b.Stats().Sockets == 0 })
}

// TestLastWordsToABusyPeer: the peer goes on to write, so that what the program has not read comes while it closes.
func TestLastWordsToABusyPeer(t *testing.T) {
	b := newBed(t, nil)
	c := b.dial(t)
	for i := range 50 {
		p, peer := b.join(t, c)
		go func() {
			for err := error(nil); err == nil; {
				_, err = peer.Write(make([]byte, 7))
			}
		}()
		got := make([]byte, 16<<10)
		if _, err := p.read(got); err != nil {
			t.Fatal(err)
		}
		if err := p.write([]byte("last words")); err != nil {
			t.Fatal(err)
		}
		p.close()
		got, err := io.ReadAll(struct{ io.Reader }{peer})
		if string(got) != "last words" || err != nil && !errors.Is(err, syscall.ECONNRESET) { // the end, if it has read all
			t.Fatalf("connection %d: %q, %v", i, got, err)
		}
	}
	until(t, "the sockets are released", func() bool { return b.Stats().Sockets == 0 })
}

// TestLinger: SO_LINGER of 0 seconds makes close(2) a reset, whenever it was set.
func TestLinger(t *testing.T) {
	b := newBed(t, nil)
	c := b.dial(t)
	linger := appendInt(appendInt(nil, 1), 0)
	for _, early := range []bool{true, false} {
		l := b.listenPeer(t, "0")
		p := c.socket(unix.SOCK_STREAM, false)
		set := func() {
			if r := p.ask(request{op: opSetOption, level: unix.SOL_SOCKET, name: unix.SO_LINGER, value: linger}, p.fd); r.errno != 0 {
				t.Fatal(r.errno)
			}
		}
		if early {
			set()
		}
		if err := p.connect(peerPort(l)); err != nil {
			t.Fatal(err)
		}
		if !early {
			set()
		}
		if r := p.ask(request{op: opGetOption, level: unix.SOL_SOCKET, name: unix.SO_LINGER, arg: 8}, p.fd); !bytes.Equal(r.value, linger) {
			t.Errorf("SO_LINGER reads as %v, %v", r.value, r.errno)
		}
		peer, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		p.close()
		if _, err := peer.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("set early %v: %v", early, err)
		}
		peer.Close()
	}
}

// TestNodeEnds: its end is ECONNRESET for every program, never the end of the stream.
func TestNodeEnds(t *testing.T) {
	b := newBed(t, nil)
	c := b.dial(t)
	p, _ := b.join(t, c)
	server := c.socket(unix.SOCK_STREAM, false)
	local, err := server.listen("0.0.0.0:0", 4)
	if err != nil {
		t.Fatal(err)
	}
	b.dialNode(t, local.Port())
	q, _, err := server.accept()
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	for what, p := range map[string]*program{"connection": p, "listener": server, "accepted": q} {
		if n, err := p.read(make([]byte, 100)); err != syscall.ECONNRESET {
			t.Errorf("%s: %d bytes, %v", what, n, err)
		}
	}
	if _, err := c.try(request{op: opNames}, p.fd); err == nil {
		t.Error("the channel is open")
	}
}

// TestProgramNeverReads: nothing is buffered beyond the sockets, others go on, and all arrives when it reads.
func TestProgramNeverReads(t *testing.T) {
	b := newBed(t, nil)
	p, peer := b.join(t, b.dial(t))
	const total = 8 << 20
	sent := make(chan error, 1)
	go func() {
		_, err := peer.Write(make([]byte, total))
		sent <- err
	}()
	select {
	case err := <-sent:
		t.Fatalf("8 MiB have gone to a program that does not read: %v", err)
	case <-time.After(300 * time.Millisecond):
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	b.works(t)
	time.Sleep(100 * time.Millisecond)
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapInuse) - int64(before.HeapInuse); grown > 4<<20 {
		t.Errorf("the heap has grown by %d bytes", grown)
	}
	if n, err := io.CopyN(io.Discard, p, total); err != nil {
		t.Errorf("%d bytes, %v", n, err)
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
}

// TestPeerNeverReads: the program's socket becomes full, and all arrives when the peer reads.
func TestPeerNeverReads(t *testing.T) {
	b := newBed(t, nil)
	p, peer := b.join(t, b.dial(t))
	if err := unix.SetNonblock(p.fd, true); err != nil {
		t.Fatal(err)
	}
	total, block := 0, make([]byte, 49152)
	for p.poll(unix.POLLOUT, 300*time.Millisecond)&unix.POLLOUT != 0 {
		n, err := unix.SendmsgN(p.fd, block, nil, nil, unix.MSG_NOSIGNAL)
		if err != nil && err != unix.EAGAIN {
			t.Fatal(err)
		}
		total += max(n, 0)
		if total > 64<<20 {
			t.Fatal("the peer reads nothing, and 64 MiB have gone")
		}
	}
	b.works(t)
	if n, err := io.CopyN(io.Discard, struct{ io.Reader }{peer}, int64(total)); err != nil {
		t.Fatalf("%d of %d bytes, %v", n, total, err)
	}
	if p.poll(unix.POLLOUT, limit)&unix.POLLOUT == 0 {
		t.Error("not writable again")
	}
}

// TestStaysWritable: a socket whose data were all taken is writable, whatever the sizes of writes: the bytes that stay in it
// count little.
func TestStaysWritable(t *testing.T) {
	b := newBed(t, nil)
	p, peer := b.join(t, b.dial(t))
	go io.Copy(io.Discard, struct{ io.Reader }{peer})
	for _, size := range []int{1, 2, 16, 24, 25, 100, 1000, 16383, 16384, 16385, 32768, 49000, 49152, 60000, 100000, 200000} {
		for range 40 {
			if err := p.write(make([]byte, size)); err != nil {
				t.Fatal(err)
			}
			if p.poll(unix.POLLOUT, limit)&unix.POLLOUT == 0 {
				t.Fatalf("not writable after writes of %d bytes", size)
			}
		}
	}
}

// TestShutdownRead: what comes after it is dropped, and the peer is not disturbed, as on Linux.
func TestShutdownRead(t *testing.T) {
	b := newBed(t, nil)
	p, peer := b.join(t, b.dial(t))
	if err := unix.Shutdown(p.fd, unix.SHUT_RD); err != nil {
		t.Fatal(err)
	}
	if _, err := peer.Write(make([]byte, 2<<20)); err != nil {
		t.Fatal(err)
	}
	if err := p.write([]byte("still writes")); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 12)
	if _, err := io.ReadFull(peer, got); err != nil || string(got) != "still writes" {
		t.Errorf("%q, %v", got, err)
	}
}

// TestManySockets opens and closes sockets in all states. Nothing is left.
func TestManySockets(t *testing.T) {
	count := 1500
	if os.Getenv("MILLRACE_SOAK") != "" {
		count = 10_000
	}
	b := newBed(t, nil)
	c := b.dial(t)
	l := b.listenPeer(t, "80")
	go func() {
		for {
			peer, err := l.Accept()
			if err != nil {
				return
			}
			go func(peer net.Conn) {
				_, _ = io.Copy(io.Discard, peer)
				peer.Close()
			}(peer)
		}
	}()
	base := descriptors(t)
	to := netip.MustParseAddrPort(peerAddr + ":80")
	for i := range count {
		fd := rawSocket(t, unix.SOCK_STREAM)
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PRIORITY, markInet)
		q := request{op: opNames}
		switch i % 5 {
		case 1, 2:
			q = request{op: opConnect, addr: to}
		case 3:
			q = request{op: opBind, addr: netip.MustParseAddrPort("0.0.0.0:0")}
		case 4:
			q = request{op: opListen, arg: 5}
		}
		if r := c.ask(q, fd); r.errno != 0 && r.errno != syscall.EINPROGRESS {
			t.Fatalf("request %d: %v", q.op, r.errno)
		}
		if i%5 == 2 {
			p := &program{c, fd}
			p.poll(unix.POLLOUT, limit)
		}
		unix.Close(fd)
	}
	until(t, "all are released", func() bool { return b.Stats().Sockets == 0 })
	until(t, "descriptors are closed", func() bool { return descriptors(t) <= base+2 })
	b.works(t)
}

// TestStatsOfUsers: each user's use is in Stats and in the metrics, and is given back.
func TestStatsOfUsers(t *testing.T) {
	b := newBed(t, func(c *Config) { c.Limits.Sockets, c.Everyone = 2, true })
	reg := &metrics.Registry{}
	reg.Add(b.WriteMetrics)
	series := func() string {
		t.Helper()
		var out strings.Builder
		if err := reg.WriteText(&out, metrics.Selection{}); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	uid := uint32(os.Geteuid())
	b.mu.Lock()
	b.users[uid] = &user{uid: uid} // not trusted
	b.mu.Unlock()
	c := b.dial(t)
	for want, errno := range []syscall.Errno{0, 0, syscall.EMFILE} {
		p := c.socket(unix.SOCK_STREAM, false)
		if r := p.ask(request{op: opNames}, p.fd); r.errno != errno {
			t.Errorf("socket %d: %v", want, r.errno)
		}
	}
	want := UserStats{UID: uid, Sockets: 2, Files: 3, Channels: 1, Limited: 1}
	if st := b.Stats(); len(st.Users) != 1 || st.Users[0] != want || st.Limited != 1 || st.Sockets != 2 {
		t.Errorf("%+v", st)
	}
	text := series()
	label := fmt.Sprintf(`{uid="%d"}`, uid)
	for _, line := range []string{
		"millrace_shim_sockets 2\n", "millrace_shim_limited_total 1\n", "millrace_shim_descriptors_total 0\n",
		"millrace_shim_user_sockets" + label + " 2\n", "millrace_shim_user_files" + label + " 3\n", "millrace_shim_files 3\n", "millrace_shim_user_channels" + label + " 1\n",
		"millrace_shim_user_limited_total" + label + " 1\n", "millrace_shim_user_denied_total" + label + " 0\n",
	} {
		if !strings.Contains(text, line) {
			t.Errorf("no %q in\n%s", line, text)
		}
	}
	c.end()
	until(t, "all is given back", func() bool {
		u := b.Stats().Users[0]
		return u.Sockets == 0 && u.Channels == 0
	})
}

// end is the end of the process: all its descriptors are closed.
func (c *client) end() {
	for _, p := range c.programs {
		p.close()
	}
	unix.Close(c.fd)
	c.fd = -1
}

// TestReleasedStaysReleased: a socket that its program shuts down while it asks for a connection is given back once.
func TestReleasedStaysReleased(t *testing.T) {
	b := newBed(t, nil)
	c := b.dial(t)
	p := c.socket(unix.SOCK_STREAM, false)
	if r := p.ask(request{op: opNames}, p.fd); r.errno != 0 {
		t.Fatal(r.errno)
	}
	cookie, err := cookieOf(p.fd)
	if err != nil {
		t.Fatal(err)
	}
	b.mu.Lock()
	k := b.sockets[cookie]
	b.mu.Unlock()
	k.release(0)
	if err := k.start(netip.MustParseAddrPort(peerAddr+":9"), 0, b.node.Connect); err != syscall.ENETDOWN {
		t.Errorf("connect: %v", err)
	}
	k.release(0)
	if n := b.Stats().Users[0].Sockets; n != 0 {
		t.Errorf("the user has %d sockets", n)
	}
}

// TestTakenAbstractName: a user who takes the abstract name does not keep the node from starting, and it serves the name later.
func TestTakenAbstractName(t *testing.T) {
	var taken *net.UnixListener
	b := newBed(t, func(c *Config) {
		var err error
		if taken, err = net.ListenUnix("unixpacket", &net.UnixAddr{Name: "@" + c.Path, Net: "unixpacket"}); err != nil {
			t.Fatal(err)
		}
	})
	b.dial(t)
	taken.Close()
	until(t, "the node has the name", func() bool {
		_, err := Hello("@" + b.cfg.Path)
		return err == nil
	})
}

// TestCloseWaitsForTheLastSocket: a socket that its loop frees while Close waits ends the wait.
func TestCloseWaitsForTheLastSocket(t *testing.T) {
	s := &Server{all: map[*sock]struct{}{}}
	s.gone.L = &s.mu
	k := &sock{s: s}
	s.all[k] = struct{}{}
	done := make(chan struct{})
	go func() {
		s.awaitAll()
		close(done)
	}()
	time.Sleep(50 * time.Millisecond) // it waits
	if !k.closeNow() {
		t.Fatal("the socket has something of the loops'")
	}
	select {
	case <-done:
	case <-time.After(limit):
		t.Fatal("Close waits for ever")
	}
}

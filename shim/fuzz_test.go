package shim

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// hostile is a client whose every step a fuzzer chooses. It has some descriptors, which it uses for what they are not for.
type hostile struct {
	t    *testing.T
	b    *bed
	c    *client
	fds  []int
	in   []byte // what is left of the fuzzer's
	last reply
}

// maxDescriptors is how many a hostile client has at once.
const maxDescriptors = 24

func (h *hostile) byte() int {
	if len(h.in) == 0 {
		return 0
	}
	v := h.in[0]
	h.in = h.in[1:]
	return int(v)
}

func (h *hostile) some(n int) []byte {
	n = min(n, len(h.in))
	v := h.in[:n]
	h.in = h.in[n:]
	return v
}

// fd chooses a descriptor.
func (h *hostile) fd() int {
	if len(h.fds) == 0 {
		return -1
	}
	return h.fds[h.byte()%len(h.fds)]
}

// keep takes descriptors that a call has returned.
func (h *hostile) keep(err error, fds ...int) {
	for _, fd := range fds {
		switch {
		case err != nil || fd < 0:
		case len(h.fds) >= maxDescriptors:
			unix.Close(fd)
		default:
			h.fds = append(h.fds, fd)
		}
	}
}

var fuzzAddrs = []string{
	peerAddr + ":80", peerAddr + ":9", nodeAddr + ":1000", "0.0.0.0:0", "0.0.0.0:1000", "127.0.0.1:1000", "198.18.0.77:80", "255.255.255.255:1",
	"224.0.0.1:1", "[::]:0", "[::1]:1000", "[::ffff:198.18.0.2]:80", "[ff02::1]:5", "192.0.2.1:0",
}

// addr chooses an address; one choice is none.
func (h *hostile) addr() netip.AddrPort {
	i := h.byte() % (len(fuzzAddrs) + 1)
	if i == len(fuzzAddrs) {
		return netip.AddrPort{}
	}
	return netip.MustParseAddrPort(fuzzAddrs[i])
}

// open makes a descriptor of some kind.
func (h *hostile) open() {
	kind := h.byte()
	switch kind % 10 {
	case 0, 1, 2:
		h.socket(unix.SOCK_STREAM, kind)
	case 3, 4:
		h.socket(unix.SOCK_SEQPACKET, kind)
	case 5:
		p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		h.keep(err, p[0], p[1])
	case 6:
		var p [2]int
		h.keep(unix.Pipe2(p[:], unix.O_CLOEXEC|unix.O_NONBLOCK), p[0], p[1])
	case 7:
		fd, err := unix.MemfdCreate("hostile", unix.MFD_CLOEXEC)
		h.keep(err, fd)
	case 8:
		fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
		h.keep(err, fd)
	case 9:
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		h.keep(err, fd)
	}
}

func (h *hostile) socket(kind, mark int) {
	fd, err := unix.Socket(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err == nil {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PRIORITY, []int{markInet, markInet6}[mark/16%2])
	}
	h.keep(err, fd)
}

// ask sends a request, with a descriptor or without. The node must answer, or close the channel where it is none.
func (h *hostile) ask() {
	ops := []op{opBind, opConnect, opConnect, opListen, opNames, opSetOption, opGetOption, opMove, opHello, opResolve, op(h.byte())}
	q := request{op: ops[h.byte()%len(ops)], addr: h.addr()}
	switch h.byte() % 3 {
	case 0:
		names := []optionName{nameS(unix.SO_LINGER), nameS(unix.SO_ERROR), nameT(unix.TCP_INFO), nameT(unix.TCP_NODELAY), nameS(unix.SO_REUSEPORT), name6(unix.IPV6_V6ONLY), nameT(unix.TCP_CONGESTION), name4(unix.IP_ADD_MEMBERSHIP), nameS(unix.SO_RCVBUF)}
		n := names[h.byte()%len(names)]
		q.level, q.name = int32(n.level), int32(n.name)
	case 1:
		q.level, q.name = int32(h.byte()), int32(h.byte())
	}
	q.arg = int32(h.byte()) - 2
	if q.op == opGetOption {
		q.arg = int32(h.byte())
	}
	if q.op == opHello {
		q.arg = requestSize
	}
	q.value = h.some(h.byte() % 32)
	var fds []int
	for range []int{1, 1, 1, 1, 1, 1, 0, 2}[h.byte()%8] {
		fds = append(fds, h.fd())
	}
	if len(fds) > 0 && fds[0] < 0 {
		fds = nil
	}
	r, err := h.c.try(q, fds...)
	if err == unix.EAGAIN {
		h.t.Fatalf("no answer to %+v", q)
	}
	if err != nil { // it has closed the channel
		h.redial()
	}
	h.last = r
}

// redial is for a channel that is not usable any more.
func (h *hostile) redial() {
	unix.Close(h.c.fd)
	h.c.fd = -1 // or its cleanup would close another one's
	h.c = dial(h.t, h.b.cfg.Path)
}

// receive takes what a socket has, and the descriptors with it.
func (h *hostile) receive() {
	var b [8192]byte
	oob := make([]byte, 64)
	_, oobn, _, _, err := unix.Recvmsg(h.fd(), b[:h.byte()*32], oob, unix.MSG_DONTWAIT|unix.MSG_CMSG_CLOEXEC)
	if err != nil {
		return
	}
	msgs, err := unix.ParseSocketControlMessage(oob[:oobn])
	for i := range msgs {
		fds, e := unix.ParseUnixRights(&msgs[i])
		h.keep(e, fds...)
	}
	_ = err
}

func (h *hostile) send() {
	b := append(h.some(h.byte()%80), make([]byte, h.byte()*64)...)
	var oob []byte
	if h.byte()%8 == 0 {
		if fd := h.fd(); fd >= 0 {
			oob = unix.UnixRights(fd, h.c.fd)
		}
	}
	_, _ = unix.SendmsgN(h.fd(), b, oob, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
}

// abuse does to a socket what the library never does.
func (h *hostile) abuse() {
	fd := h.fd()
	switch h.byte() % 8 {
	case 0:
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PRIORITY, h.byte()%7)
	case 1:
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, h.byte()*100)
	case 2:
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PEEK_OFF, h.byte())
	case 3:
		_ = unix.Bind(fd, &unix.SockaddrUnix{Name: fmt.Sprintf("@fuzz-%d", unique())})
	case 4:
		_ = unix.Connect(fd, &unix.SockaddrUnix{Name: h.b.private.path([]int{unix.SOCK_STREAM, unix.SOCK_SEQPACKET}[h.byte()%2])})
	case 5:
		_ = unix.Listen(fd, h.byte())
	case 6: // perhaps it is the memory of rings
		_, _ = unix.Pwrite(fd, h.some(16), int64(h.byte()*8))
	case 7:
		b := h.some(h.byte()%2*requestSize + h.byte())
		_, _ = unix.SendmsgN(h.c.fd, b, nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
		h.redial()
	}
}

func (h *hostile) step() {
	switch h.byte() % 9 {
	case 0, 1:
		h.open()
	case 2, 3, 4:
		h.ask()
	case 5:
		h.send()
	case 6:
		h.receive()
	case 7:
		h.abuse()
	case 8:
		h.close(h.byte())
	}
}

func (h *hostile) close(how int) {
	if len(h.fds) == 0 {
		return
	}
	switch i := how % len(h.fds); h.byte() % 4 {
	case 0:
		_ = unix.Shutdown(h.fds[i], h.byte()%3)
	case 1:
		fd, err := unix.Dup(h.fds[i])
		h.keep(err, fd)
	default:
		unix.Close(h.fds[i])
		h.fds = append(h.fds[:i], h.fds[i+1:]...)
	}
}

// end is the end of the client's process.
func (h *hostile) end() {
	for _, fd := range h.fds {
		unix.Close(fd)
	}
	unix.Close(h.c.fd)
	h.c.fd = -1
}

// isGone waits until the node has nothing of the client left. Descriptors that were sent in a circle are freed when the kernel
// collects them, which the close of an AF_UNIX socket begins.
func (h *hostile) isGone() {
	h.t.Helper()
	var st Stats
	for end := time.Now().Add(8 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		st = h.b.Stats()
		if u := st.Users[0]; st.Sockets == 0 && st.Channels == 0 && u.Sockets == 0 && u.Channels == 0 && u.Rings == 0 {
			return
		}
		if fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); err == nil {
			unix.Close(fd)
		}
	}
	b := make([]byte, 1<<20)
	h.t.Fatalf("the node has not given all back: %+v\n%s", st, b[:runtime.Stack(b, true)])
}

// FuzzServer makes a hostile client: random requests with random descriptors, random bytes on sockets, shared memory and
// channels. The node answers each request, serves others, and has nothing left after the client's end.
func FuzzServer(f *testing.F) {
	f.Add([]byte{0, 0, 2, 0, 1, 0, 0, 0, 0, 0, 0, 0})
	f.Add([]byte{0, 3, 2, 1, 0, 1, 1, 5, 9, 9, 6, 6, 6})
	f.Add([]byte{0, 0, 2, 3, 3, 0, 0, 0, 0, 6, 0, 200, 8, 0, 3})
	b := newBed(f, nil) // for all inputs: what one leaves behind shows in the next
	l, err := b.peer.Listen("tcp", ":80")
	if err != nil {
		f.Fatal(err)
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func(c net.Conn) {
				_, _ = io.Copy(c, struct{ io.Reader }{c})
				c.Close()
			}(c)
		}
	}()
	f.Fuzz(func(t *testing.T, in []byte) {
		h := &hostile{t: t, b: b, c: dial(t, b.cfg.Path), in: in[:min(len(in), 512)]}
		for len(h.in) > 0 {
			h.step()
		}
		h.end()
		h.isGone()
	})
}

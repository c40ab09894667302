package shim

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/internal/programsocket"
)

// Node describes a running Server.
type Node struct {
	Name  string // of the stack
	Token string // lets the processes of a program go on that change their user
	UID   uint32 // of the server
}

// helloTime is the time that a server may take to answer.
const helloTime = 10 * time.Second

// Hello asks the Server at path whether this process may use it: EACCES is no; ENOENT and ECONNREFUSED are that none runs.
func Hello(path string) (Node, error) {
	conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		return Node{}, err
	}
	defer conn.Close()
	cred, err := programsocket.Credentials(conn)
	if err != nil {
		return Node{}, err
	}
	if err := conn.SetDeadline(time.Now().Add(helloTime)); err != nil {
		return Node{}, err
	}
	q := request{op: opHello, arg: requestSize, value: []byte(filepath.Base(os.Args[0]) + "\x00" + os.Getenv("MILLRACE_SHIM_TOKEN"))}
	var out [requestSize]byte
	q.encode(out[:])
	var in [replySize + 1]byte
	n := 0
	if _, err = conn.Write(out[:]); err == nil {
		n, err = conn.Read(in[:])
	}
	if err != nil {
		return Node{}, refusedOr(conn, err)
	}
	r, err := decodeReply(in[:n])
	switch {
	case err != nil:
		return Node{}, err
	case r.errno != 0:
		return Node{}, fmt.Errorf("%s: %w", path, r.errno)
	}
	name, token, ok := bytes.Cut(r.value, []byte{0})
	if !ok {
		return Node{}, fmt.Errorf("%s: %w", path, syscall.EPROTO)
	}
	return Node{Name: string(name), Token: text(token), UID: cred.Uid}, nil
}

// refusedOr is refusal, or the cause itself.
func refusedOr(conn *net.UnixConn, cause error) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return cause
	}
	_ = raw.Control(func(fd uintptr) {
		if refused := refusal(int(fd), cause); refused != nil {
			cause = fmt.Errorf("too many control channels or descriptors: %w", refused)
		}
	})
	return cause
}

// Client speaks with the Server for the sockets of programs, as a supervisor in the place of the library. Datagrams of its UDP
// sockets have a Header while these are not connected. Its methods may be called from
// several goroutines at once. Those for a socket take the number of the thread that asks, which the Server shows
// as the socket's owner, and a descriptor of this process for the program's end. Errors are syscall.Errno.
type Client struct {
	path, token string
	uid         uint32
	last        atomic.Uint32

	mu   sync.Mutex
	idle []int // channels
}

// maxIdle is the number of channels that a Client keeps.
const maxIdle = 8

// replySeconds is the time that the node may take for a reply. It answers at once, unless it hangs.
const replySeconds = 30

// NewClient returns a Client of the Server at path, which Hello has described.
func NewClient(path string, node Node) *Client {
	return &Client{path: path, token: node.Token, uid: node.UID}
}

// Close closes the channels that are not in use.
func (c *Client) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	closeAll(c.idle)
	c.idle = nil
}

// Bind is bind(2). It returns the address with the port that the node has chosen, and a permit: with it processes of the user bind that
// address again, at this node and those that follow, without the rights that a low port takes. before is a permit of before, or nil.
func (c *Client) Bind(tid, fd int, a netip.AddrPort, scope uint32, before []byte) (local netip.AddrPort, permit []byte, err error) {
	r, err := c.ask(&request{op: opBind, addr: a, scope: scope, arg: wantPermit, value: before}, tid, fd)
	switch {
	case err != nil && len(r.value) > 0:
		return local, nil, &BindError{Cause: string(r.value), Errno: r.errno}
	case err != nil:
		return local, nil, err
	}
	return r.local, r.value, nil
}

// Instance returns the number of the run of the node that answers, also for a socket of one before.
func (c *Client) Instance(tid, fd int) (uint32, error) {
	r, err := c.ask(&request{op: opNames}, tid, fd)
	if err != nil || len(r.value) != 4 {
		return 0, err
	}
	return order.Uint32(r.value), nil
}

// BindError is an error of Bind whose cause is worth a line on the program's standard error.
type BindError struct {
	Cause string
	Errno syscall.Errno
}

// Error returns the cause.
func (e *BindError) Error() string { return e.Cause }

// Unwrap returns the errno.
func (e *BindError) Unwrap() error { return e.Errno }

// Connect is connect(2) that does not wait: EINPROGRESS is that fd will be writable when the connection is complete. An
// address that is not valid ends the association of a UDP socket.
func (c *Client) Connect(tid, fd int, a netip.AddrPort, scope uint32) error {
	_, err := c.ask(&request{op: opConnect, addr: a, scope: scope}, tid, fd)
	return err
}

// Listen is listen(2).
func (c *Client) Listen(tid, fd, backlog int) error {
	_, err := c.ask(&request{op: opListen, arg: int32(backlog)}, tid, fd)
	return err
}

// Names returns the addresses of a socket. One that is not connected has no remote one.
func (c *Client) Names(tid, fd int) (local, remote netip.AddrPort, err error) {
	r, err := c.ask(&request{op: opNames}, tid, fd)
	return r.local, r.remote, err
}

// Interface is an interface of the stack or, with a valid Prefix, one of its addresses.
type Interface struct {
	Name   string
	Index  uint32
	Flags  uint32 // IFF_UP and the like
	MTU    uint32
	MAC    [6]byte
	Prefix netip.Prefix
}

// maxInterfaces bounds the entries that Interfaces takes: a node has fewer.
const maxInterfaces = 4096

// Interfaces returns the interfaces of the stack, each with its addresses behind it.
func (c *Client) Interfaces(tid int) (all []Interface, err error) {
	for len(all) < maxInterfaces {
		r, err := c.ask(&request{op: opInterfaces, arg: int32(len(all))}, tid, -1)
		if err != nil || len(r.value) < interfaceSize {
			return all, err
		}
		for b := r.value; len(b) >= interfaceSize; b = b[interfaceSize:] {
			a, _, err := decodeAddr(b[40:])
			if err != nil {
				return nil, err
			}
			n := Interface{Name: text(b[:nameLen+1]), Index: order.Uint32(b[16:]), Flags: order.Uint32(b[20:]), MTU: order.Uint32(b[24:]), MAC: [6]byte(b[32:38])}
			if a.Addr().IsValid() {
				n.Prefix = netip.PrefixFrom(a.Addr(), int(order.Uint32(b[28:])))
			}
			all = append(all, n)
		}
	}
	return all, nil
}

// SetOption is setsockopt(2), with the value as the kernel has it.
func (c *Client) SetOption(tid, fd, level, name int, value []byte) error {
	if len(value) > maxRequestValue {
		return syscall.EINVAL
	}
	_, err := c.ask(&request{op: opSetOption, level: int32(level), name: int32(name), value: value}, tid, fd)
	return err
}

// Option is getsockopt(2) with a buffer of most bytes.
func (c *Client) Option(tid, fd, level, name, most int) ([]byte, error) {
	most = min(most, maxRequestValue)
	r, err := c.ask(&request{op: opGetOption, level: int32(level), name: int32(name), arg: int32(most)}, tid, fd)
	return r.value, err
}

// AddHeaders puts a Header before each datagram of a socket, those that wait unread as well: until it is connected or, if it is,
// disconnected.
func (c *Client) AddHeaders(tid, fd int) error {
	_, err := c.ask(&request{op: opHeaders}, tid, fd)
	return err
}

// More announces a datagram of n bytes that may join others (MSG_MORE, UDP_CORK). piece is that others follow it, and addressed that the call
// has an address. EMSGSIZE is that it is too long with those that wait, which are lost, and EDESTADDRREQ that it has no destination.
func (c *Client) More(tid, fd, n int, piece, addressed bool) error {
	arg := min(n, moreSize)
	if piece {
		arg |= morePiece
	}
	if !addressed {
		arg |= moreNameless
	}
	_, err := c.ask(&request{op: opMore, arg: int32(arg)}, tid, fd)
	return err
}

// NoMore takes back that a piece was announced: it could not be sent.
func (c *Client) NoMore(tid, fd int) { _, _ = c.ask(&request{op: opMore, arg: moreFailed}, tid, fd) }

// QueuedError is an entry of the queue of errors of a UDP socket.
type QueuedError struct {
	From netip.Addr     // who has reported it
	To   netip.AddrPort // where the datagram was to go
	Data []byte         // of the datagram

	// Extended is struct sock_extended_err of linux/errqueue.h.
	Extended [16]byte
	Time     int64 // of a datagram that was sent, ns of the wall clock; 0 is none
}

// NextError takes the oldest entry, EAGAIN is that there is none.
func (c *Client) NextError(tid, fd int) (e QueuedError, err error) {
	r, err := c.ask(&request{op: opErrors}, tid, fd)
	if err != nil {
		return e, err
	}
	if len(r.value) < errorSize {
		return e, syscall.EPROTO
	}
	copy(e.Extended[:], r.value[:4])
	copy(e.Extended[4:], r.value[errorFromAt:errorFromAt+3])
	copy(e.Extended[8:], r.value[errorInfoAt:][:4])
	copy(e.Extended[12:], r.value[errorDataAt:][:4])
	e.From, e.To, e.Data, e.Time = r.local.Addr(), r.remote, r.value[errorSize:], int64(order.Uint64(r.value[errorTimeAt:]))
	return e, nil
}

// TakeError takes SO_ERROR of a UDP socket whose notice was received. Without one, nil, another notice comes once Settle has been called.
func (c *Client) TakeError(tid, fd int) error {
	r, err := c.ask(&request{op: opPending, arg: takeError | holdNotice | 1}, tid, fd)
	if err != nil || len(r.value) != pendingSize {
		return err
	}
	if errno := syscall.Errno(order.Uint32(r.value)); errno != 0 {
		return errno
	}
	return nil
}

// Settle makes the notice of a socket come again while an error stands.
func (c *Client) Settle(tid, fd int) { _, _ = c.ask(&request{op: opPending}, tid, fd) }

// ask sends a request. ENETDOWN is that the node does not answer, EACCES that it does not let this user in, ENFILE that this
// process or the user has no descriptor for a channel.
func (c *Client) ask(q *request, tid, fd int) (reply, error) {
	q.process = uint32(tid)
	ch, used, err := c.take()
	if err == nil {
		r, e := c.exchange(ch, q, fd)
		if used && (e == syscall.EPIPE || e == syscall.ECONNRESET) { // the node was started again
			unix.Close(ch)
			if ch, err = c.dial(); err == nil {
				r, e = c.exchange(ch, q, fd)
			}
		}
		if err == nil && e == nil {
			c.giveBack(ch)
			if r.errno != 0 {
				return r, r.errno
			}
			return r, nil
		}
		if err == nil {
			unix.Close(ch)
			err = e
		}
	}
	switch {
	case errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPERM):
		return reply{}, syscall.EACCES
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		return reply{}, syscall.ENFILE
	}
	return reply{}, syscall.ENETDOWN
}

// take returns a channel, and whether it has been used before.
func (c *Client) take() (int, bool, error) {
	c.mu.Lock()
	if n := len(c.idle); n > 0 {
		ch := c.idle[n-1]
		c.idle = c.idle[:n-1]
		c.mu.Unlock()
		return ch, true, nil
	}
	c.mu.Unlock()
	ch, err := c.dial()
	return ch, false, err
}

func (c *Client) giveBack(ch int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.idle) >= maxIdle {
		unix.Close(ch)
		return
	}
	c.idle = append(c.idle, ch)
}

// dial opens a channel. The node is root's, this user's, or that of the user whom Hello has found there.
func (c *Client) dial() (int, error) {
	ch, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	if err := c.open(ch); err != nil {
		unix.Close(ch)
		return -1, err
	}
	return ch, nil
}

func (c *Client) open(ch int) error {
	if err := unix.SetsockoptTimeval(ch, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: replySeconds}); err != nil {
		return err
	}
	if err := unix.Connect(ch, &unix.SockaddrUnix{Name: c.path}); err != nil {
		return err
	}
	cred, err := unix.GetsockoptUcred(ch, unix.SOL_SOCKET, unix.SO_PEERCRED)
	switch {
	case err != nil:
		return err
	case cred.Uid != 0 && cred.Uid != c.uid && int(cred.Uid) != os.Geteuid():
		return syscall.EPERM
	}
	r, err := c.exchange(ch, &request{op: opHello, name: frontSeccomp, arg: requestSize, value: append([]byte("millrace\x00"), c.token...)}, -1)
	if refused := refusal(ch, err); refused != nil {
		return refused
	}
	if err == nil && r.errno != 0 {
		return r.errno
	}
	return err
}

// refusal returns why the Server has closed a channel before HELLO was answered: cause is what the calls say, which tells of
// the end alone. Nil is that it has said nothing.
func refusal(ch int, cause error) error {
	if !errors.Is(cause, syscall.EPIPE) && !errors.Is(cause, syscall.ECONNRESET) {
		return nil
	}
	var in [replySize + 1]byte
	for range 2 { // the first says once more that the channel was reset
		n, _, err := unix.Recvfrom(ch, in[:], unix.MSG_DONTWAIT)
		if err != nil {
			continue
		}
		if r, err := decodeReply(in[:n]); err == nil && r.op == opHello && r.id == 0 && r.errno != 0 {
			return r.errno
		}
	}
	return nil
}

// exchange sends a request on a channel and waits for the reply, whose value is its own.
func (c *Client) exchange(ch int, q *request, fd int) (reply, error) {
	q.id = c.last.Add(1)
	var out [requestSize]byte
	q.encode(out[:])
	var oob []byte
	if fd >= 0 {
		oob = unix.UnixRights(fd)
	}
	if err := unix.Sendmsg(ch, out[:], oob, nil, unix.MSG_NOSIGNAL); err != nil {
		return reply{}, err
	}
	for {
		var in [replySize + 1]byte
		n, _, err := unix.Recvfrom(ch, in[:], 0)
		switch {
		case err == syscall.EINTR:
			continue
		case err != nil:
			return reply{}, err
		case n == 0:
			return reply{}, syscall.EPIPE
		}
		r, err := decodeReply(in[:n])
		if err != nil || r.op == q.op && (r.id == q.id || r.id == 0 && r.op == opHello) {
			r.value = bytes.Clone(r.value)
			return r, err
		}
	}
}

package shim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/internal/programsocket"
	"github.com/millrace/millrace/socket"
)

// channel is a control connection of a process.
type channel struct {
	s     *Server
	conn  *net.UnixConn // closed once a loop has the channel
	peer  *user         // whose process it is
	user  *user         // whose limits count; nil before HELLO
	owner *socket.Process

	supervisor bool   // it speaks for other processes
	asker      uint32 // thread that a supervisor asks for, 0 is one of the owner's
	known      bool   // the descriptor of the request is that of a socket of the node, whose close does not wait
	started    uint64 // when the owner has begun (see startTime), 0 is unknown
	pids       int    // 1: it has the numbers of processes that the node has; -1: others

	budget ringBudget // of its connections

	onLoop *loopChannel // nil until a loop has it; Server.mu guards it

	in  [requestSize + 1]byte // one more, so that a longer message is seen
	oob [64]byte              // for more descriptors than a request has, which are closed
	out [replySize]byte
}

// newChannel returns nil if the connection is refused.
func (s *Server) newChannel(conn *net.UnixConn) *channel {
	c := &channel{s: s, conn: conn}
	cred, err := programsocket.Credentials(conn)
	if err != nil {
		conn.Close()
		return nil
	}
	c.peer = s.userOf(cred.Uid)
	if err := c.take(); err != nil {
		c.refuse(err)
		return nil
	}
	c.owner = &socket.Process{PID: int(cred.Pid), UID: cred.Uid, Command: command(int(cred.Pid))}
	c.started, _ = startTime(c.owner.PID) // a process that has ended is not trusted
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		c.giveBack()
		conn.Close()
		return nil
	}
	s.channels[c] = struct{}{}
	return c
}

// take counts the channel for its user. giveBack undoes it.
func (c *channel) take() error {
	if !c.peer.take(&c.peer.channels, c.s.cfg.Limits.Channels) {
		c.peer.limited.Add(1)
		return syscall.EMFILE
	}
	err := c.s.takeFile(c.peer)
	if err != nil {
		c.peer.limited.Add(1)
		c.peer.giveBack(&c.peer.channels)
	}
	return err
}

func (c *channel) giveBack() {
	c.s.giveFile(c.peer)
	c.peer.giveBack(&c.peer.channels)
}

// refuse closes the channel with a reply to the HELLO that will follow or waits there: its number is 0. What the program has
// sent already may be descriptors whose close takes long: others must not wait for that. Who sends them is bounded by
// RLIMIT_NOFILE (unix(7)).
func (c *channel) refuse(cause error) {
	r := reply{op: opHello, errno: errnoOf(cause)}
	r.encode(c.out[:])
	_, _ = c.conn.Write(c.out[:]) // there is space: nothing was sent before
	slow := true
	if raw, err := c.conn.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { slow = holdsRights(int(fd)) })
	}
	if slow {
		c.peer.closer.do(func() { c.conn.Close() })
		return
	}
	c.conn.Close()
}

// command returns the name of a process as ps(1) shows it; "" if it is gone or hidden.
func command(pid int) string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	if err != nil {
		return ""
	}
	return strings.TrimSuffix(string(b), "\n")
}

// serve answers requests until the process closes the channel, or sends what is none. After HELLO a loop goes on with the
// channel of a library.
func (c *channel) serve() {
	for {
		n, fds, err := c.receive()
		if err != nil || n == 0 {
			c.peer.closer.closeAll(c.s.ctx, fds)
			break
		}
		r, err := c.do(c.in[:n], fds)
		if err != nil || c.answer(&r) != nil || c.user == nil {
			break
		}
		if !c.supervisor && c.toLoop() {
			return
		}
	}
	c.end()
}

// do does a request and closes the descriptors that came with it. The error is errProtocol.
func (c *channel) do(b []byte, fds []int) (reply, error) {
	c.s.stats.requests.Add(1)
	c.known = false
	r, err := c.handle(b, fds)
	if c.known {
		closeAll(fds) // before the reply: a close of the program after it is the last
	} else {
		c.peer.closer.closeAll(c.s.ctx, fds)
	}
	if errors.Is(err, errProtocol) {
		c.s.stats.malformed.Add(1)
		return r, err
	}
	r.errno = errnoOf(err)
	return r, nil
}

// answer sends a reply, and the descriptor that goes with it.
func (c *channel) answer(r *reply) error {
	r.encode(c.out[:])
	if r.memory.fd == 0 {
		_, err := c.conn.Write(c.out[:])
		return err
	}
	defer r.memory.close()
	_, _, err := c.conn.WriteMsgUnix(c.out[:], unix.UnixRights(r.memory.fd), nil)
	return err
}

// end closes the channel later: requests that were not read may have brought descriptors.
func (c *channel) end() { c.peer.closer.do(c.free) }

func (c *channel) free() {
	c.conn.Close()
	c.giveBack()
	c.s.mu.Lock()
	delete(c.s.channels, c)
	c.s.mu.Unlock()
}

// receive returns the length of a message, and the descriptors that came with it, which the caller closes.
func (c *channel) receive() (int, []int, error) {
	n, oobn, _, _, err := c.conn.ReadMsgUnix(c.in[:], c.oob[:])
	fds, e := rightsIn(c.oob[:oobn])
	return n, fds, cmp.Or(err, e)
}

// rightsIn returns the descriptors of a control message.
func rightsIn(oob []byte) (fds []int, err error) {
	if len(oob) == 0 {
		return nil, nil
	}
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, err
	}
	for i := range msgs {
		if got, e := unix.ParseUnixRights(&msgs[i]); e == nil {
			fds = append(fds, got...)
		}
	}
	return fds, nil
}

func closeAll(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}

// handle does what a request asks.
func (c *channel) handle(b []byte, fds []int) (reply, error) {
	q, err := decodeRequest(b)
	r := reply{op: q.op, id: q.id}
	c.asker = q.process
	if err != nil {
		return r, err
	}
	switch {
	case q.op == opHello && c.user == nil:
		return r, c.greet(&q, &r)
	case q.op == opHello, c.user == nil || len(fds) > 1:
		return r, errProtocol
	case q.op == opInterfaces:
		c.interfaces(&q, &r)
		return r, nil
	case q.op == opResolve:
		return r, c.resolve(&q, &r)
	case q.op == opRelease:
		c.user.begin()
		defer c.user.end()
		return r, c.release(&q)
	case len(fds) == 0:
		return r, syscall.EBADF
	}
	c.user.begin()
	defer c.user.end()
	return r, c.onSocket(&q, &r, fds[0])
}

// onSocket does a request for the socket that p is the program's end of.
func (c *channel) onSocket(q *request, r *reply, p int) error {
	k, err := c.s.find(c, p)
	if err != nil {
		return c.onEnded(q, r, p, err)
	}
	k.ops.Lock()
	defer k.ops.Unlock()
	defer func() { c.known = !k.holdsStrangers() }()
	k.asked = p
	switch q.op {
	case opBind:
		err = k.bind(c, q, r)
	case opConnect:
		err = k.connect(c, q, r, p, c.s.cfg.Stack.Connect, false)
	case opListen:
		err = k.listen(q, r, p)
	case opNames:
		if k.unsent() && !k.stream { // it has sent before it was bound, and has an address now
			k.bindSent()
		}
		r.local, r.remote = k.names()
		r.value = c.s.instanceOf()
	case opSetOption:
		err = k.setOption(int(q.level), int(q.name), q.value)
	case opRenew:
		err = k.renew(q)
	case opHeaders:
		err = k.addHeaders()
	case opErrors:
		err = k.nextError(int(q.arg), r)
	case opMore:
		err = k.more(int(q.arg))
	case opPending:
		err = k.pending(int(q.arg), r)
	case opMove:
		r.value, err = k.moveBack(p)
	case opGetOption:
		r.value, err = k.option(int(q.level), int(q.name), q.value[:0], int(q.arg))
	}
	if err == syscall.ENETDOWN && k.current() == released { // the connection has ended meanwhile
		return c.onEnded(q, r, p, syscall.EISCONN)
	}
	return err
}

// lookupTime is the time that a host name may take: the library waits for 30 s.
const lookupTime = 20 * time.Second

// maxHostName is the longest name of DNS in text form (RFC 1035 2.3.4).
const maxHostName = 253

// resolve answers RESOLVE. It holds up the channel, of which a process has more, and nothing else.
func (c *channel) resolve(q *request, r *reply) error {
	host := text(q.value)
	switch {
	case c.s.cfg.Lookup == nil:
		return syscall.ENOSYS
	case q.arg != 0 && q.arg != unix.AF_INET && q.arg != unix.AF_INET6:
		return syscall.EAFNOSUPPORT
	case host == "" || len(host) > maxHostName+1: // it may end in a dot
		return syscall.ENOENT
	case !c.user.take(&c.user.lookups, c.s.cfg.Limits.Lookups):
		c.user.limited.Add(1)
		return syscall.EAGAIN
	}
	defer c.user.giveBack(&c.user.lookups)
	ctx, cancel := context.WithTimeout(c.s.ctx, lookupTime)
	defer cancel()
	list, err := c.s.cfg.Lookup(ctx, host)
	var d *net.DNSError
	switch {
	case errors.As(err, &d) && d.IsNotFound:
		return syscall.ENOENT
	case err != nil:
		return syscall.EAGAIN
	}
	r.value = appendAddrs(nil, list, int(q.arg))
	return nil
}

// appendAddrs appends the addresses of a family, or of both for 0, as many as a reply has space for.
func appendAddrs(b []byte, list []netip.Addr, family int) []byte {
	for _, a := range list {
		a = a.Unmap()
		if len(b)+addrSize > maxReplyValue {
			break
		}
		if family == 0 || a.Is4() == (family == unix.AF_INET) {
			b = append(b, make([]byte, addrSize)...)
			encodeAddr(b[len(b)-addrSize:], netip.AddrPortFrom(a, 0))
		}
	}
	return b
}

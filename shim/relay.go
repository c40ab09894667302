package shim

import (
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/shim/ring"
	"github.com/millrace/millrace/socket"
	"github.com/millrace/millrace/stack"
)

const (
	// burst is the number of bytes that one call moves in one direction: packets wait for it.
	burst = 64 << 10

	// bulkFrom is from how many bytes on, in a burst, the next one is taken out of the socket (see take), and bulkLeast how many
	// it needs: a system call more is worth it where a second copy is spared.
	bulkFrom, bulkLeast = 32 << 10, 8 << 10

	// reserved is the part of the send buffer that one read may fill.
	reserved = 16 << 10

	// maxUnconsumed is the number of bytes read already that may stay in the program's socket beside the guard byte,
	// to spare a system call. Each may be a buffer of the kernel, which counts 768 bytes against the program's
	// send buffer, and together they must leave it writable (see sendBuffer).
	maxUnconsumed = 24

	scratchSize = 64 << 10
)

// relay moves bytes between the node's end of a program's socket and a connection. All of it belongs to the connection's
// loop. The first bytes in the program's direction are always ones that were read already, at least one, the guard
// byte: reads look behind them (SO_PEEK_OFF). So the end of the node is never the end of the stream for the program.
type relay struct {
	k     *sock
	in    socket.LoopConn
	loop  int // of in; any goroutine may read it
	watch *stack.FileWatch
	drop  []byte // where bytes go that are consumed
	fd    int

	unconsumed int // bytes that were read and are still in the socket, with the guard byte
	deferral   deferral
	bulk       bool // the program writes much at once
	full       bool // the program's receive buffer: Writable is watched
	peerEnded  bool // the peer's FIN was passed on
	ended      bool // the program's FIN was passed on
	shut       bool // the program has shut down its direction: reads go on to the end
	hangup     bool // the program has closed its end
	readShut   bool // the program reads no more: what comes is dropped
	reset      bool // the program has closed its end with bytes unread in it
	sends      int  // more calls of file until the loop has sent what the program wrote, and then follows
	then       func(*relay)
	rejects    bool // the program's writes fail, because the connection has failed
	failed     syscall.Errno
	over       bool // the connection has ended
	closed     bool

	rings   *rings // nil: the socket carries the bytes
	early   []byte // for the stack, before what the socket carries (see moveBack)
	late    []byte // for the program, before what the stack has
	lateEnd bool   // nothing follows late
}

// relay begins to move bytes. filled bytes of fill are taken out before.
func (k *sock) relay(in socket.LoopConn, fd, filled int) {
	k.newRelay(in, fd).start(filled)
}

// newRelay makes the relay of a connection, whose rings may be written from now on. The program may have its end before start:
// its requests wait for the loop, which the caller holds until then.
func (k *sock) newRelay(in socket.LoopConn, fd int) *relay {
	loop := k.s.cfg.Stack.LoopOf(in)
	r := &relay{k: k, in: in, loop: loop.Index(), fd: fd, drop: k.s.scratch[loop.Index()], unconsumed: 1}
	k.mu.Lock()
	late := k.late
	k.mu.Unlock()
	for _, o := range late {
		_ = in.SetOption(o.opt, o.v) // the value was checked
	}
	if mem := k.takeMemory(); mem != nil {
		r.openRings(mem, loop)
	}
	k.mu.Lock()
	k.relayed = r
	k.mu.Unlock()
	return r
}

func (r *relay) start(filled int) {
	in, loop := r.in, r.k.s.cfg.Stack.LoopOf(r.in)
	if r.rings != nil {
		r.k.s.stats.rings.Add(1)
		r.showTier(1)
	}
	var err error
	if r.watch, err = loop.Watch(r.fd, stack.FileReadable|stack.FilePeerClosed|stack.FileEdge, r.file); err == nil {
		err = r.begin(filled)
	}
	if err != nil {
		_ = in.Abort()
		r.close(errnoOf(err))
		return
	}
	in.OnReady(r.ready)
}

// begin passes over what was in the socket before the first byte of the program. A few bytes stay: reads look behind them.
func (r *relay) begin(filled int) error {
	switch {
	case r.rings != nil:
		return r.skip(filled)
	case filled <= maxUnconsumed:
		r.unconsumed += filled
	default:
		if err := r.skip(filled); err != nil {
			return err
		}
	}
	return unix.SetsockoptInt(r.fd, unix.SOL_SOCKET, unix.SO_PEEK_OFF, r.unconsumed)
}

// skipAll consumes what the program may have left in the socket, with the guard byte, before the socket is closed: bytes in it
// would make the end of the stream ECONNRESET. A doorbell byte that the program is about to write fails from here on.
func (r *relay) skipAll() {
	if r.rings != nil {
		_ = unix.Shutdown(r.fd, unix.SHUT_RD) // the program may have closed it
		r.skipAllBut(0)
	} else {
		_ = r.skip(r.unconsumed)
	}
}

// skip consumes n bytes.
func (r *relay) skip(n int) error {
	for n > 0 {
		got, _, err := unix.Recvfrom(r.fd, r.drop[:min(n, len(r.drop))], unix.MSG_DONTWAIT)
		switch {
		case err == syscall.EINTR:
			continue
		case err != nil:
			return err
		case got == 0:
			return syscall.ECONNRESET
		}
		n -= got
	}
	return nil
}

// ready handles events of the connection.
func (r *relay) ready(in socket.LoopConn, ev socket.Events) {
	r.in = in
	if ev&socket.Failed != 0 && r.failed == 0 {
		r.fail(in.SocketError())
	}
	r.over = r.over || ev&socket.Closed != 0
	if ev&(socket.Readable|socket.PeerClosed|socket.Closed) != 0 {
		r.toProgram()
	}
	if ev&socket.Writable != 0 && !r.closed {
		r.toStack()
	}
}

// fail keeps why the connection ended.
func (r *relay) fail(err error) {
	r.failed = errnoOf(err)
	if r.failed == 0 {
		r.failed = syscall.ECONNRESET
	}
	r.over = true
}

// file handles events of the program's socket.
func (r *relay) file(_ socket.LoopStack, ev stack.FileEvents) {
	if r.closed {
		return
	}
	if r.sends > 0 {
		r.sent()
		return
	}
	r.hangup = r.hangup || ev&stack.FileHangup != 0
	r.shut = r.shut || ev&(stack.FilePeerClosed|stack.FileHangup) != 0
	r.reset = r.reset || ev&stack.FileFailed != 0
	if r.rings != nil && ev&stack.FileReadable != 0 && !r.hangup && r.foreign() {
		r.violated()
		return
	}
	awaited := r.rings != nil && r.full // a doorbell byte may say that the ring has space
	if ev&(stack.FileReadable|stack.FilePeerClosed|stack.FileHangup|stack.FileFailed) != 0 {
		r.toStack()
	}
	if (ev&(stack.FileWritable|stack.FileHangup) != 0 || awaited) && !r.closed {
		r.toProgram()
	}
}

// programEnded passes on the FIN of the program.
func (r *relay) programEnded() {
	r.ended = true
	if !r.isClosed() {
		_ = r.in.CloseWrite() // it is open, or has failed, which ready handles
	}
}

// isClosed reports whether the program has closed its end, or has shut down both directions, which shows no difference.
// After the peer's FIN was passed on, its own FIN looks the same, too, and ends the connection in any case.
func (r *relay) isClosed() bool { return r.hangup && !r.peerEnded }

// programClosed closes the connection after the program has closed its end and all that it wrote has been read. That is a
// reset if it has not got all that came (RFC 2525, 2.17), or has set SO_LINGER.
func (r *relay) programClosed() {
	r.skipAll() // after shutdown(2) it is still there, and sees no reset
	_ = r.in.Close()
	r.close(0)
}

// afterSend calls f once the loop has sent what the window permits. A close that is a reset must not overtake what the
// program wrote before, which Linux has sent by then: a server's last words, such as why it refuses a client.
func (r *relay) afterSend(f func(*relay)) {
	if !r.closed && r.sends == 0 {
		r.sends, r.then = 2, f // where a packet has caused this, the first call is of the same iteration, before the loop sends
		r.watch.Again(stack.FileHangup)
	}
}

func (r *relay) sent() {
	if r.sends--; r.sends == 0 {
		r.then(r)
		return
	}
	r.watch.Again(stack.FileHangup)
}

// closeAfterSend is programClosed after the loop has sent, and a reset if the program has not got all that came.
func (r *relay) closeAfterSend() {
	if !r.unread() {
		r.afterSend((*relay).programClosed)
		return
	}
	r.afterSend(func(r *relay) {
		_ = r.in.Abort() // what is unread may have been dropped meanwhile
		r.programClosed()
	})
}

func (r *relay) unread() bool { return len(r.in.Peek()[0]) > 0 }

// programFailed ends the connection because the program has closed its end with data unread: ECONNRESET, which becomes a
// reset as with a socket of the kernel (RFC 9293, 3.6.1).
func (r *relay) programFailed() {
	if r.closed {
		return
	}
	_ = r.in.Abort()
	r.close(0)
}

// atEnd passes on the end of what the peer sends, once the program has all before it.
func (r *relay) atEnd() {
	switch {
	case r.failed == syscall.EPIPE: // a reset after the peer's FIN: reads go on to say the end, as on Linux
		r.skipAll()
		r.close(r.failed)
	case r.failed != 0:
		r.close(r.failed) // the guard byte makes it ECONNRESET
	case !r.peerEnded && r.in.Ready()&socket.PeerClosed != 0:
		r.peerEnded = true
		if r.rings == nil || !r.rings.mem.Finish() {
			_ = unix.Shutdown(r.fd, unix.SHUT_WR) // the program may have closed it
		}
		fallthrough
	case r.over:
		if r.over && r.ended {
			r.finish()
		}
	}
}

// finish closes the socket after both ends have sent their FIN: the program sees the end, not a reset.
func (r *relay) finish() {
	if r.ringUnread() {
		r.rings.lingers = true
		return
	}
	r.skipAll()
	_ = r.in.Close()
	r.close(0)
}

// close ends the relay and frees the socket. errno is what SO_ERROR shows.
func (r *relay) close(errno syscall.Errno) {
	if r.closed {
		return
	}
	r.closed = true
	r.in.OnReady(nil)
	r.closeRings(ring.Closed)
	if r.watch != nil {
		r.watch.Remove()
	}
	if errno != 0 {
		_ = r.in.Close() // what is left of it
	}
	r.k.release(errno)
}

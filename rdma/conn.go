package rdma

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/millrace/millrace/rdma/transport"
)

// Addr is the address of a Conn or Listener: a port of RDMA-CM.
type Addr struct{ netip.AddrPort }

// Network returns "rdma".
func (Addr) Network() string { return "rdma" }

// Conn is a connection for messages, and a net.Conn: Write sends what it is given as messages, and Read reads their bytes in order.
// ReadMessage and WriteMessage keep the boundaries. All methods may be called from any goroutine.
type Conn struct {
	ctx    *Context
	cfg    ConnConfig
	pd     *PD
	mr     *MR // of receive buffers, then of send buffers
	cq     *CQ
	qp     *QP
	id     *CMID
	local  Addr
	remote Addr

	reading, writing sync.Mutex // one Read and one Write at a time; taken before mu

	// mu guards what follows. It is taken after the loop's lock, which no one waits for with mu held.
	mu       sync.Mutex
	changed  sync.Cond
	size     int // of the longest message to the peer
	credits  int // messages that may be sent
	emptied  int // receive buffers that have been posted again since the last message
	arrived  []arrival
	offset   int      // bytes of arrived[0] that Read has returned
	free     []uint16 // send buffers
	posted   int      // sends without completion,
	controls int      // and of them, those without payload
	finished bool     // FIN has come
	closed   bool     // by Close
	err      error    // the connection is over
	heard    bool     // something has completed since the last look of keepAlive
	looks    *time.Timer
	readBy   deadline
	writeBy  deadline
}

// arrival is a message in a receive buffer.
type arrival struct {
	buffer uint16
	bytes  uint32
}

// deadline is a point in time at which waits end.
type deadline struct {
	passed bool
	timer  *time.Timer
	set    int // counts calls, so that a timer of an earlier one does nothing
}

// noBuffer marks the completions of messages without payload.
const noBuffer = 1 << 32

// completed takes the completions, with the loop's lock held.
func (s *Conn) completed(w Completion, recv bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.changed.Broadcast()
	s.heard = true
	switch {
	case w.Status != transport.Success:
		s.fail(w.Status)
	case !recv:
		s.posted--
		if w.ID < noBuffer {
			s.free = append(s.free, uint16(w.ID))
			return
		}
		s.controls--
		s.grant()
	default:
		s.credits += int(w.Imm & immCredits)
		s.finished = s.finished || w.Imm&immFIN != 0
		if w.Bytes > 0 {
			s.arrived = append(s.arrived, arrival{uint16(w.ID), w.Bytes})
		} else {
			s.repost(w.ID) // here, as no Read may follow
		}
	}
}

// fail ends the connection with the status of a request.
func (s *Conn) fail(st Status) {
	switch {
	case s.err != nil:
	case st == transport.Flushed: // the peer disconnected, or died and its next process says so
		s.err = syscall.ECONNRESET
	case st == transport.RetriesExceeded:
		s.err = syscall.ETIMEDOUT
	default:
		s.err = fmt.Errorf("rdma: %v", st)
	}
}

// LocalAddr returns the address of this side, RemoteAddr that of the peer.
func (s *Conn) LocalAddr() net.Addr  { return s.local }
func (s *Conn) RemoteAddr() net.Addr { return s.remote }

// MaxMessage returns the bytes of the longest message that WriteMessage sends.
func (s *Conn) MaxMessage() int { return s.size }

// QP returns the queue pair, for its counters.
func (s *Conn) QP() *QP { return s.qp }

// opError returns an error as package net does; io.EOF stays.
func (s *Conn) opError(op string, err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return err
	}
	return &net.OpError{Op: op, Net: "rdma", Source: s.local, Addr: s.remote, Err: err}
}

// awaitMessage waits until a message is there. s.mu is held.
func (s *Conn) awaitMessage() error {
	for {
		switch {
		case s.closed:
			return net.ErrClosed
		case s.readBy.passed:
			return os.ErrDeadlineExceeded
		case len(s.arrived) > 0:
			return nil
		case s.finished:
			return io.EOF
		case s.err != nil:
			return s.err
		}
		s.changed.Wait()
	}
}

// Read reads bytes of messages in their order.
func (s *Conn) Read(p []byte) (int, error) {
	n, err := s.read(p, false)
	return n, s.opError("read", err)
}

// ReadMessage reads the next message whole. With less room in p it fails with io.ErrShortBuffer, and the message stays.
func (s *Conn) ReadMessage(p []byte) (int, error) {
	n, err := s.read(p, true)
	return n, s.opError("read", err)
}

func (s *Conn) read(p []byte, whole bool) (int, error) {
	s.reading.Lock()
	defer s.reading.Unlock()
	s.mu.Lock()
	if err := s.awaitMessage(); err != nil {
		s.mu.Unlock()
		return 0, err
	}
	a := s.arrived[0]
	at := int(a.buffer)*s.cfg.BufferSize + s.offset
	rest := s.mr.mem[at : int(a.buffer)*s.cfg.BufferSize+int(a.bytes)]
	if whole && len(p) < len(rest) {
		s.mu.Unlock()
		return 0, io.ErrShortBuffer
	}
	n := copy(p, rest)
	if n < len(rest) {
		s.offset += n
		s.mu.Unlock()
		return n, nil
	}
	s.offset, s.arrived = 0, s.arrived[1:]
	s.mu.Unlock()
	s.giveBack(a.buffer)
	return n, nil
}

// giveBack posts a receive buffer again, and returns credits.
func (s *Conn) giveBack(buffer uint16) {
	s.ctx.lock.Enter()
	defer s.ctx.lock.Exit()
	if s.qp.closed {
		return
	}
	s.repost(uint64(buffer)) // fails with the queue pair: later calls report it
	s.mu.Lock()
	s.emptied++
	s.grant()
	s.mu.Unlock()
	s.ctx.makeReady(s.qp)
}

// repost posts a receive buffer again, by the holder of the loop's lock.
func (s *Conn) repost(id uint64) {
	_ = s.qp.qp.PostRecv(&RecvWR{ID: id, List: []SGE{s.mr.SGE(int(id)*s.cfg.BufferSize, s.cfg.BufferSize)}})
}

// grant returns credits, once half of the buffers have been emptied. As few such messages are in flight as the peer has spare buffers for;
// the completion of one calls it again. The loop's lock and s.mu are held.
func (s *Conn) grant() {
	if s.emptied < (s.cfg.Buffers+1)/2 || s.controls == mostControls || s.err != nil || s.closed {
		return
	}
	if s.control(uint32(s.emptied)) {
		s.emptied = 0
	}
}

// control sends a message without payload. The loop's lock and s.mu are held: in ReadyToSend, PostSend completes nothing.
func (s *Conn) control(imm uint32) bool {
	if s.qp.closed || s.qp.qp.State() != ReadyToSend {
		return false
	}
	if s.qp.qp.PostSend(&SendWR{ID: noBuffer, Op: OpSendImm, Flags: Signaled, Imm: imm}) != nil {
		return false
	}
	s.posted++
	s.controls++
	return true
}

// keepAlive begins to look whether the peer is there. Where nothing has been heard of it for cfg.KeepAlive, and no message waits for its
// acknowledgement, one without payload does: the retries of the queue pair decide.
func (s *Conn) keepAlive() {
	if s.cfg.KeepAlive < 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.looks = time.AfterFunc(s.cfg.KeepAlive, s.look)
}

// look is called by the timer of keepAlive.
func (s *Conn) look() {
	s.ctx.lock.Enter()
	defer s.ctx.lock.Exit()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.err != nil {
		return
	}
	if !s.heard && s.posted == 0 && s.control(0) {
		s.ctx.makeReady(s.qp)
	}
	s.heard = false
	s.looks.Reset(s.cfg.KeepAlive)
}

// Write sends p as messages. It returns when all of it is in send buffers.
func (s *Conn) Write(p []byte) (n int, err error) {
	s.writing.Lock()
	defer s.writing.Unlock()
	for {
		piece := p[n:min(len(p), n+s.size)]
		if err := s.write(piece); err != nil {
			return n, s.opError("write", err)
		}
		if n += len(piece); n == len(p) {
			return n, nil
		}
	}
}

// WriteMessage sends a message of 1 to MaxMessage bytes.
func (s *Conn) WriteMessage(p []byte) error {
	if len(p) == 0 || len(p) > s.size {
		return s.opError("write", fmt.Errorf("%w: a message of %d bytes, want 1 to %d", transport.ErrRequest, len(p), s.size))
	}
	s.writing.Lock()
	defer s.writing.Unlock()
	return s.opError("write", s.write(p))
}

// write sends one message. Without bytes it only checks.
func (s *Conn) write(p []byte) error {
	s.mu.Lock()
	for {
		err := error(nil)
		switch {
		case s.closed:
			err = net.ErrClosed
		case s.writeBy.passed:
			err = os.ErrDeadlineExceeded
		case s.err != nil:
			err = s.err
		}
		if err != nil || len(p) == 0 {
			s.mu.Unlock()
			return err
		}
		if s.credits > 0 && len(s.free) > 0 {
			break
		}
		s.changed.Wait()
	}
	i := s.free[len(s.free)-1]
	s.free = s.free[:len(s.free)-1]
	s.credits--
	s.posted++
	grant := s.emptied
	s.emptied = 0
	s.mu.Unlock()
	at := s.sendBuffer(i)
	copy(s.mr.mem[at:], p)
	err := s.qp.PostSend(&SendWR{ID: uint64(i), Op: OpSendImm, Flags: Signaled, List: []SGE{s.mr.SGE(at, len(p))}, Imm: uint32(grant)})
	if err != nil { // the queue pair has failed
		s.mu.Lock()
		s.posted--
		s.mu.Unlock()
	}
	return err
}

// linger bounds the wait of Close for acknowledgements.
const linger = 5 * time.Second

// Close ends the connection. The peer reads what was written before, and then io.EOF.
func (s *Conn) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return s.opError("close", net.ErrClosed)
	}
	s.closed = true
	if s.looks != nil {
		s.looks.Stop()
	}
	s.changed.Broadcast()
	s.mu.Unlock()
	s.writing.Lock() // no message comes behind FIN
	s.ctx.lock.Enter()
	s.mu.Lock()
	s.control(immFIN)
	s.mu.Unlock()
	s.ctx.makeReady(s.qp)
	s.ctx.lock.Exit()
	s.writing.Unlock()
	over := false
	timer := time.AfterFunc(linger, func() {
		s.mu.Lock()
		over = true
		s.changed.Broadcast()
		s.mu.Unlock()
	})
	defer timer.Stop()
	s.mu.Lock()
	for s.posted > 0 && s.err == nil && !over {
		s.changed.Wait()
	}
	s.mu.Unlock()
	err := s.id.Disconnect()
	s.reading.Lock() // a Read may copy from the region
	defer s.reading.Unlock()
	s.release()
	return s.opError("close", err)
}

// SetDeadline, SetReadDeadline and SetWriteDeadline are those of net.Conn.
func (s *Conn) SetDeadline(t time.Time) error {
	return errors.Join(s.SetReadDeadline(t), s.SetWriteDeadline(t))
}

func (s *Conn) SetReadDeadline(t time.Time) error  { return s.setDeadline(&s.readBy, t) }
func (s *Conn) SetWriteDeadline(t time.Time) error { return s.setDeadline(&s.writeBy, t) }

func (s *Conn) setDeadline(d *deadline, t time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return s.opError("set", net.ErrClosed)
	}
	if d.timer != nil {
		d.timer.Stop()
	}
	d.set++
	wait := time.Until(t)
	d.passed = !t.IsZero() && wait <= 0
	if !t.IsZero() && wait > 0 {
		mine := d.set
		d.timer = time.AfterFunc(wait, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			if d.set == mine {
				d.passed = true
				s.changed.Broadcast()
			}
		})
	}
	s.changed.Broadcast()
	return nil
}

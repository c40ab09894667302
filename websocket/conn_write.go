package websocket

import (
	"errors"
	"io"
	"time"
)

// WriteMessage sends a message. It borrows p, allocates nothing, and returns when the stream has all of
// it. The text of a Text message must be UTF-8, which is not checked.
//
// After os.ErrDeadlineExceeded the peer may or may not get the message: what was begun is sent ahead of
// the next one.
func (c *Conn) WriteMessage(op Opcode, p []byte) error {
	_, err := c.writeMessage(op, p)
	return err
}

// writeMessage is WriteMessage. taken says that the peer gets the message, if later, unless the
// connection ends.
func (c *Conn) writeMessage(op Opcode, p []byte) (taken bool, err error) {
	c.wmu.Lock()
	if !c.writer.open {
		defer c.unlockWrite()
		return c.sendFrame(op, p, true)
	}
	c.unlockWrite()
	if err := c.message.lock(c.done); err != nil {
		return false, err
	}
	defer c.message.unlock()
	c.wmu.Lock()
	defer c.unlockWrite()
	return c.sendFrame(op, p, true)
}

// NextWriter begins a message that is sent in frames of the write buffer's size, the last by Close of the
// writer. Other messages wait until then. One goroutine at a time may use the writer, and none after
// Close.
func (c *Conn) NextWriter(op Opcode) (io.WriteCloser, error) {
	if !op.isMessage() {
		return nil, ErrOpcode
	}
	if err := c.message.lock(c.done); err != nil {
		return nil, err
	}
	w := &c.writer
	c.wmu.Lock()
	defer c.unlockWrite()
	if w.buf == nil {
		w.buf = make([]byte, 0, max(1, cap(c.wbuf)-maxHeader))
	}
	w.op, w.open, w.buf = op, true, w.buf[:0]
	return w, nil
}

// messageWriter writes a fragmented message. Its goroutine holds Conn.message, so that only it sets open, under Conn.wmu.
type messageWriter struct {
	c    *Conn
	op   Opcode
	open bool   // messages that come whole wait
	buf  []byte // what follows in the next frame
}

// Write adds p to the message.
func (w *messageWriter) Write(p []byte) (n int, err error) {
	if !w.open {
		return 0, ErrWriterClosed
	}
	for len(p) > 0 {
		if len(w.buf) == cap(w.buf) {
			if taken, err := w.sendFrame(false); err != nil {
				if taken {
					w.buf = w.buf[:0]
				}
				return n, err
			}
			w.buf = w.buf[:0]
		}
		k := min(len(p), cap(w.buf)-len(w.buf))
		w.buf = append(w.buf, p[:k]...)
		p, n = p[k:], n+k
	}
	return n, nil
}

// Close sends the last frame of the message.
func (w *messageWriter) Close() error {
	if !w.open {
		return ErrWriterClosed
	}
	taken, err := w.sendFrame(true)
	if err != nil && !taken && isTimeout(err) {
		return err // Close may be tried again
	}
	w.c.message.unlock()
	return err
}

// sendFrame sends what was written as the next frame. The last one closes the writer, unless it can be tried again.
func (w *messageWriter) sendFrame(final bool) (taken bool, err error) {
	c := w.c
	c.wmu.Lock()
	defer c.unlockWrite()
	taken, err = c.sendFrame(w.op, w.buf, final)
	if final {
		w.open = false
	}
	return taken, err
}

// sendFrame sends a data frame of a message. The caller holds wmu. taken says that the frame is on its way, even if an error
// says that the stream did not take all of it in time.
func (c *Conn) sendFrame(op Opcode, p []byte, final bool) (taken bool, err error) {
	if err := c.flush(); err != nil { // frames before it
		return false, err
	}
	out, err := c.appendPongs(c.wbuf[:0]) // due before the answer to a later message
	if err != nil {
		return false, err
	}
	if c.m.write.deflate == nil && len(p) > cap(c.wbuf)-maxHeader {
		return c.sendLong(out, op, p, final)
	}
	before, pongs := c.m.write.messageState, len(out)
	out, err = c.m.AppendFragment(out, op, p, final)
	c.keep(out)
	if err != nil {
		_ = c.flush() // what precedes the frame
		return false, err
	}
	err = c.flush()
	return !c.takeBack(len(out), pongs, before, err), err
}

// takeBack drops a frame when the deadline passed before the stream took anything of it. size and pongs
// are the lengths of what was to be sent and of the answers to pings ahead of the frame. The window of a
// compressor has the frame already: it stays.
func (c *Conn) takeBack(size, pongs int, before messageState, err error) bool {
	if err == nil || len(c.out) < size-pongs || c.m.write.deflate != nil {
		return false
	}
	c.out, c.m.write.messageState = c.out[:len(c.out)-(size-pongs)], before
	return true
}

// keep makes frames the next that flush writes, and their buffer the write buffer unless it is large.
func (c *Conn) keep(out []byte) {
	c.out = out
	if cap(out) <= maxHeld {
		c.wbuf = out[:0]
	}
}

// sendLong sends a frame that does not fit the write buffer: a client masks it piece by piece in the
// buffer, a server sends all but the beginning from where it is. out has the answers to pings that go
// ahead of it.
func (c *Conn) sendLong(out []byte, op Opcode, p []byte, final bool) (taken bool, err error) {
	before, pongs := c.m.write.messageState, len(out)
	out, err = c.m.AppendHeader(out, op, len(p), final)
	if err != nil {
		c.keep(out)
		_ = c.flush() // what precedes the frame
		return false, err
	}
	for first := true; ; first = false {
		n := min(len(p), cap(out)-len(out))
		c.out, p = c.m.AppendPayload(out, p[:n]), p[n:]
		size := len(c.out)
		if err := c.flush(); err != nil {
			if first && c.takeBack(size, pongs, before, err) {
				return false, err
			}
			// A frame that was begun must be completed.
			c.out = c.m.AppendPayload(append([]byte(nil), c.out...), p)
			return true, err
		}
		if len(p) == 0 {
			return true, nil
		}
		if c.m.role == Server {
			n, err := c.stream.Write(p)
			if err != nil {
				c.out = append([]byte(nil), p[n:]...)
				return true, c.sendError(err)
			}
			return true, nil
		}
		out = c.wbuf[:0]
	}
}

// flush writes c.out. After a timeout it can be called again.
func (c *Conn) flush() error {
	for c.sendErr == nil && len(c.out) > 0 {
		n, err := c.stream.Write(c.out)
		c.out = c.out[n:]
		if err != nil {
			return c.sendError(err)
		}
		if n == 0 {
			return c.sendError(io.ErrNoProgress)
		}
	}
	return c.sendErr
}

// sendError keeps an error of the stream, unless the stream works on.
func (c *Conn) sendError(err error) error {
	if !isTimeout(err) {
		c.sendErr = err
	}
	return err
}

// unlockWrite releases the sending half, after it has answered the pings that a reader left behind.
func (c *Conn) unlockWrite() {
	for {
		if c.pending.Load() {
			_ = c.sendPongs() // an error comes again, to the next writer
		}
		c.wmu.Unlock()
		if !c.pending.Load() || c.sendErrorIsFinal() || !c.wmu.TryLock() {
			return
		}
	}
}

// sendErrorIsFinal reports whether nothing can be sent any more.
func (c *Conn) sendErrorIsFinal() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// control sends a control frame.
func (c *Conn) control(op Opcode, payload []byte) error {
	c.wmu.Lock()
	defer c.unlockWrite()
	if err := c.flush(); err != nil {
		return err
	}
	out, err := c.m.control(c.wbuf[:0], op, payload)
	if err != nil {
		return err
	}
	c.out = out
	return c.flush()
}

// sendClose sends the Close frame, by the end of the time that a closing handshake may take.
func (c *Conn) sendClose(code CloseCode, reason string) error {
	c.wmu.Lock()
	defer c.wmu.Unlock()
	if c.m.CloseSent() {
		return ErrCloseSent
	}
	c.writeBy(time.Now().Add(c.closeTimeout))
	defer c.restoreWriteDeadline()
	if err := c.flush(); err != nil {
		return err
	}
	if c.pending.Load() {
		if err := c.sendPongs(); err != nil { // due before the peer sees the end
			return err
		}
	}
	out, err := c.m.AppendClose(c.wbuf[:0], code, reason)
	if err != nil {
		return err
	}
	c.out = out
	return c.flush()
}

// writeBy sets a write deadline for frames that the connection sends by itself, until
// restoreWriteDeadline.
func (c *Conn) writeBy(t time.Time) {
	if c.times != nil {
		c.wdmu.Lock()
		_ = c.times.SetWriteDeadline(t)
		c.wdmu.Unlock()
	}
}

// restoreWriteDeadline sets the caller's write deadline again.
func (c *Conn) restoreWriteDeadline() {
	if c.times != nil {
		c.wdmu.Lock()
		_ = c.times.SetWriteDeadline(c.writeDeadline)
		c.wdmu.Unlock()
	}
}

// queuePong keeps the payload of a ping for its answer. When there are too many it drops those before.
func (c *Conn) queuePong(payload []byte) {
	c.pongmu.Lock()
	defer c.pongmu.Unlock()
	if len(c.pongs)+1+len(payload) > maxPongs {
		c.pongs = c.pongs[:0]
	}
	c.pongs = append(append(c.pongs, byte(len(payload))), payload...)
	c.pending.Store(true)
}

// answerPings sends the answers to all pings so far, or leaves that to the goroutine that is sending. The
// reader must not wait for a peer that waits for it: it ends the wait after CloseTimeout.
func (c *Conn) answerPings() error {
	if !c.pending.Load() || !c.wmu.TryLock() {
		return nil
	}
	c.writeBy(time.Now().Add(c.closeTimeout))
	err := c.sendPongs()
	c.restoreWriteDeadline()
	c.unlockWrite()
	switch {
	case errors.Is(err, ErrCloseSent):
		return nil // no answer is due any more
	case err != nil && isTimeout(err):
		return ErrStalled
	}
	return err
}

// sendPongs sends the queued answers.
func (c *Conn) sendPongs() error {
	if err := c.flush(); err != nil {
		return err
	}
	out, err := c.appendPongs(c.wbuf[:0])
	if err != nil {
		return err
	}
	c.keep(out)
	return c.flush()
}

// appendPongs appends the queued answers.
func (c *Conn) appendPongs(out []byte) ([]byte, error) {
	if !c.pending.Load() {
		return out, nil
	}
	c.pongmu.Lock()
	defer c.pongmu.Unlock()
	c.pending.Store(false)
	queued := c.pongs
	c.pongs = c.pongs[:0]
	var err error
	for len(queued) > 0 && err == nil {
		n := 1 + int(queued[0])
		out, err = c.m.AppendPong(out, queued[1:n])
		queued = queued[n:]
	}
	return out, err
}

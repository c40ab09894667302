package link

import (
	"io"
	"net"
	"sync"
	"time"
)

// Limits of a link, in bytes.
const (
	inline  = 64 << 10  // Send copies what it cannot write of at most so much, and is done
	piece   = 128 << 10 // is read before it is stored, so that it is still in a cache
	ahead   = 64 << 20  // of messages that came before their Recv
	bufSize = 64 << 10  // of the reader
)

// Single is a link over one connection.
//
// The goroutine that waits for a message reads the connection itself. One that waits for another message leaves the reading to it.
// So a message costs no hand-over between goroutines.
type Single struct {
	conn net.Conn
	out  writer

	mu      sync.Mutex
	changed sync.Cond
	reading bool    // a goroutine reads, without mu
	next    *Header // was read, its bytes not
	early   inbox
	err     error

	buf        []byte // read ahead: of the reading goroutine
	start, end int
	scratch    []byte
	header     [HeaderSize]byte
}

var _ Link = (*Single)(nil)

// NewSingle returns a link over a connection, which it takes.
func NewSingle(conn net.Conn) *Single {
	l := &Single{conn: conn, buf: make([]byte, bufSize)}
	l.changed.L = &l.mu
	l.out.init(conn)
	return l
}

// Send implements Link.
func (l *Single) Send(h *Header, parts [][]byte, p *Pending) {
	h.Kind, h.Offset, h.Length = Data, 0, h.Total
	l.out.send(h, parts, p)
}

// Flush implements Link.
func (l *Single) Flush(most time.Duration) { l.out.flush(most) }

// Close implements Link.
func (l *Single) Close(err error) {
	l.fail(err)
	l.out.close(err)
	_ = l.conn.Close() // the error of the link is err
}

func (l *Single) fail(err error) {
	l.mu.Lock()
	if l.err == nil {
		l.err = err
	}
	l.changed.Broadcast()
	l.mu.Unlock()
}

// Recv implements Link.
func (l *Single) Recv(want *Header, to Sink) error {
	l.mu.Lock()
	for {
		if m := l.early.take(want.Key); m != nil {
			l.changed.Broadcast() // there is space for others
			l.mu.Unlock()
			if err := match(&m.Header, want); err != nil {
				return err
			}
			to.Store(0, m.data)
			return nil
		}
		if l.err != nil {
			err := l.err
			l.mu.Unlock()
			return err
		}
		if !l.reading && (l.next == nil || l.next.Key == want.Key || l.fits(l.next)) {
			break
		}
		l.changed.Wait()
	}
	l.reading = true
	l.mu.Unlock()
	found, err := l.read(want, to)
	l.mu.Lock()
	l.reading = false
	if err != nil && l.err == nil {
		l.err = err
	}
	if l.err != nil && err != nil {
		err = l.err // why it was closed
	}
	l.changed.Broadcast()
	l.mu.Unlock()
	if err == nil && !found {
		return l.Recv(want, to) // the next message is too large to keep, and another's
	}
	return err
}

// fits reports whether a message may be kept until its Recv.
func (l *Single) fits(h *Header) bool { return h.Total <= ahead && l.early.bytes <= ahead-int(h.Total) }

// read reads until the message has come, and keeps others. found is false where another one has to be received first.
func (l *Single) read(want *Header, to Sink) (found bool, err error) {
	for {
		if l.next == nil {
			if err := l.fill(l.header[:]); err != nil {
				return false, err
			}
			h, err := ParseHeader(l.header[:])
			if err == nil && (h.Kind != Data || h.Length != h.Total) {
				err = ErrHeader
			}
			if err != nil {
				return false, err
			}
			l.next = &h
		}
		h := l.next
		if h.Key == want.Key {
			l.next = nil
			if err := match(h, want); err != nil {
				return false, err
			}
			return true, l.payload(int(h.Total), to)
		}
		l.mu.Lock()
		fits := l.fits(h)
		l.mu.Unlock()
		if !fits {
			return false, nil
		}
		m := &message{Header: *h, data: make([]byte, h.Total)}
		l.next = nil
		if err := l.fill(m.data); err != nil {
			return false, err
		}
		l.mu.Lock()
		l.early.put(m)
		l.changed.Broadcast()
		l.mu.Unlock()
	}
}

// payload reads n bytes into a sink.
func (l *Single) payload(n int, to Sink) error {
	for off := 0; off < n; {
		b := to.Direct(off, n-off)
		if b != nil {
			if err := l.fill(b); err != nil {
				return err
			}
			off += len(b)
			continue
		}
		if l.scratch == nil {
			l.scratch = make([]byte, piece)
		}
		b = l.scratch[:min(piece, n-off)]
		if err := l.fill(b); err != nil {
			return err
		}
		to.Store(off, b)
		off += len(b)
	}
	return nil
}

// fill reads len(p) bytes.
func (l *Single) fill(p []byte) error {
	n := copy(p, l.buf[l.start:l.end])
	l.start += n
	p = p[n:]
	if len(p) >= len(l.buf) {
		_, err := io.ReadFull(l.conn, p)
		return err
	}
	for len(p) > 0 {
		n, err := l.conn.Read(l.buf)
		if n == 0 && err != nil {
			return err
		}
		l.start, l.end = copy(p, l.buf[:n]), n
		p = p[l.start:]
	}
	return nil
}

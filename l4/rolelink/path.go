package rolelink

import (
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/l4/role"
)

// path is the socket of a Path: connected, so that the kernel drops what is not from the peer's address and port, and reports
// that its host has no process there.
type path struct {
	Path
	conn   atomic.Pointer[net.UDPConn] // nil: there is no route yet
	heard  atomic.Int64                // when, ns of the calendar; 0: never
	fails  atomic.Uint64
	closed chan struct{}

	mu  sync.Mutex // guards the rest, and what open and close do to conn
	err error      // of the last open
}

// adopt makes the socket of another process this path's.
func (p *path) adopt(f *os.File) error {
	c, err := net.FileConn(f)
	if err != nil {
		return err
	}
	udp, ok := c.(*net.UDPConn)
	if !ok {
		return errors.Join(errors.New("role: an inherited socket is none of UDP"), c.Close())
	}
	p.conn.Store(udp)
	return nil
}

// openEvery is the interval of attempts to open a path without a route.
const openEvery = 200 * time.Millisecond

// absent reports whether an error of open may pass by itself: there is no route, because a device has no link or no address yet.
// Without a link the kernel removes IPv6 addresses, too.
func absent(err error) bool {
	return errors.Is(err, syscall.ENETUNREACH) || errors.Is(err, syscall.EHOSTUNREACH) || errors.Is(err, syscall.ENETDOWN) ||
		errors.Is(err, errAddress)
}

// errAddress is joined to the error of an IPv6 address that the kernel does not have at present.
var errAddress = errors.New("the address is not there")

// open opens the socket.
func (p *path) open() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.closed:
		return net.ErrClosed
	default:
	}
	c, err := net.DialUDP("udp", net.UDPAddrFromAddrPort(p.Listen), net.UDPAddrFromAddrPort(p.Peer))
	if errors.Is(err, syscall.EADDRNOTAVAIL) && p.Listen.Addr().Is6() {
		err = errors.Join(err, errAddress)
	}
	if p.err = err; err == nil {
		p.conn.Store(c)
	}
	return err
}

// close closes the socket, now and for good.
func (p *path) close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.closed:
		return nil
	default:
		close(p.closed)
	}
	if c := p.conn.Load(); c != nil {
		return c.Close()
	}
	return nil
}

// socket waits for the socket, and returns nil once the path is closed.
func (p *path) socket() *net.UDPConn {
	for {
		if c := p.conn.Load(); c != nil {
			return c
		}
		select {
		case <-p.closed:
			return nil
		case <-time.After(openEvery):
			_ = p.open() // the status has the error
		}
	}
}

// failure returns why there is no socket, "" if there is.
func (p *path) failure() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil {
		return ""
	}
	return p.err.Error()
}

// send sends a message. One without a way at present is lost, as in the network.
func (p *path) send(b []byte) {
	c := p.conn.Load()
	if c == nil {
		p.fails.Add(1)
		return
	}
	_, err := c.Write(b)
	p.note(err)
}

// note counts a message that was not sent. Refusals of those before (ECONNREFUSED) are not counted: receive handles them.
func (p *path) note(err error) {
	if err != nil && !errors.Is(err, syscall.ECONNREFUSED) {
		p.fails.Add(1)
	}
}

// failPause is the pause of a reader after an error, such as a refusal for each message of an absent peer.
const failPause = time.Millisecond

// receive hands messages of a path to the machine until the socket is closed.
func (r *Runner) receive(p *path) {
	c, buf := p.socket(), make([]byte, role.MaxMessage+1)
	for c != nil {
		n, err := c.Read(buf)
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case errors.Is(err, os.ErrDeadlineExceeded):
			r.awaitResume()
		case errors.Is(err, syscall.ECONNREFUSED):
			r.refused(p)
			time.Sleep(failPause)
		case err != nil:
			time.Sleep(failPause)
		default:
			m, err := role.Parse(buf[:n], r.key)
			if err != nil {
				r.rejected.Add(1)
				continue
			}
			r.received.Add(1)
			r.take(p, m)
		}
	}
}

// take hands an authentic message to the machine. Each path that it or a copy has come by works.
func (r *Runner) take(p *path, in role.Message) {
	r.do(func(m *role.Machine, now clock.Time) {
		if m.Receive(now, in) || m.Repeats(now, in) {
			p.heard.Store(time.Now().UnixNano())
		}
	})
}

// refused handles that the peer's host has no process at the port of a path. Where a stream of the sync is up, there is one: a
// gateway without a role, or of an earlier version, which answers for the addresses. A path where the peer was never heard may be
// missing in its file.
func (r *Runner) refused(p *path) {
	if up, _ := r.cfg.Streams(); up || p != r.paths[0] && p.heard.Load() == 0 {
		return
	}
	r.do(func(m *role.Machine, now clock.Time) { m.Refused(now) })
}

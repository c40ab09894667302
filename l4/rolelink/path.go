package rolelink

import (
	"errors"
	"net"
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
	conn  *net.UDPConn
	heard atomic.Int64 // when, ns of the calendar; 0: never
	fails atomic.Uint64
}

func openPath(p Path) (*path, error) {
	c, err := net.DialUDP("udp", net.UDPAddrFromAddrPort(p.Listen), net.UDPAddrFromAddrPort(p.Peer))
	if err != nil {
		return nil, err
	}
	return &path{Path: p, conn: c}, nil
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
	buf := make([]byte, role.MaxMessage+1)
	for {
		n, err := p.conn.Read(buf)
		switch {
		case errors.Is(err, net.ErrClosed):
			return
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
			r.do(func(machine *role.Machine, now clock.Time) {
				if machine.Receive(now, m) {
					p.heard.Store(time.Now().UnixNano())
				}
			})
		}
	}
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

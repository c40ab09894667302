package bgp

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Handed is an established session in the form in which another process of the gateway gets it, beside its socket. The socket keeps
// its MD5 key and its other options.
type Handed struct {
	Peer     netip.Addr `json:"peer"`
	Settings string     `json:"settings"` // of both sides, hashed: another process goes on only with the same
	Open     []byte     `json:"open"`     // the peer's OPEN message, without its header

	file *os.File
}

// Adopted is a session for New: a Handed, its socket, and what the process before has announced.
type Adopted struct {
	Handed
	File      *os.File
	Announced []netip.Prefix
}

// settings returns a hash of what both sides of a session have settled.
func settings(c *Config, p *Peer) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d %v %v %+v", c.AS, c.RouterID, c.GracefulRestart, *p))
	return hex.EncodeToString(sum[:16])
}

// Suspend ends the sessions of this process without a word to the routers, and returns them for another process, with the prefixes
// that are announced. Sessions that are not established, or whose peer is in the middle of a message, are not among them.
func (s *Speaker) Suspend() (list []Handed, announced []netip.Prefix) {
	s.mu.Lock()
	s.ending = true
	var all sync.WaitGroup
	answers := make([]*Adopted, len(s.sessions))
	at := 0
	for _, x := range s.sessions {
		i := at
		all.Go(func() { answers[i] = x.suspend() })
		at++
	}
	s.mu.Unlock()
	all.Wait()
	for _, a := range answers {
		if a != nil {
			a.Handed.file = a.File
			list = append(list, a.Handed)
		}
	}
	if rib := s.rib.Load(); rib != nil {
		for p := range *rib {
			announced = append(announced, p)
		}
	}
	slices.SortFunc(announced, comparePrefixes)
	return list, announced
}

// suspend ends a session, and returns it for another process; nil where there is none to pass.
func (x *session) suspend() *Adopted {
	defer x.stop(nil)
	if x.status().State != Established {
		return nil
	}
	limit := time.NewTimer(2 * farewell)
	defer limit.Stop()
	answer := make(chan *Adopted, 1)
	select {
	case x.pause <- answer:
		return <-answer
	case <-limit.C: // it writes to a peer that does not read
		return nil
	}
}

// Socket returns the socket of a session that Suspend returned, which is the caller's.
func (h *Handed) Socket() *os.File { return h.file }

// Resume begins new sessions after Suspend: what another process did with the old ones is not known, so that they end.
func (s *Speaker) Resume() {
	s.running.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ending = false
	clear(s.sessions)
	s.startSessions()
}

// pass stops the reader between two messages, and returns the session with a copy of its socket. The connection here is closed then
// by serve; the peer notices nothing.
func (c *connection) pass() (*Adopted, error) {
	if c.x.status().State != Established {
		return nil, errPassed
	}
	if err := c.write(appendKeepalive(nil)); err != nil { // so that the hold time begins anew
		return nil, err
	}
	_ = c.conn.SetReadDeadline(time.Now())
	for {
		m := <-c.in
		if errors.Is(m.err, errPaused) {
			break
		}
		if err := c.handle(&m); err != nil {
			return nil, err
		}
	}
	file, err := duplicate(c.conn)
	if err != nil {
		return nil, err
	}
	body := c.remote.append(nil)[headerLen:]
	return &Adopted{Handed: Handed{Peer: c.x.peer.Address, Settings: settings(&c.x.local, &c.x.peer), Open: body}, File: file}, errPassed
}

// duplicate returns another descriptor of a socket.
func duplicate(conn net.Conn) (*os.File, error) {
	sc, ok := conn.(syscall.Conn)
	if !ok {
		return nil, fmt.Errorf("%T has no descriptor", conn)
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return nil, err
	}
	var fd int
	e := raw.Control(func(of uintptr) { fd, err = unix.FcntlInt(of, unix.F_DUPFD_CLOEXEC, 0) })
	if err := errors.Join(e, err); err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "bgp"), nil
}

// adopt returns the session with a peer that another process had, nil for none. One with other settings ends. The caller holds s.mu.
func (s *Speaker) adopt(p *Peer) *Adopted {
	i := slices.IndexFunc(s.adopted, func(a Adopted) bool { return a.Peer == p.Address })
	if i < 0 {
		return nil
	}
	a := s.adopted[i]
	s.adopted = slices.Delete(s.adopted, i, i+1)
	if a.Settings != settings(&s.cfg, p) {
		a.refuse(shutdown(ceaseReconfig, ""))
		return nil
	}
	return &a
}

// refuse ends a session with a word to the peer.
func (a *Adopted) refuse(why *Notification) {
	defer a.File.Close()
	if conn, err := net.FileConn(a.File); err == nil {
		_ = conn.SetWriteDeadline(time.Now().Add(farewell))
		_, _ = conn.Write(why.append(nil))
		conn.Close()
	}
}

// open returns the connection of an adopted session. What the other process announced is known by its prefixes alone: all routes are
// announced again, which changes nothing at the peer, and those that are gone are withdrawn.
func (a *Adopted) open(x *session) (*connection, error) {
	defer a.File.Close()
	remote, wrong := parseOpen(a.Open)
	if wrong != nil {
		return nil, wrong
	}
	conn, err := net.FileConn(a.File)
	if err != nil {
		return nil, err
	}
	c := newConnection(x, conn)
	c.remote, c.agreed = remote, x.negotiate(remote, conn)
	for _, p := range a.Announced {
		if c.agreed.families.has(familyOf(p.Addr())) {
			c.out[p] = ""
		}
	}
	x.update(func(st *PeerStatus) { st.Established++; st.Prefixes = len(c.out) })
	return c, nil
}

package bgp

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Handed is an established session in the form in which another process of the gateway gets it. Its socket goes beside it, and keeps
// its MD5 key and its other options.
type Handed struct {
	Peer     netip.Addr `json:"peer"`
	ID       uint64     `json:"id"`       // of the connection, as the Socket has it
	Settings string     `json:"settings"` // of both sides, hashed: another process goes on only with the same
	Open     []byte     `json:"open"`     // the peer's OPEN message, without its header
}

// Suspended is the state of a speaker that has stopped, for another process.
type Suspended struct {
	Sessions []Handed `json:"sessions"`
	IPv4     []byte   `json:"ipv4,omitempty"` // prefixes that are announced, as UPDATE has them
	IPv6     []byte   `json:"ipv6,omitempty"`
}

// Socket is a copy of the socket of a session.
type Socket struct {
	Peer netip.Addr
	ID   uint64
	File *os.File
}

// String returns the name by which another process finds the session.
func (s *Socket) String() string { return fmt.Sprintf("%v %d", s.Peer, s.ID) }

// ParseSocket returns a socket with the name that String has returned.
func ParseSocket(name string, f *os.File) (s Socket, err error) {
	s.File = f
	peer, id, _ := strings.Cut(name, " ")
	if s.Peer, err = netip.ParseAddr(peer); err == nil {
		s.ID, err = strconv.ParseUint(id, 10, 64)
	}
	return s, err
}

// Adopted is a session that another process had, for Options.
type Adopted struct {
	Handed
	File      *os.File
	Announced []netip.Prefix
}

// Adopt returns the sessions whose sockets are there, and closes the other sockets.
func (s *Suspended) Adopt(sockets []Socket) (list []Adopted) {
	announced, _ := prefixes(nil, s.IPv4, IPv4)
	announced, _ = prefixes(announced, s.IPv6, IPv6)
	for _, o := range sockets {
		i := slices.IndexFunc(s.Sessions, func(h Handed) bool { return h.Peer == o.Peer && h.ID == o.ID })
		if i < 0 {
			o.File.Close()
			continue
		}
		list = append(list, Adopted{s.Sessions[i], o.File, announced})
	}
	return list
}

// settings returns a hash of what both sides of a session have settled.
func settings(c *Config, p *Peer) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d %v %v %+v", c.AS, c.RouterID, c.GracefulRestart, *p))
	return hex.EncodeToString(sum[:16])
}

// Sockets returns copies of the sockets of the established sessions, which are the caller's.
func (s *Speaker) Sockets() (list []Socket, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range s.sessions {
		x.mu.Lock()
		conn, id, ok := x.conn, x.id, x.st.State == Established
		x.mu.Unlock()
		if !ok || conn == nil {
			continue
		}
		f, e := duplicate(conn)
		if e != nil {
			err = errors.Join(err, e)
			continue
		}
		list = append(list, Socket{x.peer.Address, id, f})
	}
	return list, err
}

// Suspend ends the sessions of this process without a word to the routers, and returns them for another process, with the prefixes
// that are announced. Sessions that are not established, or whose peer is in the middle of a message, are not among them.
func (s *Speaker) Suspend() (st Suspended) {
	s.mu.Lock()
	s.ending = true
	var all sync.WaitGroup
	answers := make([]*Handed, len(s.sessions))
	at := 0
	for _, x := range s.sessions {
		i := at
		all.Go(func() { answers[i] = x.suspend() })
		at++
	}
	s.mu.Unlock()
	all.Wait()
	for _, h := range answers {
		if h != nil {
			st.Sessions = append(st.Sessions, *h)
		}
	}
	rib := s.rib.Load()
	if rib == nil {
		return st
	}
	for _, p := range slices.SortedFunc(maps.Keys(*rib), comparePrefixes) {
		if p.Addr().Is4() {
			st.IPv4 = appendPrefix(st.IPv4, p)
		} else {
			st.IPv6 = appendPrefix(st.IPv6, p)
		}
	}
	return st
}

// suspend ends a session, and returns it for another process; nil where there is none to pass.
func (x *session) suspend() *Handed {
	defer x.stop(nil)
	if x.status().State != Established {
		return nil
	}
	limit := time.NewTimer(2 * farewell)
	defer limit.Stop()
	answer := make(chan *Handed, 1)
	select {
	case x.pause <- answer:
		return <-answer
	case <-limit.C: // it writes to a peer that does not read
		return nil
	}
}

// Resume begins new sessions after Suspend: what another process did with the old ones is not known, so that they end.
func (s *Speaker) Resume() {
	s.running.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ending = false
	clear(s.sessions)
	s.startSessions()
}

// pass stops the reader between two messages, and returns the session. The connection here is closed then by serve; the peer notices
// nothing, as another process has a copy of the socket.
func (c *connection) pass() (*Handed, error) {
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
	body := c.remote.append(nil)[headerLen:]
	return &Handed{Peer: c.x.peer.Address, ID: c.id, Settings: settings(&c.x.local, &c.x.peer), Open: body}, errPassed
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

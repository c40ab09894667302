package udp

import (
	"slices"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/ip"
)

// membership says that a socket receives a group, from one source or any (the zero address), by one
// interface or any (0).
type membership struct {
	iface         uint32
	group, source ip.Addr
}

// Join has the socket receive a group by an interface (0: by the routes), from source or, where that is
// the zero address, from anywhere (RFC 3376 3.1, RFC 3678).
func (s *Socket) Join(now clock.Time, iface uint32, group, source ip.Addr) error {
	if !isMulticast(group) || s.m.cfg.Groups == nil {
		return ErrNotMulticast
	}
	x := membership{iface, group, source}
	if slices.Contains(s.members, x) {
		return ErrInUse
	}
	if err := s.m.cfg.Groups.Join(now, iface, group, source); err != nil {
		return err
	}
	s.members = append(s.members, x)
	return nil
}

// Leave undoes a Join.
func (s *Socket) Leave(now clock.Time, iface uint32, group, source ip.Addr) error {
	i := slices.Index(s.members, membership{iface, group, source})
	if i < 0 {
		return ErrNotMember
	}
	s.members = slices.Delete(s.members, i, i+1)
	s.m.cfg.Groups.Leave(now, iface, group, source)
	return nil
}

// leaveAll undoes what Join did.
func (s *Socket) leaveAll(now clock.Time) {
	for _, x := range s.members {
		s.m.cfg.Groups.Leave(now, x.iface, x.group, x.source)
	}
	s.members = nil
}

// member reports whether s has joined the group that d came to.
func (s *Socket) member(t *ip.Tuple, d *Datagram) bool {
	for _, x := range s.members {
		if x.group == t.Local && (x.iface == 0 || x.iface == d.Interface) && (x.source == ip.Addr{} || x.source == t.Remote) {
			return true
		}
	}
	return false
}

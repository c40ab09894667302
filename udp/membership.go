package udp

import (
	"slices"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/wire"
)

// membership is the part of a group that a socket accepts on one interface: only from sources, or
// from all but them (RFC 3376 3.1).
type membership struct {
	iface   uint32
	group   wire.Addr
	include bool
	sources []wire.Addr
}

// maxSources is the most sources that a socket may name for a group.
const maxSources = 64

// Listen sets which packets to group s wants by an interface (0: any; the host joins by the
// one of its routes), as IPMulticastListen of RFC 3376 2 and RFC 3810 3: from sources alone
// (include), or from all but them. Including none leaves the group.
func (s *Socket) Listen(now clock.Time, iface uint32, group wire.Addr, include bool, sources []wire.Addr) error {
	if !group.Multicast() || s.m.cfg.Groups == nil {
		return ErrNotMulticast
	}
	if len(sources) > maxSources {
		return ErrTooMany
	}
	i := slices.IndexFunc(s.members, func(x membership) bool { return x.iface == iface && x.group == group })
	leave := include && len(sources) == 0
	if i < 0 && leave {
		return ErrNotMember
	}
	if err := s.m.cfg.Groups.Listen(now, s.id, iface, group, include, sources); err != nil {
		return err
	}
	if i < 0 {
		i = len(s.members)
		s.members = append(s.members, membership{iface: iface, group: group})
	}
	if s.members[i].include, s.members[i].sources = include, slices.Clone(sources); leave {
		s.members = slices.Delete(s.members, i, i+1)
	}
	s.updateGroup(group)
	return nil
}

// updateGroup notes in the port of s whether it is a member of a group, by any interface.
func (s *Socket) updateGroup(group wire.Addr) {
	p := s.m.ports[s.tuple.LocalPort]
	if p.leave(s, group); slices.ContainsFunc(s.members, func(x membership) bool { return x.group == group }) {
		p.join(s, group)
	}
}

// join and leave keep the members of each group. The host bounds how many a group has.
func (p *port) join(s *Socket, group wire.Addr) {
	if slices.Contains(p.groups[group], s) {
		return
	}
	if p.groups == nil {
		p.groups = map[wire.Addr][]*Socket{}
	}
	p.groups[group] = append(p.groups[group], s)
}

func (p *port) leave(s *Socket, group wire.Addr) {
	i := slices.Index(p.groups[group], s)
	if i < 0 {
		return
	}
	if p.groups[group] = slices.Delete(p.groups[group], i, i+1); len(p.groups[group]) == 0 {
		delete(p.groups, group)
	}
}

// Filter returns what Listen has set for a group: include and no sources where s is no
// member.
func (s *Socket) Filter(iface uint32, group wire.Addr) (include bool, sources []wire.Addr) {
	for _, x := range s.members {
		if x.iface == iface && x.group == group {
			return x.include, slices.Clone(x.sources)
		}
	}
	return true, nil
}

// leaveAll leaves all groups.
func (s *Socket) leaveAll(now clock.Time) {
	for _, x := range s.members {
		// The group exists, so that nothing speaks against leaving it.
		_ = s.m.cfg.Groups.Listen(now, s.id, x.iface, x.group, true, nil)
	}
	s.members = nil
}

// takesAll reports whether s takes what comes to a group of which it is no member by any interface.
func (s *Socket) takesAll(group wire.Addr) bool {
	all := s.opts.AllGroups6
	if group.Is4() {
		all = s.opts.AllGroups4
	}
	return all && !slices.ContainsFunc(s.members, func(x membership) bool { return x.group == group })
}

// isMember reports whether s accepts what comes to the group from the sender of d.
func (s *Socket) isMember(t *wire.Tuple, d *Datagram) bool {
	for _, x := range s.members {
		if x.group == t.Local && (x.iface == 0 || x.iface == d.Interface) && slices.Contains(x.sources, t.Remote) == x.include {
			return true
		}
	}
	return false
}

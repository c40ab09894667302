package shim

import (
	"bytes"
	"net"
	"slices"
	"syscall"

	"github.com/millrace/millrace/internal/programsocket"
)

// greet answers HELLO: it compares sizes, and decides whether the process may use the stack. Its value is the program's
// name and perhaps a token; the reply's is the stack's name and the token of the user.
func (c *channel) greet(q *request, r *reply) error {
	if q.arg != requestSize {
		return syscall.EPROTO
	}
	command, token, _ := bytes.Cut(q.value, []byte{0})
	u := c.admit(text(token))
	if u == nil {
		c.peer.denied.Add(1)
		return syscall.EACCES
	}
	c.user = u
	if c.supervisor = q.name == frontSeccomp; c.supervisor {
		c.owner.Seccomp = true
	}
	if c.owner.Command == "" {
		c.owner.Command = string(command)
	}
	r.value = append(append([]byte(c.s.cfg.Name), 0), c.s.tokenOf(u.uid)...)
	return nil
}

// admit returns the user whose limits count for the channel, nil if it may not use the stack. Servers change their user
// after they have started, so a token that was given to one user's process lets the others of the program in, too.
func (c *channel) admit(token string) *user {
	if u := c.s.userOfToken(token); u != nil {
		return u
	}
	if c.peer.trusted || c.s.cfg.Everyone || c.s.inGroup(c.conn) {
		return c.peer
	}
	return nil
}

// inGroup reports whether the process is in one of the groups.
func (s *Server) inGroup(conn *net.UnixConn) bool {
	if len(s.cfg.Groups) == 0 {
		return false
	}
	return slices.ContainsFunc(programsocket.Groups(conn), func(g uint32) bool { return slices.Contains(s.cfg.Groups, g) })
}

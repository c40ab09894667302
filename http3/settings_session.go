package http3

import (
	"bytes"
	"crypto/tls"
	"slices"
	"sync"
)

// settingsExtra marks the settings in a session of TLS: the prefix, then the payload of a SETTINGS frame.
const settingsExtra = "millrace h3 settings 1"

// addTo returns a copy of a session that has settings.
func (s Settings) addTo(session *tls.SessionState) *tls.SessionState {
	with := *session
	with.Extra = append(slices.Clone(session.Extra), s.appendPayload([]byte(settingsExtra)))
	return &with
}

// settingsOf returns the last settings that a session has.
func settingsOf(session *tls.SessionState) (s Settings, found bool) {
	for _, extra := range slices.Backward(session.Extra) {
		if p, ok := bytes.CutPrefix(extra, []byte(settingsExtra)); ok {
			s, err := parseSettings(p)
			return s, err == nil
		}
	}
	return s, false
}

// sessionCache is the session cache of one connection of a client. It keeps the server's settings with each session, and
// finds those of the session that the connection resumes (RFC 9114 7.2.4.2).
type sessionCache struct {
	under tls.ClientSessionCache

	mu      sync.Mutex
	resumed *Settings // of the session that was taken
	known   *Settings // of this connection
	waiting map[string]*tls.ClientSessionState
}

// maxWaiting bounds the sessions that wait for the settings.
const maxWaiting = 8

// Get implements tls.ClientSessionCache.
func (c *sessionCache) Get(key string) (*tls.ClientSessionState, bool) {
	cs, ok := c.under.Get(key)
	if !ok || cs == nil {
		return cs, ok
	}
	if _, session, err := cs.ResumptionState(); err == nil && session != nil {
		if s, found := settingsOf(session); found {
			c.mu.Lock()
			c.resumed = &s
			c.mu.Unlock()
		}
	}
	return cs, ok
}

// Put implements tls.ClientSessionCache. A session that comes before the settings is stored again with them.
func (c *sessionCache) Put(key string, cs *tls.ClientSessionState) {
	c.mu.Lock()
	known := c.known
	if cs != nil && known == nil && len(c.waiting) < maxWaiting {
		if c.waiting == nil {
			c.waiting = map[string]*tls.ClientSessionState{}
		}
		c.waiting[key] = cs
	}
	c.mu.Unlock()
	if known != nil {
		cs = withSettings(cs, *known)
	}
	c.under.Put(key, cs)
}

// learned takes the settings of the connection.
func (c *sessionCache) learned(s Settings) {
	c.mu.Lock()
	waiting := c.waiting
	c.known, c.waiting = &s, nil
	c.mu.Unlock()
	for key, cs := range waiting {
		c.under.Put(key, withSettings(cs, s))
	}
}

// remembered returns the settings of the session that was resumed, nil if none are known.
func (c *sessionCache) remembered() *Settings {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.resumed
}

// withSettings returns a session with settings, or as it is if it cannot have any.
func withSettings(cs *tls.ClientSessionState, s Settings) *tls.ClientSessionState {
	if cs == nil {
		return nil
	}
	ticket, session, err := cs.ResumptionState()
	if err != nil || session == nil {
		return cs
	}
	if with, err := tls.NewResumptionState(ticket, s.addTo(session)); err == nil {
		return with
	}
	return cs
}

// EarlySettings returns c for a server of connections with machines of o, if it permits early data: it is accepted of
// clients only that know the same settings (RFC 9114 7.2.4.2). Sessions are as c has them otherwise.
func EarlySettings(c *tls.Config, o MachineOptions) *tls.Config {
	return earlySettings(c, o.withDefaults().settings(RoleServer))
}

// earlySettings has a server refuse early data on sessions that it, or another server with its ticket keys, has issued
// under other settings: the client keeps to those (RFC 9114 7.2.4.2).
func earlySettings(c *tls.Config, own Settings) *tls.Config {
	_, _ = c.DecryptTicket(nil, tls.ConnectionState{}) // makes the keys of a config that has none, before it is copied
	out := c.Clone()
	wrap, unwrap := c.WrapSession, c.UnwrapSession
	if wrap == nil {
		wrap = c.EncryptTicket
	}
	if unwrap == nil {
		unwrap = c.DecryptTicket
	}
	out.WrapSession = func(cs tls.ConnectionState, session *tls.SessionState) ([]byte, error) {
		return wrap(cs, own.addTo(session))
	}
	out.UnwrapSession = func(ticket []byte, cs tls.ConnectionState) (*tls.SessionState, error) {
		session, err := unwrap(ticket, cs)
		if session != nil && session.EarlyData {
			s, found := settingsOf(session)
			session.EarlyData = found && s == own
		}
		return session, err
	}
	if choose := c.GetConfigForClient; choose != nil {
		out.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			chosen, err := choose(hello)
			if chosen == nil || err != nil {
				return chosen, err
			}
			return earlySettings(chosen, own), nil
		}
	}
	return out
}

package http3

import (
	"crypto/tls"
	"errors"
	"testing"

	"github.com/millrace/millrace/http3/qpack"
)

// RememberedSettings returns the settings that the connections of a transport took from the sessions that they resume.
func RememberedSettings(t *Transport) (all []Settings) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, d := range t.conns {
		if d.complete() && d.c != nil && d.c.m.remembered != nil {
			all = append(all, *d.c.m.remembered)
		}
	}
	return all
}

// A session is stored with the settings whichever comes first, and a connection that resumes it finds them.
func TestSessionsHaveSettings(t *testing.T) {
	session := func(extra ...[]byte) *tls.ClientSessionState {
		cs, err := tls.NewResumptionState([]byte("ticket"), &tls.SessionState{Extra: extra})
		if err != nil {
			t.Fatal(err)
		}
		return cs
	}
	want := Settings{TableCapacity: 1000, BlockedStreams: 3, MaxFieldSection: 5000, WebTransport: 2, sessions: true, Session: SessionLimits{Data: 7}}
	old := Settings{TableCapacity: 1}
	for what, f := range map[string]func(*sessionCache){
		"session first":  func(c *sessionCache) { c.Put("key", session([]byte("of quic-go"))); c.learned(want) },
		"settings first": func(c *sessionCache) { c.learned(want); c.Put("key", session([]byte("of quic-go"))) },
		"settings of before": func(c *sessionCache) {
			c.learned(want)
			c.Put("key", withSettings(session([]byte("of quic-go")), old))
		},
	} {
		under := tls.NewLRUClientSessionCache(4)
		f(&sessionCache{under: under})
		next := &sessionCache{under: under}
		cs, ok := next.Get("key")
		if !ok || next.remembered() == nil || *next.remembered() != want {
			t.Errorf("%s: %v, %+v", what, ok, next.remembered())
			continue
		}
		if _, s, err := cs.ResumptionState(); err != nil || string(s.Extra[0]) != "of quic-go" {
			t.Errorf("%s: %q, %v", what, s.Extra, err)
		}
	}
	c := &sessionCache{under: tls.NewLRUClientSessionCache(4)}
	c.Put("none", session())
	if _, ok := c.Get("none"); !ok || c.remembered() != nil {
		t.Error("settings of a session that has none")
	}
	c.Put("none", nil)
	if _, ok := c.Get("none"); ok {
		t.Error("a session that was removed")
	}
	for i := range 100 {
		c.Put(string(rune('a'+i)), session())
	}
	if len(c.waiting) > maxWaiting {
		t.Errorf("%d sessions wait", len(c.waiting))
	}
	if _, found := settingsOf(&tls.SessionState{Extra: [][]byte{[]byte(settingsExtra + "\x01")}}); found {
		t.Error("settings that are cut")
	}
}

// A client uses remembered settings at once, and ends the connection if the new ones permit less.
func TestRememberedSettings(t *testing.T) {
	remembered := Settings{TableCapacity: 4096, BlockedStreams: 16, MaxFieldSection: 1000, ExtendedConnect: true, Datagrams: true, WebTransport: 2, sessions: true, Session: SessionLimits{1, 2, 3}}
	change := func(f func(*Settings)) Settings {
		s := remembered
		f(&s)
		return s
	}
	for what, c := range map[string]struct {
		s    Settings
		code ErrorCode
	}{
		"the same": {remembered, 0},
		"more": {change(func(s *Settings) {
			s.BlockedStreams, s.MaxFieldSection, s.WebTransport, s.Session.Data = 20, 2000, 3, 9
		}), 0},
		"no limit":          {change(func(s *Settings) { s.MaxFieldSection = 0 }), 0},
		"another table":     {change(func(s *Settings) { s.TableCapacity = 8192 }), QPACKDecoderStreamError},
		"no table":          {change(func(s *Settings) { s.TableCapacity = 0 }), QPACKDecoderStreamError},
		"fewer blocked":     {change(func(s *Settings) { s.BlockedStreams = 15 }), SettingsError},
		"smaller sections":  {change(func(s *Settings) { s.MaxFieldSection = 999 }), SettingsError},
		"no CONNECT":        {change(func(s *Settings) { s.ExtendedConnect = false }), SettingsError},
		"no datagrams":      {change(func(s *Settings) { s.Datagrams = false }), SettingsError},
		"fewer sessions":    {change(func(s *Settings) { s.WebTransport = 1 }), SettingsError},
		"an older draft":    {change(func(s *Settings) { s.sessions = false }), SettingsError},
		"less of a session": {change(func(s *Settings) { s.Session.UniStreams = 1 }), SettingsError},
	} {
		m := NewMachine(RoleClient, MachineOptions{})
		m.Remember(remembered)
		if s, known := m.Peer(); known || s != remembered {
			t.Errorf("%s: %+v, known %v", what, s, known)
		}
		fields := []qpack.Field{{Name: ":method", Value: "GET"}, {Name: "x-name", Value: "a value that is sent twice"}}
		shortest := 1000
		for i := range uint64(5) {
			shortest = min(shortest, len(m.AppendHeaders(nil, 4*i, fields)))
		}
		if n := len(m.AppendEncoder(nil)); n < len(fields[1].Value)/2 || shortest > 10 {
			t.Errorf("%s: the dynamic table is not used: %d bytes, and %d of the encoder stream", what, shortest, n)
		}
		s, _ := m.Open(3)
		_, _, err := m.Input(s, c.s.append([]byte{streamControl}), false)
		var ce *ConnError
		if c.code == 0 && err != nil || c.code != 0 && (!errors.As(err, &ce) || ce.Code != c.code) {
			t.Errorf("%s: %v, want %v", what, err, c.code)
		}
	}
	server := NewMachine(RoleServer, MachineOptions{})
	if server.Remember(remembered); server.remembered != nil {
		t.Error("a server remembers")
	}
}

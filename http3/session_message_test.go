package http3

import (
	"bytes"
	"testing"
	"unicode/utf8"
)

// FuzzSessionMessages has values of capsules parsed: what is accepted is within its bounds, and written as it came.
func FuzzSessionMessages(f *testing.F) {
	f.Add([]byte{0, 0, 0, 7, 'b', 'y', 'e'}, uint64(firstSessionCode))
	f.Add([]byte{0x80, 0, 0, 1}, uint64(lastSessionCode))
	f.Add([]byte{0, 0, 0, 0, 0xff}, uint64(0x52e4a40fa8f9)) // a code that is reserved
	f.Add(bytes.Repeat([]byte("x"), 4+MaxCloseText+1), uint64(RequestCancelled))
	f.Fuzz(func(t *testing.T, value []byte, wire uint64) {
		code, text, ok := ParseCloseSession(value)
		if ok != (len(value) >= 4 && len(value) <= 4+MaxCloseText && utf8.Valid(value[4:])) {
			t.Fatalf("%q: %v", value, ok)
		}
		if ok && !bytes.Equal(AppendCloseSession(nil, code, text), AppendCapsule(nil, CapsuleCloseSession, value)) {
			t.Fatalf("%q is written as %d %q", value, code, text)
		}
		if v, ok := FlowCapsule(value); ok && v > maxVarint {
			t.Fatalf("%x: %d", value, v)
		}
		relayed := RelayedCode(wire)
		if c, ok := ApplicationCode(relayed); !ok || relayed != WireCode(c) || relayed != wire && relayed != WireCode(0) {
			t.Fatalf("%x is relayed as %x", wire, relayed)
		}
	})
}

// A session whose rule permits more than the connection's settings has that as credit at its begin, and keeps a window of open streams.
func TestSessionFlowGrows(t *testing.T) {
	own, peer := SessionLimits{Streams: 2, UniStreams: 1, Data: 10}, SessionLimits{Data: 1}
	f := NewSessionFlow(own, peer)
	f.Grow(SessionLimits{Streams: 8, UniStreams: 1, Data: 100})
	if f.granted != [2]uint64{8, 1} || f.grantedData != 100 || f.due != (flowDue{streams: [2]bool{true, false}, data: true}) {
		t.Fatalf("%+v", f)
	}
	f.AppendDue(nil)
	f.Grow(SessionLimits{Streams: 1, Data: 1})
	if f.granted != [2]uint64{8, 1} || f.due != (flowDue{}) {
		t.Errorf("less credit: %+v", f)
	}
	for range 8 {
		if !f.Accept(Bidirectional) {
			t.Fatal("refused")
		}
	}
	for range 4 {
		f.Ended(Bidirectional)
	}
	if f.granted[Bidirectional] != 8 {
		t.Errorf("%d streams for 4 that have ended: %+v", f.granted[Bidirectional], f)
	}
	if f.Ended(Bidirectional); f.granted[Bidirectional] != 13 || !f.due.streams[Bidirectional] {
		t.Errorf("%+v", f)
	}
	off := NewSessionFlow(own, SessionLimits{})
	if off.Grow(SessionLimits{Streams: 9}); off.due != (flowDue{}) {
		t.Errorf("without flow control: %+v", off)
	}
}

// A client asks by the name of its server's draft, and one connection has as many sessions as both ends and their flow control permit.
func TestSessionsOfMachines(t *testing.T) {
	limits := SessionLimits{Streams: 1}
	for _, c := range []struct {
		role Role
		own  MachineOptions
		peer Settings
		want uint64
		name string
	}{
		{RoleServer, MachineOptions{WebTransport: 4}, Settings{WebTransport: 1, sessions: true, Session: limits}, 4, "webtransport-h3"},
		{RoleServer, MachineOptions{WebTransport: 4}, Settings{WebTransport: 1, sessions: true}, 1, "webtransport-h3"},
		{RoleServer, MachineOptions{WebTransport: 4}, Settings{}, 4, "webtransport"},
		{RoleClient, MachineOptions{WebTransport: 4}, Settings{WebTransport: 2}, 2, "webtransport"},
		{RoleClient, MachineOptions{WebTransport: 1}, Settings{}, 0, "webtransport"},
	} {
		m := NewMachine(c.role, c.own)
		m.peer = c.peer
		if m.MaxSessions() != c.want || m.SessionProtocol() != c.name || m.Sessions() != c.own.WebTransport {
			t.Errorf("%+v: %d, %s", c, m.MaxSessions(), m.SessionProtocol())
		}
	}
}

package http3

import (
	"encoding/binary"
	"slices"
	"unicode/utf8"
)

// sessionProtocols are the names of the protocol in extended CONNECT: since draft 15, and before.
var sessionProtocols = []string{"webtransport-h3", "webtransport"}

// IsSessionProtocol reports whether a value of :protocol asks for a session of WebTransport.
func IsSessionProtocol(protocol string) bool { return slices.Contains(sessionProtocols, protocol) }

// SessionProtocol returns the value of :protocol that the peer of a client expects, by its settings.
func (m *Machine) SessionProtocol() string {
	if m.peer.sessions {
		return sessionProtocols[0]
	}
	return sessionProtocols[1]
}

// Sessions returns the number of sessions that this end has in its settings; 0 is none.
func (m *Machine) Sessions() uint64 { return m.own.WebTransport }

// MaxSessions returns how many sessions the connection may have. Without flow control a session may not share it
// with others (draft 5.1), which drafts before 14 did not demand.
func (m *Machine) MaxSessions() uint64 {
	most := m.own.WebTransport
	if m.role == RoleClient {
		most = min(most, m.peer.WebTransport)
	}
	if m.own.Session.declared() && m.peer.sessions && !m.peer.Session.declared() {
		return min(most, 1)
	}
	return most
}

// Flow returns the flow control of a session of the connection, at the session's begin. The peer's settings must have arrived.
func (m *Machine) Flow() SessionFlow { return NewSessionFlow(m.own.Session, m.peer.Session) }

// MaxCloseText bounds the text with which a session is closed, in bytes (draft 6).
const MaxCloseText = 1024

// AppendCloseSession appends the capsule that closes a session. The text must be valid UTF-8 of at most MaxCloseText bytes.
func AppendCloseSession(dst []byte, code uint32, text string) []byte {
	return AppendCapsule(dst, CapsuleCloseSession, append(binary.BigEndian.AppendUint32(nil, code), text...))
}

// ParseCloseSession parses the value of that capsule. ok is false for one that is malformed.
func ParseCloseSession(value []byte) (code uint32, text string, ok bool) {
	if len(value) < 4 || len(value) > 4+MaxCloseText || !utf8.Valid(value[4:]) {
		return 0, "", false
	}
	return binary.BigEndian.Uint32(value), string(value[4:]), true
}

// RelayedCode returns the code with which an intermediary resets or stops a stream of a session, whose peer has sent wire. Codes of
// applications pass as they are. Others are about the connection that they come from, so that the application gets 0.
func RelayedCode(wire uint64) uint64 {
	if _, ok := ApplicationCode(wire); ok {
		return wire
	}
	return WireCode(0)
}

// FlowCapsule parses the value of a capsule of flow control. ok is false for one that is malformed.
func FlowCapsule(value []byte) (v uint64, ok bool) {
	v, n := varint(value)
	return v, n > 0 && n == len(value)
}

package http3

// SessionLimits bound what a peer may do in a session of WebTransport before it gets more credit: the streams
// of each kind that it opens, and the bytes of all of them.
type SessionLimits struct {
	Streams, UniStreams, Data uint64
}

// declared reports whether an end that sends these in its settings wants flow control (draft 5.1).
func (l SessionLimits) declared() bool { return l.Streams > 0 || l.UniStreams > 0 || l.Data > 0 }

// Defaults of SessionLimits, where several sessions may share a connection.
const (
	DefaultSessionStreams = 100
	DefaultSessionData    = 4 << 20
)

// maxSessionStreams is the largest number of streams that a capsule may permit (draft 5.6.2).
const maxSessionStreams = 1 << 60

// Kinds of streams of a session, as indices.
const (
	Bidirectional = iota
	Unidirectional
)

// SessionFlow is the flow control of one end of a session (draft-ietf-webtrans-http3 5.3 to 5.6). All numbers count from the
// begin of the session, as the limits do. It has no lock. The zero value permits everything: an end without flow control.
//
// Data counts when the application reads it: what waits in streams is bounded by the flow control of QUIC, and
// a peer that exceeds the limit is found out when the data is read.
type SessionFlow struct {
	enabled bool

	// Sending: what was used, and the peer's limit.
	opened, mayOpen [2]uint64
	sent, maySend   uint64

	// Receiving: what came, the limit that the peer has, and how far ahead of what came it should be.
	came, ended, granted  [2]uint64
	received, grantedData uint64
	streamWindow          [2]uint64
	dataWindow            uint64
	writtenOff            uint64 // bytes that the peer has sent and that are taken as lost
	reset                 bool   // a stream was reset since the last grant: its rest never comes
	due                   flowDue
	blockedStreams        [2]uint64 // the limit that was last reported as an obstacle, plus 1
	blockedData           uint64
	peerBlocked           uint64 // the limit at which the peer had no credit, plus 1
}

// flowDue holds the capsules that are to be sent.
type flowDue struct {
	streams, streamsBlocked [2]bool
	data, dataBlocked       bool
}

// NewSessionFlow returns the state at the begin, by the settings of both ends: own are those of this end, and how far ahead of what has
// come the peer's credit is kept. Grow may change the latter.
func NewSessionFlow(own, peer SessionLimits) SessionFlow {
	f := SessionFlow{enabled: own.declared() && peer.declared()}
	f.mayOpen, f.maySend = [2]uint64{peer.Streams, peer.UniStreams}, peer.Data
	f.granted, f.grantedData = [2]uint64{own.Streams, own.UniStreams}, own.Data
	f.streamWindow, f.dataWindow = f.granted, own.Data
	return f
}

// Open takes credit for a stream. Without credit it reports false, and the peer is to learn of that.
func (f *SessionFlow) Open(kind int) bool {
	if !f.enabled {
		return true
	}
	if f.opened[kind] >= f.mayOpen[kind] {
		if f.blockedStreams[kind] != f.mayOpen[kind]+1 { // once for each limit
			f.blockedStreams[kind], f.due.streamsBlocked[kind] = f.mayOpen[kind]+1, true
		}
		return false
	}
	f.opened[kind]++
	return true
}

// Reserve takes credit for at most n bytes and returns for how many there was some.
func (f *SessionFlow) Reserve(n int) int {
	if !f.enabled {
		return n
	}
	k := min(uint64(n), f.maySend-f.sent)
	if f.sent += k; k == 0 && n > 0 && f.blockedData != f.maySend+1 {
		f.blockedData, f.due.dataBlocked = f.maySend+1, true
	}
	return int(k)
}

// Close returns the credit for a stream that could not be opened after all.
func (f *SessionFlow) Close(kind int) {
	if f.enabled {
		f.opened[kind]--
	}
}

// Accept counts a stream that the peer has opened. It reports false if that exceeds the limit.
func (f *SessionFlow) Accept(kind int) bool {
	if !f.enabled {
		return true
	}
	f.came[kind]++
	return f.came[kind] <= f.granted[kind]
}

// Taken grants another stream for one that the application has taken, half a window at a time.
func (f *SessionFlow) Taken(kind int) { f.grantStreams(kind, f.came[kind]) }

// Ended grants another stream for one that has ended, in place of Taken: no more than a window of streams is open at a time.
func (f *SessionFlow) Ended(kind int) {
	f.ended[kind]++
	f.grantStreams(kind, f.ended[kind])
}

func (f *SessionFlow) grantStreams(kind int, from uint64) {
	if to := from + f.streamWindow[kind]; f.enabled && to > f.granted[kind]+f.streamWindow[kind]/2 && to <= maxSessionStreams {
		f.granted[kind], f.due.streams[kind] = to, true
	}
}

// Grow has the peer get credit for a session that may have more than the settings of the connection permit at the begin of each. Limits that
// are smaller than those change nothing: credit cannot be taken back.
func (f *SessionFlow) Grow(to SessionLimits) {
	if !f.enabled {
		return
	}
	f.streamWindow = [2]uint64{max(f.streamWindow[Bidirectional], to.Streams), max(f.streamWindow[Unidirectional], to.UniStreams)}
	f.dataWindow = max(f.dataWindow, to.Data)
	f.grantStreams(Bidirectional, f.ended[Bidirectional])
	f.grantStreams(Unidirectional, f.ended[Unidirectional])
	f.grantData()
}

// Receive counts bytes that the application has read, and grants others. It reports false if they exceed the limit.
func (f *SessionFlow) Receive(n int) bool {
	if !f.enabled {
		return true
	}
	if f.received += uint64(n); f.received > f.grantedData {
		return false
	}
	f.grantData()
	return true
}

func (f *SessionFlow) grantData() {
	if to := f.received + f.writtenOff + f.dataWindow; to > f.grantedData+f.dataWindow/2 && to <= maxVarint {
		f.grantedData, f.due.data, f.reset = to, true, false
	}
}

// WasReset takes notice of a stream that was reset: the peer has used credit for bytes that will not be read, and
// QUIC does not tell how many.
func (f *SessionFlow) WasReset() {
	f.reset = true
	f.writeOff()
}

// writeOff grants new credit to a peer that has used all, of which resets have eaten a part: otherwise the session
// would stall. Some of what is taken as lost may still be on its way, so the peer may get a window too much.
func (f *SessionFlow) writeOff() {
	if f.enabled && f.reset && f.peerBlocked == f.grantedData+1 {
		f.writtenOff = f.grantedData - f.received
		f.grantData()
	}
}

// Capsule handles a capsule with a number. It reports false if the session must end.
func (f *SessionFlow) Capsule(kind, v uint64) bool {
	if !f.enabled {
		return true // draft 5.1: to be ignored
	}
	switch kind {
	case capsuleMaxStreamsBidi, capsuleMaxStreamsUni:
		limit := &f.mayOpen[kind-capsuleMaxStreamsBidi]
		if v < *limit || v > maxSessionStreams {
			return false
		}
		*limit = v
	case capsuleMaxData:
		if v < f.maySend {
			return false
		}
		f.maySend = v
	case capsuleStreamsBlockedBidi, capsuleStreamsBlockedUni:
		return v <= maxSessionStreams
	case capsuleDataBlocked:
		f.peerBlocked = v + 1
		f.writeOff()
	case capsuleMaxStreamData, capsuleStreamDataBlocked:
		return false // draft 5.4: QUIC has limits of streams
	}
	return true
}

// Types of capsules for flow control (draft 5.6).
const (
	capsuleMaxData            uint64 = 0x190b4d3d
	capsuleMaxStreamData      uint64 = 0x190b4d3e
	capsuleMaxStreamsBidi     uint64 = 0x190b4d3f
	capsuleMaxStreamsUni      uint64 = 0x190b4d40
	capsuleDataBlocked        uint64 = 0x190b4d41
	capsuleStreamDataBlocked  uint64 = 0x190b4d42
	capsuleStreamsBlockedBidi uint64 = 0x190b4d43
	capsuleStreamsBlockedUni  uint64 = 0x190b4d44
)

// IsFlowCapsule reports whether a capsule is of flow control. An intermediary does not pass them on (draft 5.5).
func IsFlowCapsule(kind uint64) bool {
	return kind >= capsuleMaxData && kind <= capsuleStreamsBlockedUni
}

// AppendDue appends the capsules that are due.
func (f *SessionFlow) AppendDue(dst []byte) []byte {
	put := func(due bool, kind, v uint64) {
		if due {
			dst = AppendCapsule(dst, kind, appendVarint(nil, v))
		}
	}
	for kind := range 2 {
		put(f.due.streams[kind], capsuleMaxStreamsBidi+uint64(kind), f.granted[kind])
		put(f.due.streamsBlocked[kind], capsuleStreamsBlockedBidi+uint64(kind), f.mayOpen[kind])
	}
	put(f.due.data, capsuleMaxData, f.grantedData)
	put(f.due.dataBlocked, capsuleDataBlocked, f.maySend)
	f.due = flowDue{}
	return dst
}

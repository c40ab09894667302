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

// Kinds of streams, as indices.
const (
	bidirectional = iota
	unidirectional
)

// flow is the flow control of one end of a session (draft-ietf-webtrans-http3 5.3 to 5.6). All numbers count from the
// begin of the session, as the limits do. It has no lock.
//
// Data counts when the application reads it: what waits in streams is bounded by the flow control of QUIC, and
// a peer that exceeds the limit is found out when the data is read.
type flow struct {
	enabled bool

	// Sending: what was used, and the peer's limit.
	opened, mayOpen [2]uint64
	sent, maySend   uint64

	// Receiving: what came, the limit that the peer has, and how far ahead of what came it should be.
	came, granted         [2]uint64
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

// newFlow returns the state at the begin, by the settings of both ends.
func newFlow(own, peer SessionLimits) flow {
	f := flow{enabled: own.declared() && peer.declared()}
	f.mayOpen, f.maySend = [2]uint64{peer.Streams, peer.UniStreams}, peer.Data
	f.granted, f.grantedData = [2]uint64{own.Streams, own.UniStreams}, own.Data
	f.streamWindow, f.dataWindow = f.granted, own.Data
	return f
}

// open takes credit for a stream. Without credit it reports false, and the peer is to learn of that.
func (f *flow) open(kind int) bool {
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

// reserve takes credit for at most n bytes and returns for how many there was some.
func (f *flow) reserve(n int) int {
	if !f.enabled {
		return n
	}
	k := min(uint64(n), f.maySend-f.sent)
	if f.sent += k; k == 0 && n > 0 && f.blockedData != f.maySend+1 {
		f.blockedData, f.due.dataBlocked = f.maySend+1, true
	}
	return int(k)
}

// accept counts a stream that the peer has opened. It reports false if that exceeds the limit.
func (f *flow) accept(kind int) bool {
	if !f.enabled {
		return true
	}
	f.came[kind]++
	return f.came[kind] <= f.granted[kind]
}

// taken grants another stream for one that the application has taken, half a window at a time.
func (f *flow) taken(kind int) {
	if to := f.came[kind] + f.streamWindow[kind]; f.enabled && to-f.granted[kind] > f.streamWindow[kind]/2 && to <= maxSessionStreams {
		f.granted[kind], f.due.streams[kind] = to, true
	}
}

// receive counts bytes that the application has read, and grants others. It reports false if they exceed the limit.
func (f *flow) receive(n int) bool {
	if !f.enabled {
		return true
	}
	if f.received += uint64(n); f.received > f.grantedData {
		return false
	}
	f.grantData()
	return true
}

func (f *flow) grantData() {
	if to := f.received + f.writtenOff + f.dataWindow; to-f.grantedData > f.dataWindow/2 && to <= maxVarint {
		f.grantedData, f.due.data, f.reset = to, true, false
	}
}

// wasReset takes notice of a stream that was reset: the peer has used credit for bytes that will not be read, and
// QUIC does not tell how many.
func (f *flow) wasReset() {
	f.reset = true
	f.writeOff()
}

// writeOff grants new credit to a peer that has used all, of which resets have eaten a part: otherwise the session
// would stall. Some of what is taken as lost may still be on its way, so the peer may get a window too much.
func (f *flow) writeOff() {
	if f.enabled && f.reset && f.peerBlocked == f.grantedData+1 {
		f.writtenOff = f.grantedData - f.received
		f.grantData()
	}
}

// capsule handles a capsule with a number. It reports false if the session must end.
func (f *flow) capsule(kind, v uint64) bool {
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

// isFlowCapsule reports whether a capsule is of flow control.
func isFlowCapsule(kind uint64) bool {
	return kind >= capsuleMaxData && kind <= capsuleStreamsBlockedUni
}

// appendDue appends the capsules that are due.
func (f *flow) appendDue(dst []byte) []byte {
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

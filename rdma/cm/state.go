package cm

// State is the state of a connection (12.9.7, figures 135 and 136).
type State uint8

// The states.
const (
	Idle         State = iota // not begun, or ended: no message belongs to it
	ReqSent                   // active: REQ is repeated until an answer
	MraReceived               // active: the peer has REQ and its program decides
	RepReceived               // active: the own program leads its queue pair to ReadyToSend
	ReqReceived               // passive: the own program decides
	RepSent                   // passive: REP is repeated until RTU
	MraOfRep                  // passive: the peer has REP and its program is busy
	Established               // both may send
	DreqSent                  // DREQ is repeated until DREP
	TimeWait                  // the IDs and the queue pair number are not used again yet
	SidrSent                  // active, of datagrams: SIDR_REQ is repeated until an answer
	SidrReceived              // passive, of datagrams: the own program decides
	SidrReplied               // passive, of datagrams: SIDR_REP answers duplicates for a while
	states
)

// String returns the state's name.
func (s State) String() string {
	return [...]string{
		"idle", "REQ sent", "MRA(REQ) received", "REP received", "REQ received", "REP sent", "MRA(REP) received", "established",
		"DREQ sent", "time wait", "SIDR_REQ sent", "SIDR_REQ received", "SIDR_REP sent", "unknown",
	}[min(s, states)]
}

// event is an input of the state machine: a call of the program, a message, or a time-out.
type event uint8

const (
	callConnect event = iota
	callAccept
	callReady
	callReject
	callDisconnect
	callCommunicated // a packet of the peer has come to the queue pair (12.9.7.2: it stands for RTU)
	gotREQ           // the first one: a new connection
	gotMRAofREQ
	gotREP
	gotMRAofREP
	gotRTU
	gotREJ
	gotDREQ
	gotDREP
	expired // the retries are used up, or the wait of TimeWait is over
	stale   // the peer has begun another connection with the same queue pair
	callResolve
	callAnswer
	gotSIDRREQ // the first one
	gotSIDRREP
	events
)

// not is an event that a state does not take.
const not = states

// transitions holds the next state by state and event (figures 135 and 136). Established takes no RTU and no REP: those are duplicates,
// which input answers.
var transitions = [states][events]State{
	Idle:        row(callConnect, ReqSent, gotREQ, ReqReceived, callResolve, SidrSent, gotSIDRREQ, SidrReceived),
	ReqSent:     row(callReject, Idle, gotMRAofREQ, MraReceived, gotREP, RepReceived, gotREJ, Idle, expired, Idle),
	MraReceived: row(callReject, Idle, gotMRAofREQ, MraReceived, gotREP, RepReceived, gotREJ, Idle, expired, Idle),
	RepReceived: row(callReady, Established, callReject, Idle, gotREJ, Idle, gotDREQ, TimeWait, expired, Idle),
	ReqReceived: row(callAccept, RepSent, callReject, Idle, gotREJ, Idle, expired, Idle, stale, Idle),
	RepSent: row(callCommunicated, Established, callReject, Idle, gotMRAofREP, MraOfRep, gotRTU, Established, gotREJ, Idle, gotDREQ, TimeWait, expired, Idle,
		callDisconnect, DreqSent, stale, Idle),
	MraOfRep: row(callCommunicated, Established, callReject, Idle, gotMRAofREP, MraOfRep, gotRTU, Established, gotREJ, Idle, gotDREQ, TimeWait, expired, Idle,
		callDisconnect, DreqSent, stale, Idle),
	Established: row(callDisconnect, DreqSent, gotDREQ, TimeWait, gotREJ, TimeWait, stale, DreqSent),
	DreqSent:    row(gotDREQ, TimeWait, gotDREP, TimeWait, gotREJ, TimeWait, expired, TimeWait),
	TimeWait:    row(expired, Idle),

	SidrSent:     row(callReject, Idle, gotSIDRREP, Idle, expired, Idle), // 12.11, figure 141
	SidrReceived: row(callAnswer, SidrReplied, expired, Idle),
	SidrReplied:  row(expired, Idle),
}

// row returns a row of the table from pairs of event and state.
func row(pairs ...any) (r [events]State) {
	for i := range r {
		r[i] = not
	}
	for i := 0; i < len(pairs); i += 2 {
		r[pairs[i].(event)] = pairs[i+1].(State)
	}
	return r
}

// halfOpen reports whether a connection that the peer began counts against the limits.
func (s State) halfOpen() bool {
	return s == ReqReceived || s == RepSent || s == MraOfRep || s == SidrReceived
}

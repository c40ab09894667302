package bgp

// State is the state of a peer's session (RFC 4271 8.2.2). There is no Active: the speaker dials, and does not listen.
type State uint8

// The states.
const (
	Idle        State = iota // waits before it dials
	Connect                  // dials
	OpenSent                 // has sent its OPEN
	OpenConfirm              // has the peer's OPEN, and waits for its KEEPALIVE
	Established              // exchanges routes
	Stopped                  // for good: the peer is gone from the configuration, or the gateway ends or is replaced
	states
)

// String returns the name of the state as RFC 4271 has it.
func (s State) String() string {
	return [...]string{"Idle", "Connect", "OpenSent", "OpenConfirm", "Established", "Stopped"}[s]
}

// event moves a session to another state.
type event uint8

const (
	eventDial      event = iota // the time to dial has come
	eventConnected              // TCP is connected, and the OPEN is on its way
	eventOpen                   // an OPEN that is acceptable
	eventKeepalive              // a KEEPALIVE
	eventUpdate                 // an UPDATE or a ROUTE-REFRESH
	eventAdopt                  // the process before this one had the session
	eventEnd                    // the session ends, whatever for
	eventStop                   // it ends, and there is to be no other
	events
)

// none is where the table has no transition: the event is an error of the peer.
const none = states

// transitions are the states that follow, by state and event.
var transitions = [states][events]State{
	//           dial     connected open         keepalive    update       adopt        end   stop
	Idle:        {Connect, none, none, none, none, Established, Idle, Stopped},
	Connect:     {none, OpenSent, none, none, none, none, Idle, Stopped},
	OpenSent:    {none, none, OpenConfirm, none, none, none, Idle, Stopped},
	OpenConfirm: {none, none, none, Established, none, none, Idle, Stopped},
	Established: {none, none, none, Established, Established, none, Idle, Stopped},
	Stopped:     {none, none, none, none, none, none, Stopped, Stopped},
}

// next returns the state that follows, false where the event may not come in this state.
func (s State) next(e event) (State, bool) {
	t := transitions[s][e]
	return t, t != none
}

// unexpected returns the error for a message that the state does not permit (RFC 6608 3).
func (s State) unexpected() *Notification {
	n := &Notification{Code: codeState}
	switch s {
	case OpenSent:
		n.Subcode = 1
	case OpenConfirm:
		n.Subcode = 2
	case Established:
		n.Subcode = 3
	}
	return n
}

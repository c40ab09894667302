package role

import "fmt"

// State is the state of a gateway.
type State uint8

// The states. Only Active answers for addresses.
const (
	Joining  State = iota // since the start, or after a time without running: whether the peer is active is not known
	Standby               // the peer is active, or about to be
	Probing               // about to be active: asks the peer and the hosts of the links whether another is
	Active                // answers for the addresses
	Yielding              // has stopped answering, and leaves the addresses to the peer
	states
)

var stateNames = [states]string{"joining", "standby", "probing", "active", "yielding"}

// String names the state as status and log show it.
func (s State) String() string {
	if s < states {
		return stateNames[s]
	}
	return fmt.Sprintf("state %d", uint8(s))
}

// MarshalText implements encoding.TextMarshaler.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *State) UnmarshalText(b []byte) error {
	for i, name := range stateNames {
		if name == string(b) {
			*s = State(i)
			return nil
		}
	}
	return fmt.Errorf("role: %q is no state", b)
}

// Event changes a state.
type Event uint8

// The events.
const (
	PeerActive Event = iota // the peer is active or probing, and this gateway gives way to it
	PeerYields              // the peer has stopped answering, and leaves the addresses to this gateway
	PeerSilent              // the peer has not been heard for a lease
	PeerGone                // no process has the peer's port, or the peer has said that it ends
	Elected                 // neither is active, and this gateway ranks first
	Unopposed               // probing is over: no host answers, and the peer knows
	Ordered                 // an operator wants the peer to be active
	Disabled                // a device has no link here, and all have one at the peer
	Claimed                 // the peer asks for the addresses: it has a higher priority, or an operator wants it
	Leaving                 // the process ends
	Stalled                 // the process did not run for so long that the peer may be active
	Declined                // the peer has not taken the addresses for a lease
	CutOff                  // no watched address answers, and one answers the peer
	Isolated                // no device has a link, or no watched address answers, and the peer is not heard
	Outranked               // another gateway, which is not heard, answers on a link, and ranks first
	events
	Started = events // no event: the beginning
)

// eventTexts complete "because".
var eventTexts = [events]string{
	PeerActive: "the peer is active", PeerYields: "the peer hands over", PeerSilent: "the peer was not heard for a lease",
	PeerGone: "the peer's process has ended", Elected: "neither was active, and this gateway ranks first",
	Unopposed: "no host answers for the addresses", Ordered: "an operator asked for it", Disabled: "a device has no link",
	Claimed: "the peer asks for the addresses", Leaving: "the gateway stops",
	Stalled: "the process did not run for too long", Declined: "the peer has not taken the addresses",
	CutOff: "no watched address answers, and one answers the peer", Isolated: "this gateway reaches no one",
	Outranked: "another gateway answers on a link, and ranks first",
}

// String returns the cause in words.
func (e Event) String() string {
	switch {
	case e < events:
		return eventTexts[e]
	case e == Started:
		return "the gateway has started"
	}
	return fmt.Sprintf("event %d", uint8(e))
}

// none marks events that mean nothing in a state: they leave it.
const none = states

// transitions has the state that follows. A gateway becomes active in two ways: the peer has said that it does not answer any
// more, or probing has found that no one does.
var transitions = [states][events]State{
	//        PeerActive PeerYields PeerSilent PeerGone Elected  Unopposed Ordered   Disabled  Claimed   Leaving   Stalled  Declined  CutOff    Isolated  Outranked
	Joining:  {Standby, none, Probing, Probing, Probing, none, none, none, none, none, Joining, none, none, none, none},
	Standby:  {none, Active, Probing, Probing, Probing, none, none, none, none, none, Joining, none, none, none, none},
	Probing:  {Standby, Active, none, none, none, Active, none, none, none, none, Joining, none, none, none, none},
	Active:   {Standby, none, none, none, none, none, Yielding, Yielding, Yielding, Yielding, Probing, none, Yielding, Probing, Probing},
	Yielding: {Standby, none, none, Probing, none, none, none, none, none, none, Joining, Probing, none, none, none},
}

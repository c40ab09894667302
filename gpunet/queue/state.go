package queue

// State is that of a connection, as the host or the device sees it.
type State uint8

// The states. A direction that ended cannot be opened again.
const (
	Free     State = iota // no connection has the slot
	Open                  // both directions carry bytes
	PeerShut              // the peer has sent its FIN
	Shut                  // the block has shut its direction down
	Done                  // both directions ended
	Failed                // reset, or ended for a violation: the block has yet to close it
	states
	Invalid State = 255 // no transition
)

// Change is an event that changes the state of a connection.
type Change uint8

// The changes.
const (
	Accept   Change = iota // host: a connection takes the slot
	Finish                 // host: the peer's FIN, after its bytes
	Reset                  // host: the connection failed
	Shutdown               // block: no bytes follow (gshutdown)
	Close                  // block: it is done with the connection (gclose)
	changes
)

// transitions is the same table as gpunet_transitions of slab.h. The two ends see the changes in different orders: FIN and shutdown
// commute, and what a block sends before it learns of a reset is dropped.
var transitions = [states][changes]State{
	//         Accept   Finish    Reset    Shutdown Close
	Free:     {Open, Invalid, Invalid, Invalid, Invalid},
	Open:     {Invalid, PeerShut, Failed, Shut, Free},
	PeerShut: {Invalid, Invalid, Failed, Done, Free},
	Shut:     {Invalid, Done, Failed, Invalid, Free},
	Done:     {Invalid, Invalid, Failed, Invalid, Free},
	Failed:   {Invalid, Invalid, Failed, Failed, Free},
}

// Next returns the state after a change, Invalid where it is not allowed.
func (s State) Next(c Change) State {
	if s >= states || c >= changes {
		return Invalid
	}
	return transitions[s][c]
}

// sends reports whether the block may send in state s.
func (s State) sends() bool { return s == Open || s == PeerShut }

// receives reports whether the peer's bytes may still arrive in state s.
func (s State) receives() bool { return s == Open || s == Shut }

package proxy

// phase is the state of an exchange. newExchange sets the first one, and only on changes it.
type phase uint8

const (
	unused     phase = iota // not in use
	received                // the header of the request is there: an attempt has not begun
	held                    // a part of the rule's Guard lets it wait
	connecting              // an attempt waits for a connection
	queued                  // as connecting, but the backend has as many connections as it may
	sending                 // the header of the request was sent, and content follows
	awaiting                // the request was sent: the response follows
	responding              // the header of the response was sent, and content follows
	draining                // the response has arrived: the client has to take the rest
	answering               // the response is one of the gateway
	tunnel                  // both sides speak another protocol
	done                    // both sides were released
	phases
)

// String returns a name for logs.
func (p phase) String() string {
	return [...]string{
		"unused", "received", "held", "connecting", "queued", "sending", "awaiting", "responding", "draining", "answering", "tunnel", "done",
	}[p]
}

// answered reports whether the client has got the header of a response.
func (p phase) answered() bool { return p >= responding }

// connected reports whether the backend has got the header of the request.
func (p phase) connected() bool {
	return p == sending || p == awaiting || p == responding || p == draining || p == tunnel
}

// event is an event that may change the phase of an exchange.
type event uint8

const (
	halted   event = iota // a Guard lets it wait
	admitted              // the wait is over, and it goes on
	begun                 // a backend was chosen for an attempt
	enqueued              // the backend has as many connections as it may
	dequeued              // it may have another one, or one is free
	opened                // the header of the request was sent, and content follows
	sent                  // the request was sent as a whole
	failed                // the attempt has failed, and another one follows
	answered              // the header of the response was passed on
	switched              // as answered, and both sides switch to another protocol
	complete              // the response has arrived as a whole
	refused               // the gateway answers by itself
	finished              // both directions have ended, or one side is gone
	events
)

// transitions holds the phase that follows each event. Pairs that are not here do not occur.
//
// Invariants that the rest relies on: nothing leads back from an answered phase, because a response that has begun cannot be
// replaced; received is the only phase from which an attempt begins; every phase but done has a way to done, and done has none
// out of it, so that an exchange that is free in the list of its worker handles no late event.
var transitions = [phases][events]phase{
	received: {halted: held, begun: connecting, switched: tunnel, refused: answering, finished: done},
	held:     {admitted: received, refused: answering, finished: done},
	connecting: {
		enqueued: queued, opened: sending, sent: awaiting, failed: received, refused: answering, finished: done,
	},
	queued:     {dequeued: connecting, failed: received, refused: answering, finished: done},
	sending:    {sent: awaiting, failed: received, answered: responding, refused: answering, finished: done},
	awaiting:   {failed: received, answered: responding, switched: tunnel, refused: answering, finished: done},
	responding: {complete: draining, finished: done},
	draining:   {finished: done},
	answering:  {finished: done},
	tunnel:     {finished: done},
}

// on moves the exchange to the phase that follows an event. One that does not fit changes nothing, and is counted:
// tests expect none.
func (x *exchange) on(ev event) {
	if next := transitions[x.phase][ev]; next != unused {
		x.phase = next
		return
	}
	x.w.misfits++
}

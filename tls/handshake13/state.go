package handshake13

import "fmt"

// State is the state of a Server.
type State uint8

// Values of State.
const (
	// AwaitingHello: Read is next.
	AwaitingHello State = iota
	// AwaitingOptions: Hello is there, which the options may depend on. Choose is next.
	AwaitingOptions
	// AwaitingIdentity: the choices are made. Certify is next, or Resume.
	AwaitingIdentity
	// AwaitingExchange: Exchange is to be computed. Exchanged is next.
	AwaitingExchange
	// AwaitingSignature: Signed is next.
	AwaitingSignature
	// Complete: the messages and secrets are there.
	Complete
	// Refused: crypto/tls has to answer.
	Refused
	states
)

var stateNames = [states]string{"AwaitingHello", "AwaitingOptions", "AwaitingIdentity", "AwaitingExchange", "AwaitingSignature", "Complete", "Refused"}

// String returns the name.
func (s State) String() string { return stateNames[s] }

// event is what changes a state.
type event uint8

const (
	helloRead event = iota
	chosen
	identified // by a certificate, or a session
	exchanged  // a signature is needed
	exchangedResumed
	signed
	refused
	events
)

// none is a change that does not exist.
const none = states

// transitions has the next state of each state and event.
var transitions = [states][events]State{
	AwaitingHello:     {AwaitingOptions, none, none, none, none, none, Refused},
	AwaitingOptions:   {none, AwaitingIdentity, none, none, none, none, Refused},
	AwaitingIdentity:  {none, none, AwaitingExchange, none, none, none, Refused},
	AwaitingExchange:  {none, none, none, AwaitingSignature, Complete, none, Refused},
	AwaitingSignature: {none, none, none, none, none, Complete, Refused},
	Complete:          {none, none, none, none, none, none, none},
	Refused:           {none, none, none, none, none, none, Refused},
}

// change moves the state. A call out of order is a fault of the caller.
func (s *Server) change(e event) {
	next := transitions[s.state][e]
	if next == none {
		panic(fmt.Sprintf("handshake13: event %d in state %v", e, s.state))
	}
	s.state = next
}

// Reason is why a handshake is crypto/tls's. The zero value is none: it goes on here.
type Reason uint8

// Values of Reason.
const (
	Accepted       Reason = iota
	Malformed             // the hello, or an extension that crypto/tls parses
	OtherVersion          // TLS 1.3 is not what both have
	OtherHello            // cookies, parameters of QUIC, compression, renegotiation: crypto/tls has alerts for them
	EarlyData             // is offered
	EncryptedHello        // of an inner ClientHello
	NoSuite               // in common
	OtherGroup            // another one is preferred, or none is in common
	Retry                 // the group has no key share yet: HelloRetryRequest
	BadShare              // of another length, not a key, or of low order
	NoProtocol            // in common
	NoScheme              // of the certificate's key that the client takes, or no certificate
	BadBinder             // of a session
	reasons
)

var reasonNames = [reasons]string{
	"accepted", "malformed", "other version", "other hello", "early data", "encrypted hello", "no suite", "other group", "retry",
	"bad share", "no protocol", "no scheme", "bad binder",
}

// String returns the name.
func (r Reason) String() string { return reasonNames[r] }

package cm

// Reason is the effect of a received datagram: it was taken, or it was dropped for the reason.
type Reason uint8

// The reasons.
const (
	Taken          Reason = iota
	Truncated             // shorter than a management datagram
	OtherClass            // not of communication management
	OtherVersion          // of its class
	OtherMethod           // not Send
	OtherAttribute        // a message that is not served, as LAP
	BadField              // a value that the specification does not permit
	UnknownID             // no connection has the communication IDs and comes from that address
	WrongState            // the connection does not take the message now
	Duplicate             // it was taken before; what answered it is sent again
	NoListener            // nothing listens for the service: REJ
	StaleQP               // REQ names a queue pair that is connected already: REJ, and that connection ends
	DuplicateID           // REQ names a communication ID that another connection of the peer has: REJ
	BacklogFull           // as many requests wait for the program as the listener takes
	SourceFull            // as many half-open connections from one address as are permitted
	HalfOpenFull          // as many half-open connections as are permitted
	RepliesFull           // and its answer was not sent, because too many wait: counted beside the datagram's own reason
	Reasons               // their number
)

var reasonNames = [Reasons + 1]string{
	"taken", "truncated", "class", "version", "method", "attribute", "field", "unknown_id", "state", "duplicate", "no_listener", "stale_qp",
	"duplicate_id", "backlog_full", "source_full", "half_open_full", "replies_full", "unknown",
}

// String returns the name under which the reason is counted.
func (r Reason) String() string { return reasonNames[min(r, Reasons)] }

// RejectReason is the reason in a REJ (table 109).
type RejectReason uint16

// The reasons that are sent or acted upon.
const (
	RejNoQP             RejectReason = 1
	RejNoResources      RejectReason = 3
	RejTimeout          RejectReason = 4
	RejUnsupported      RejectReason = 5
	RejInvalidID        RejectReason = 6
	RejInvalidServiceID RejectReason = 8
	RejInvalidTransport RejectReason = 9
	RejStale            RejectReason = 10
	RejInvalidMTU       RejectReason = 26
	RejConsumer         RejectReason = 28 // by the program
	RejDuplicateID      RejectReason = 30
)

var rejectNames = map[RejectReason]string{
	RejNoQP: "no queue pair available", RejNoResources: "no resources available", RejTimeout: "timeout", RejUnsupported: "unsupported request",
	RejInvalidID: "invalid communication ID", RejInvalidServiceID: "nothing listens for the service", RejInvalidTransport: "invalid transport service type",
	RejStale: "stale connection", RejInvalidMTU: "invalid path MTU", RejConsumer: "refused by the program", RejDuplicateID: "duplicate local communication ID",
}

// String describes the reason.
func (r RejectReason) String() string {
	if s := rejectNames[r]; s != "" {
		return s
	}
	return "another reason of the peer"
}

package transport

// Reason is the effect of a received packet: it was taken, or it was dropped for the reason.
type Reason uint8

// The reasons.
const (
	Taken          Reason = iota
	WrongState            // the queue pair does not receive in its state
	WrongService          // the opcode belongs to another service
	WrongPKey             // another partition
	WrongQKey             // a datagram with another queue key
	WrongSource           // not from the peer's address
	Duplicate             // has been taken before; it is acknowledged or answered again
	OutOfSequence         // ahead of what is expected: NAK
	NoReceive             // the message needs a receive and none is posted: RNR NAK
	InvalidRequest        // wrong order, length or operation: NAK
	NoAccess              // key, bounds or rights do not permit it: NAK
	LocalFailure          // the memory of a posted receive is not permitted: NAK
	TooLong               // a datagram beyond the posted buffer
	GhostAck              // acknowledges what has not been sent, or what no request waits for
	WrongResponse         // a response of another kind or length than the request's
	AnswersFull           // too many responses wait to be sent
	OtherOpcode           // a congestion notification where there is no congestion control
	Reasons               // their number
)

var reasonNames = [Reasons + 1]string{
	"taken", "state", "service", "p_key", "q_key", "source", "duplicate", "sequence", "no_receive", "invalid_request",
	"access", "local_failure", "too_long", "ghost_ack", "wrong_response", "answers_full", "opcode", "unknown",
}

// String returns the name under which the reason is counted.
func (r Reason) String() string { return reasonNames[min(r, Reasons)] }

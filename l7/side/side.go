package side

import (
	"errors"
	"time"

	"github.com/millrace/millrace/http1"
	"github.com/millrace/millrace/l7/link"
	"github.com/millrace/millrace/semantics"
)

// Stream is one side of an exchange: a request at a client's connection, or at a backend's. Its methods call nothing of the exchange
// or of its connection's owner: what follows from them comes as an event.
type Stream interface {
	// Head sends the header of a message: the request at a backend, a response or an interim response at a client. 100 (Continue)
	// is sent to a client that waits for it.
	Head(m *semantics.Message, e Ending) error
	// Write sends content, and returns how many bytes it takes. If these are not all of p, Writable follows.
	Write(p []byte) int
	// End ends the message. Trailers may be nil.
	End(trailers []semantics.Field)
	// Pause stops the input of the stream, or resumes it.
	Pause(on bool)
	// Cancel ends the stream by an error: its peer sees that the message is not complete. gone is whether nothing of it is wanted
	// any more, rather than that the gateway has failed.
	Cancel(gone bool)
	// Release ends the use of the stream. No more events of it follow.
	Release()
}

// Ending is the kind of a message's end.
type Ending uint8

const (
	EndsLater    Ending = iota // content may follow, and then End
	EndsByLength               // as EndsLater, but with the content that the header announces: no trailers follow
	EndsNow                    // no content follows
)

// Caps holds what a stream can do.
type Caps struct {
	Protocol  string    // of the request, as access logs name it
	Shared    bool      // the connection has other streams, so that it has no deadlines for one
	Datagrams Datagrams // of the stream; nil where its connection has none
	Direct    Direct    // the connection carries nothing but this stream, plainly; nil if not
}

// Datagrams are those of a stream that its connection carries beside it (RFC 9297 2.1): they may be lost, and come in any order.
type Datagrams interface {
	// TakeDatagrams has f called on the loop with the payload of each, until Release.
	TakeDatagrams(f func(p []byte))
	// SendDatagram sends one. TakeDatagrams must have been called.
	SendDatagram(p []byte) Sent
}

// Sent is the fate of a datagram.
type Sent uint8

// Values of Sent.
const (
	DatagramSent Sent = iota
	DatagramLost      // there was no room for it
	NoDatagrams       // the peer understands none
)

// Direct is a stream that is all of a connection with HTTP/1.1.
type Direct interface {
	Plain() (*link.Link, *http1.Machine)
	// Progress notes that content has arrived.
	Progress()
}

// Kind is the kind of an event.
type Kind uint8

// Events of streams.
const (
	Head      Kind = iota // the header of a message has arrived: of a request, which sets User, or of a response
	Data                  // content
	End                   // the message has ended
	Writable              // the stream takes content again
	Failed                // the stream has ended by Err
	Malformed             // the rest of a request is wrong: the answer has Status
	Late                  // the rest of a request has not come in time
)

// Events of connections.
const (
	Refused  Kind = Late + 1 + iota // input was refused N times for Reason, within a request if User has a value; Status was answered
	Stuck                           // a client took nothing of what was sent
	Settings                        // those of a backend have arrived
	Leaving                         // a backend takes no more requests; with Err those that wait for its settings have failed
	Useless                         // a backend has sent what was not asked for, or the end of an idle connection
	Closed                          // the connection has ended
)

// OfStream reports whether events of the kind belong to a stream, so that User is set. The others belong to a connection.
func (k Kind) OfStream() bool { return k <= Late }

// Event is a report of a side on a stream or a connection. It is valid during Owner.Handle.
type Event struct {
	Kind     Kind
	Ending   Ending
	Expects  bool // the client waits for 100 (Continue) before it sends the content
	Early    bool // the request may have been repeated by an attacker (RFC 8470)
	Started  bool // a part of the response had come before the stream failed
	Reason   Refusal
	Status   int
	N        uint64
	Stream   Stream
	User     *any // what the owner keeps with the stream
	Caps     Caps
	Message  *semantics.Message
	Payload  []byte
	Left     int64 // content that follows the payload, if it has to come by itself on this connection
	Trailers []semantics.Field
	Err      error
}

// Owner handles the events of a connection, one after the other. A side calls it only where the loop has called the side, and never
// within a method of a stream.
type Owner interface{ Handle(ev *Event) }

// Client is a connection of a client: Front of h1side, h2side or h3side.
type Client interface {
	// Leave makes the request in progress, or those that are under way, the last.
	Leave()
	// Drain ends the connection as soon as nothing is lost by it.
	Drain()
	// Each calls do with what the owner keeps with each stream in use.
	Each(do func(user any))
}

// Backend is a connection to a backend: Back of h1side, h2side or h3side.
type Backend interface {
	// Begin begins a request, for which the owner keeps user. ErrWait means that the settings have to come first, ErrFull that
	// there is no stream for it, and ErrUnprocessed that the connection takes no more requests.
	Begin(user any, upgrade bool) (Stream, Caps, error)
	// Limit returns how many requests there may be at a time, and whether the backend's settings have set that.
	Limit() (streams int, known bool)
	// Streams returns how many requests there are.
	Streams() int
	// Reusable reports whether the connection can carry another request.
	Reusable() bool
	// Rest makes the connection report its end after a time without requests.
	Rest(t time.Duration)
	// Close closes a connection without requests.
	Close()
}

// Errors of events. Others are of the connection.
var (
	ErrTerminated  = errors.New("the connection has ended")
	ErrIncomplete  = errors.New("the response is not complete")
	ErrProtocol    = errors.New("the peer breaks the protocol")
	ErrHeaderSize  = errors.New("the header of the response exceeds a limit")
	ErrTimeout     = errors.New("nothing has come in time")
	ErrSettings    = errors.New("the settings have not come in time")
	ErrUnsent      = errors.New("nothing of the request has left")
	ErrUnprocessed = errors.New("the request was not processed")
	ErrCanceled    = errors.New("the peer has canceled the stream")
	ErrUpgrade     = errors.New("the peer permits no extended CONNECT")
	ErrStuck       = errors.New("the peer takes nothing")
	ErrWait        = errors.New("the settings have not come yet")
	ErrFull        = errors.New("the peer permits no more streams for now")
	ErrContent     = errors.New("the content is longer than may be held")
)

package side

import (
	"errors"

	"github.com/millrace/millrace/http1"
	"github.com/millrace/millrace/http2"
)

// Refusal is the reason why a request was refused without a look at the configuration. The first are those of package http1.
type Refusal uint8

// Values of Refusal beyond http1.Reasons.
const (
	RefusedMessage  = Refusal(http1.Reasons) + iota // a message of HTTP/2 or HTTP/3 that is malformed
	RefusedProtocol                                 // an error of the connection
	RefusedFlood                                    // a limit of HTTP/2 on what costs more than it brings
	RefusedPath                                     // above the root, or read by backends as another
	Refusals                                        // how many there are
)

// String returns a name for labels.
func (r Refusal) String() string {
	if r < Refusal(http1.Reasons) {
		return http1.Reason(r).String()
	}
	return [...]string{"message", "protocol", "flood", "path"}[r-RefusedMessage]
}

// RefusalOf returns what an error of a machine is.
func RefusalOf(err error) Refusal {
	var one *http1.Error
	var two *http2.ConnError
	switch {
	case errors.As(err, &one):
		return Refusal(one.Reason)
	case errors.As(err, &two) && two.Code == http2.EnhanceYourCalm:
		return RefusedFlood
	}
	return RefusedProtocol
}

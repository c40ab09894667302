package proxy

import (
	"errors"
	"net/netip"

	"github.com/millrace/millrace/http1"
	"github.com/millrace/millrace/http2"
)

// Refusal is why a request was refused without a look at the configuration. The first are those of package http1.
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

// refusalOf returns what an error of a machine is.
func refusalOf(err error) Refusal {
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

// refuse counts a refusal of a client.
func (w *Worker) refuse(c *clientInfo, r Refusal, n uint64) {
	w.counters.refused[r].Add(n)
	if w.refused != nil && !c.local.IsValid() { // with a PROXY header the packets come from a proxy
		w.refused(c.addr.Addr(), r, int(n))
	}
}

// OnRefused has f called with the client of each request that is refused, and how many were, on the worker's goroutine. It
// is called before the worker runs. Clients behind a proxy that names them (PROXY protocol) are left out.
func (w *Worker) OnRefused(f func(client netip.Addr, r Refusal, n int)) { w.refused = f }

// refuse answers a request that no rule is asked about.
func (x *exchange) refuse(r Refusal) {
	x.w.refuse(x.front.client(), r, 1)
	x.answer(errRequest)
}

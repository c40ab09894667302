package proxy

import (
	"net/netip"

	"github.com/millrace/millrace/l7/side"
)

// refuse counts a refusal of a client.
func (w *Worker) refuse(c *clientInfo, r side.Refusal, n uint64) {
	w.counters.refused[r].Add(n)
	if w.refused != nil && !c.local.IsValid() { // with a PROXY header the packets come from a proxy
		w.refused(c.addr.Addr(), r, int(n))
	}
}

// refuseInput is refuse for input that becomes no exchange: the access log gets a line for each. status is what the client was
// answered, 0 for nothing.
func (w *Worker) refuseInput(c *clientInfo, protocol string, status int, r side.Refusal, n uint64) {
	w.refuse(c, r, n)
	for range min(n, maxRefusedLines) {
		w.recordRefused(c, protocol, status, errRequest.name, r.String())
	}
}

// maxRefusedLines bounds the lines for what one read of a connection brings.
const maxRefusedLines = 16

// handshakeFailed counts a handshake that a client began and did not complete. Connections that end before its first byte, as those
// of probes do, are none.
func (w *Worker) handshakeFailed(c *clientInfo, failure, reason string) {
	w.counters.handshakes.Add(1)
	w.recordRefused(c, "TLS", 0, failure, reason)
}

// recordRefused reports input to the access log that became no exchange and no stream.
func (w *Worker) recordRefused(c *clientInfo, protocol string, status int, failure, reason string) {
	if w.onRecord == nil {
		return
	}
	w.entry = Record{Client: c.addr, Listener: c.listener.Name, Protocol: protocol, Status: status, Error: failure, Reason: reason}
	w.onRecord(&w.entry)
}

// OnRefused has f called with the client of each request that is refused, and how many were, on the worker's goroutine. It
// is called before the worker runs. Clients behind a proxy that names them (PROXY protocol) are left out.
func (w *Worker) OnRefused(f func(client netip.Addr, r side.Refusal, n int)) { w.refused = f }

// refuse answers a request that no rule is asked about.
func (x *exchange) refuse(r side.Refusal) {
	x.w.refuse(x.client, r, 1)
	x.answer(errRequest)
}

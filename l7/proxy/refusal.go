package proxy

import (
	"errors"
	"net/netip"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/l7/side"
	"github.com/millrace/millrace/quic"
)

// refuse counts a refusal of a client, and reports its address: the defence may block one that sends much that is refused.
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

// handshakeFailed3 is handshakeFailed for HTTP/3. Each is counted. Addresses of QUIC can be forged up to the first reply, so that the
// lines of a second are bounded: a flood must not fill the log.
func (w *Worker) handshakeFailed3(l *listening, from netip.AddrPort, cause error) {
	w.Enter()
	if errors.Is(cause, errFull) { // the Admission has counted it
		w.recordDenied(l, from, "QUIC", DeniedLimit)
		return
	}
	w.counters.handshakes.Add(1)
	if !w.lines3.take(w.Now) {
		return
	}
	c := &clientInfo{at: l, addr: from}
	c.use(l.current)
	failure, reason := errTLS.name, cause.Error()
	if errors.Is(cause, quic.ErrHandshakeTimeout) || errors.Is(cause, quic.ErrIdleTimeout) {
		failure, reason = errConnectTimeout.name, "no handshake in time"
	}
	w.recordRefused(c, "QUIC", 0, failure, reason)
}

// maxLines bounds the lines of a worker in a second for handshakes of QUIC, and for connections that are refused as soon as they come.
const maxLines = 100

// lineBudget counts the lines of a second.
type lineBudget struct {
	since clock.Time
	n     int
}

// take reports whether there may be another line.
func (b *lineBudget) take(now clock.Time) bool {
	if now >= b.since.Add(time.Second) {
		b.since, b.n = now, 0
	}
	b.n++
	return b.n <= maxLines
}

// recordRefused reports input to the access log that became no exchange and no stream.
func (w *Worker) recordRefused(c *clientInfo, protocol string, status int, failure, reason string) {
	if !records(w) {
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

package proxy

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/http3"
	"github.com/millrace/millrace/l7/pool"
	"github.com/millrace/millrace/l7/side"
	"github.com/millrace/millrace/l7/udptunnel"
	"github.com/millrace/millrace/semantics"
)

// isConnectUDP reports whether a request asks for a tunnel of UDP: by CONNECT with :protocol in HTTP/2 and HTTP/3, and by Upgrade in HTTP/1.1
// (RFC 9298 3.2, 3.4).
func isConnectUDP(m *semantics.Message) bool { return strings.EqualFold(m.Protocol, "connect-udp") }

// isTunnel reports whether what follows the header of a request is another protocol.
func isTunnel(m *semantics.Message) bool { return isWebSocket(m) || isConnectUDP(m) || isSession(m) }

// relaying is an exchange that relays datagrams: the methods are of this file.
type relaying struct{ *exchange }

// datagramTunnel relays the datagrams of a client to a target and back: the side of an exchange that is no connection of HTTP.
type datagramTunnel struct {
	noPeer
	w        *Worker
	x        *exchange // nil once the exchange has ended
	service  *udptunnel.Service
	tunnel   *udptunnel.Tunnel // nil until it is open
	cancel   context.CancelFunc
	capsules http3.Capsules
	out      []byte
	reason   string // why it has ended, or was refused, for the access log
	ended    bool   // the exchange is to end, in the next iteration of the loop
}

// Failures of tunnels of UDP (RFC 9209 2.3).
var (
	errUDPTarget  = errRequest
	errUDPDenied  = &failure{status: 403, name: "destination_ip_prohibited", class: pool.Canceled}
	errUDPName    = &failure{status: 502, name: "dns_error", class: pool.Canceled}
	errUDPFailed  = &failure{status: 502, name: "destination_unavailable", class: pool.Canceled}
	errUDPTimeout = &failure{status: 504, name: "dns_timeout", class: pool.Canceled}
)

const (
	// openTime bounds the look-up of a target's name.
	openTime = 5 * time.Second
	// contextUDP is the context ID of payloads of UDP (RFC 9298 5).
	contextUDP = 0
	// mostHeld bounds the capsules that a client does not take: datagrams beyond are lost.
	mostHeld = 64 << 10
)

// begin opens the tunnel that a request asks for, or answers it.
func (x relaying) begin(path string) {
	t := &datagramTunnel{w: x.w, x: x.exchange, service: x.rule.UDP}
	x.udp = t
	t.capsules.Known = func(kind uint64) bool { return kind == http3.CapsuleDatagram } // others are passed over (RFC 9297 3.2)
	host, port, err := udptunnel.ParsePath(path)
	if !isConnectUDP(x.request) {
		err = errors.New("the request is none for a tunnel of UDP")
	}
	if err != nil {
		t.reason = err.Error()
		x.answer(errUDPTarget)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), openTime)
	t.cancel, x.waits = cancel, t
	guarding(x).holding()
	guarding(x).holdUntil(openTime, func(guarding) {
		x.on(admitted)
		x.answer(errUDPTimeout)
	})
	host = strings.Clone(host) // it may lie in the memory of the request
	go func() {
		tunnel, err := t.service.Open(ctx, host, port)
		cancel()
		if !x.w.Loop.Do(func() { t.opened(tunnel, err) }) && tunnel != nil {
			tunnel.Close()
		}
	}()
}

// withdraw implements awaited.
func (t *datagramTunnel) withdraw(*exchange) { t.cancel() }

// opened answers the request.
func (t *datagramTunnel) opened(tunnel *udptunnel.Tunnel, err error) {
	x := t.x
	if x == nil || x.waits != awaited(t) { // it has ended, or was answered
		if tunnel != nil {
			tunnel.Close()
		}
		return
	}
	x.w.Enter()
	x.waits, x.hold.until, x.hold.late = nil, clock.Never, nil
	x.on(admitted)
	if err == nil {
		t.tunnel = tunnel
		t.establish()
		return
	}
	t.reason = err.Error()
	switch {
	case errors.Is(err, udptunnel.ErrFull):
		x.answer(errLimit)
	case errors.Is(err, udptunnel.ErrDenied):
		x.answer(errUDPDenied)
	case errors.Is(err, udptunnel.ErrResolve):
		x.answer(errUDPName)
	default:
		x.answer(errUDPFailed)
	}
}

// establish begins the tunnel.
func (t *datagramTunnel) establish() {
	x := t.x
	x.fields = append(x.fields[:0], semantics.Field{Name: "capsule-protocol", Value: "?1"})
	x.reply = semantics.Message{Status: 200, ContentLength: -1, Fields: x.fields}
	if x.request.Method != "CONNECT" {
		x.reply.Status, x.reply.Protocol = 101, "connect-udp"
	}
	x.on(switched)
	x.status, x.progress, x.backendName = x.reply.Status, x.w.Now, t.tunnel.Target.String()
	if err := x.front.Head(x.responseMessage(&x.reply, false), side.EndsLater); err != nil {
		x.frontFailed()
		return
	}
	if d := x.caps.Datagrams; d != nil {
		d.TakeDatagrams(t.datagram)
	}
	x.down.from, x.up.to = t, t
	if !x.caps.Shared { // the request has ended, and the other protocol begins
		x.up.message, x.up.trailers = flowing, nil
	}
	t.tunnel.Start(func() { t.w.Loop.Do(t.readable) })
	x.up.push(x.w) // which may end it, in the next iteration
	x.deadline()
}

// datagram relays a datagram of the client. Those of other contexts are dropped: there are none here (RFC 9298 4).
func (t *datagramTunnel) datagram(p []byte) {
	if t.x == nil || t.tunnel == nil {
		return
	}
	t.x.progress = t.w.Now
	t.x.up.bytes += uint64(len(p))
	t.send(p)
}

func (t *datagramTunnel) send(p []byte) {
	if len(p) > 0 && p[0] == contextUDP {
		t.tunnel.Send(p[1:])
		return
	}
	t.service.Dropped.Add(1)
}

// Write implements side.Stream: content of the client is capsules.
func (t *datagramTunnel) Write(p []byte) int {
	for in := p; len(in) > 0 && !t.ended; {
		_, value, n, complete, err := t.capsules.Next(in)
		if err != nil {
			t.end("capsule")
			break
		}
		if in = in[n:]; complete {
			t.send(value)
		}
	}
	return len(p)
}

// End implements side.Stream: the client closes the tunnel (RFC 9298 3.1). What ends within a capsule is malformed (RFC 9297 3.3).
func (t *datagramTunnel) End([]semantics.Field) {
	if t.capsules.Cut() {
		t.end("capsule")
		return
	}
	t.end("")
}

// end ends the exchange in the next iteration of the loop: methods of a side call nothing of it.
func (t *datagramTunnel) end(reason string) {
	if !t.ended {
		t.ended, t.reason = true, reason
		t.w.Loop.Do(t.finish)
	}
}

// finish ends the exchange: regularly, or by a reset.
func (t *datagramTunnel) finish() {
	x := t.x
	if x == nil {
		return
	}
	x.w.Enter()
	if t.reason != "" {
		x.failure = "http_protocol_error"
		x.cut(false)
		return
	}
	x.down.message, x.up.message = max(x.down.message, allArrived), allPassed
	x.down.end(x.w)
	x.finishIfDone()
}

// idle ends a tunnel in which nothing has come for its time.
func (t *datagramTunnel) idle() {
	t.ended, t.reason = true, ""
	t.finish()
	if t.x != nil {
		t.x.cut(false) // the client does not take the end either
	}
}

// readable relays what has come from the target.
func (t *datagramTunnel) readable() {
	x := t.x
	if x == nil {
		return
	}
	x.w.Enter()
	list, err := t.tunnel.Take()
	for _, p := range list {
		if x.progress = x.w.Now; t.x == nil {
			return
		}
		t.relay(p)
	}
	if err != nil && t.x != nil {
		t.end("socket")
	}
}

// relay sends a datagram of the target to the client: beside the stream where both ends can, or as a capsule.
func (t *datagramTunnel) relay(p []byte) {
	x := t.x
	t.out = append(append(t.out[:0], contextUDP), p...)
	if d := x.caps.Datagrams; d != nil {
		switch d.SendDatagram(t.out) {
		case side.DatagramSent:
			x.down.bytes += uint64(len(t.out))
			return
		case side.DatagramLost:
			t.service.Dropped.Add(1)
			return
		}
	}
	if len(x.down.held) > mostHeld {
		t.service.Dropped.Add(1)
		return
	}
	x.down.data(x.w, http3.AppendCapsule(nil, http3.CapsuleDatagram, t.out))
}

// leave ends the tunnel with the exchange.
func (t *datagramTunnel) leave() {
	if t.cancel != nil {
		t.cancel()
	}
	if t.x = nil; t.tunnel != nil {
		t.tunnel.Close()
	}
}

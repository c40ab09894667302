package proxy

import (
	ctls "crypto/tls"
	"slices"
	"sync"
	"time"

	"github.com/millrace/millrace/tls/clienthello"
)

// Demand obtains certificates for names that clients ask for.
type Demand struct {
	// Want reports whether a handshake for a name is to wait until wake is called, from any goroutine. leave ends the wait.
	Want func(name string, wake func()) (leave func(), waits bool)
	// Wait bounds the wait. After it the handshake goes on with what there is.
	Wait time.Duration
}

// demandState is the state of a handshake that may wait for a certificate.
type demandState uint8

const (
	demandNone  demandState = iota
	demandWaits             // its ClientHello is kept from the engine
	demandOver
)

// ask has the handshake wait for a certificate for its name, if there is none and there may be one soon. The engine gets the hello, or
// its last part, after that: the link keeps it while it is paused. A handshake of the authority that proves the control of the name
// (RFC 8737) is what the others wait for.
func (o *opening) ask(h *clienthello.Hello) {
	d := o.info.listener.Demand
	if d == nil || o.demand != demandNone || offers(h, acmeTLS) {
		return
	}
	loop := o.info.at.w.Loop
	leave, waits := d.Want(string(h.ServerName), func() { loop.Do(o.wake) })
	if !waits {
		return
	}
	o.demand, o.leave = demandWaits, leave
	o.l.Pause()
	o.l.Deadline(&o.l.InputBy, d.Wait)
}

// wake goes on with the handshake. It runs on its loop.
func (o *opening) wake() {
	if o.demand == demandWaits && !o.l.Closed() {
		o.info.at.w.Enter()
		o.supplied()
	}
}

// supplied gives the hello to the engine, whether there is a certificate or not. The client has the time of a handshake from now on.
func (o *opening) supplied() {
	o.demand = demandOver
	o.l.Deadline(&o.l.InputBy, o.info.listener.Timeouts.Handshake)
	o.l.Proceed()
}

// await is ask for HTTP/3: it returns once there is a certificate, or the wait is over. It runs on the goroutine of the handshake, and the
// connection takes no packet meanwhile: the client sends its Initial packets again (RFC 9002 6.2). Addresses may be forged up to a number of
// handshakes, from which on the transport sends Retry (quic.TransportConfig.RetryAbove).
func (d *Demand) await(hello *ctls.ClientHelloInfo) {
	if slices.Contains(hello.SupportedProtos, acmeTLS) {
		return
	}
	ready := make(chan struct{})
	leave, waits := d.Want(hello.ServerName, sync.OnceFunc(func() { close(ready) }))
	if !waits {
		return
	}
	defer leave()
	over := time.NewTimer(d.Wait)
	defer over.Stop()
	select {
	case <-ready:
	case <-over.C:
	case <-hello.Context().Done():
	}
}

// offers reports whether a ClientHello offers a protocol.
func offers(h *clienthello.Hello, protocol string) bool {
	for list := h.ALPN; len(list) > 0; {
		var name []byte
		if name, list = list.Next(); string(name) == protocol {
			return true
		}
	}
	return false
}

package proxy

import (
	"github.com/millrace/millrace/l7/pool"
	"github.com/millrace/millrace/websocket"
)

// EndStreams ends the tunnels and the connections that are passed through to a backend whose drain time is over. Both sides of a
// WebSocket get a Close frame with 1001 where no other frame has been sent in part (RFC 6455 5.5.1, 7.4.1); the rest is reset.
func (w *Worker) EndStreams(b *pool.Backend) {
	w.Enter()
	end := func(user any) {
		if x := user.(*exchange); x.drains(b) {
			w.counters.drained.Add(1)
			x.endTunnel(cutDrained)
		}
	}
	for l, info := range w.fronts {
		if e, ok := l.Session.(*passEnd); ok {
			if e.p.server.l != nil && e.p.backend == b && !e.p.over {
				e.p.endDrained()
			}
		} else if info != nil && info.conn != nil {
			info.conn.Each(end)
		}
	}
	for c := range w.fronts3 {
		c.conn.Each(end)
	}
}

// EndTunnels ends all tunnels as EndStreams does. The process ends: without a Close frame the ends of a WebSocket would see a
// failure. Clients that see 1001 (going away) connect again; those that see 1006 mostly report an error to the user
// (RFC 6455 7.4.1).
func (w *Worker) EndTunnels() {
	w.Enter()
	end := func(user any) {
		if x := user.(*exchange); x.phase == tunnel {
			x.endTunnel(cutStopped)
		}
	}
	for _, info := range w.fronts {
		if info != nil && info.conn != nil {
			info.conn.Each(end)
		}
	}
	for c := range w.fronts3 {
		c.conn.Each(end)
	}
}

// Failures of streams that the gateway ends.
const (
	cutDrained = "backend_drained"  // with the drain time of their backend
	cutStopped = "gateway_stopping" // with the process
)

// drains reports whether the exchange is a tunnel to a backend. Requests of other kinds end by themselves, and have
// bounds for that.
func (x *exchange) drains(b *pool.Backend) bool {
	return x.phase == tunnel && x.backend == b
}

// endTunnel ends a tunnel by a failure. Each direction of a WebSocket is closed on its own: one in the middle of a frame is reset, and
// the other may still get its Close frame. A tunnel of another protocol is reset.
func (x *exchange) endTunnel(failure string) {
	if x.failure = failure; x.udp != nil {
		x.cut(false)
		return
	}
	if x.session != nil {
		relayed{x}.close(failure)
		return
	}
	if !isWebSocket(&x.outgoing) { // another protocol: its ends would take a frame for data
		x.back.Cancel(true)
		x.cut(false)
		return
	}
	if x.up.closeSocket(websocket.Client) {
		x.back.End(nil)
	} else {
		x.back.Cancel(true)
	}
	if x.down.closeSocket(websocket.Server) {
		x.front.End(nil)
		x.finish()
		return
	}
	x.cut(false)
}

// closeSocket sends a Close frame, unless one has been sent, and reports whether the receiver can understand the end
// that follows. Control frames may come between the fragments of a message, but not within a frame (RFC 6455 5.4):
// there the receiver would take the Close frame for content. After a Close frame no other may follow (RFC 6455 5.5.1).
//
// A frame to the backend is masked, as a client's (RFC 6455 5.3), and one to the client is not: sender selects which.
func (r *relay) closeSocket(sender websocket.Role) bool {
	if r.to == nil || r.message != flowing || len(r.held) > 0 || !r.frames.Between() {
		return false
	}
	if r.frames.Closed() {
		return true
	}
	frame, err := websocket.NewMachine(sender, websocket.MachineOptions{}).AppendClose(nil, websocket.CloseGoingAway, "")
	return err == nil && r.to.Write(frame) == len(frame)
}

// endDrained ends a connection that is passed through, by a reset: where its protocol could end without loss is not known.
func (p *pass) endDrained() {
	p.w.counters.drained.Add(1)
	p.failure = cutDrained
	p.finish(pool.NoFailure)
	p.client.abort()
	p.server.abort()
}

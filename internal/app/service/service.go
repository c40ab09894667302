// Package service is what a host answers that has nothing else to do: echo, discard, chargen and
// daytime (RFC 862, 863, 864, 867), HTTP, and the server of iperf3. They are for tests of networks and of
// stacks: each speaks to the ordinary client of its protocol, `nc`, `curl`, `iperf3`.
//
// A Server takes connections from a net.Listener and datagrams from a net.PacketConn, whosever they are: it
// knows nothing of the stack below. Connections are bounded in number and in idle time, and datagrams
// are answered within bounds, so that no host can be flooded by a forged source address.
//
//	s, err := service.New(service.Echo, service.Config{})
//	go s.Serve(listener)
//	go s.ServePacket(packetConn)
//	err = s.Shutdown(ctx)
package service

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// ErrClosed is returned by Serve and ServePacket after Shutdown or Close.
var ErrClosed = errors.New("service: closed")

// Kind names a service.
type Kind string

// The services.
const (
	Echo    Kind = "echo"    // RFC 862: what comes goes back
	Discard Kind = "discard" // RFC 863: what comes is thrown away
	Chargen Kind = "chargen" // RFC 864: printable characters without end
	Daytime Kind = "daytime" // RFC 867: the time, as a line
	HTTP    Kind = "http"    // HTTP/1.1: see the page /
	Iperf3  Kind = "iperf3"  // what `iperf3 -c` speaks to
)

// Kinds lists the services.
var Kinds = []Kind{Echo, Discard, Chargen, Daytime, HTTP, Iperf3}

// ports are the default ports of the services.
var ports = map[Kind]uint16{Echo: 7, Discard: 9, Chargen: 19, Daytime: 13, HTTP: 80, Iperf3: 5201}

// Valid reports whether k is one of Kinds.
func (k Kind) Valid() bool { return slices.Contains(Kinds, k) }

// Port returns the port that the service has by custom; 0 where k is no service.
func (k Kind) Port() uint16 { return ports[k] }

// Datagrams reports whether the service takes datagrams as well as connections.
func (k Kind) Datagrams() bool { return k.Valid() && k != HTTP }

// Limits bound what clients can take of a Server. Zero values stand for the defaults.
type Limits struct {
	Connections int           // at once; the next ones are closed at once. Default DefaultConnections
	Idle        time.Duration // after which a connection without a byte in either direction is closed. Default DefaultIdle
}

// The defaults of Limits.
const (
	DefaultConnections = 1024
	DefaultIdle        = 10 * time.Minute
)

// Config describes a Server. All of it may be left out.
type Config struct {
	Limits Limits

	// Tune sets options of a connection that a client of iperf3 asks for. Without it, a client that asks
	// for more than NoDelay gets an error.
	Tune func(net.Conn, Tuning) error

	// Inspect tells of a connection what iperf3 reports; false where nothing is known. May be nil.
	Inspect func(net.Conn) (Inspection, bool)
}

// Tuning holds the settings of connections that the client of iperf3 requests. Zero values leave them as they are.
type Tuning struct {
	NoDelay    bool   // -N
	Congestion string // -C
	Window     int    // -w: send and receive buffer, bytes
	MSS        int    // -M, bytes
}

// Inspection holds the properties of a TCP connection.
type Inspection struct {
	Retransmits uint64 // segments sent again
	Congestion  string // name of the congestion control
}

// Stats count what a Server has done.
type Stats struct {
	Active       int    `json:"active"`        // connections now
	Accepted     uint64 `json:"accepted"`      // connections, those below not counted
	Refused      uint64 `json:"rejected"`      // connections closed at once for Limits.Connections
	Datagrams    uint64 `json:"datagrams"`     // received
	Unanswered   uint64 `json:"unanswered"`    // datagrams that get no answer for their source port
	BytesIn      uint64 `json:"bytes_in"`      // of connections and datagrams
	BytesOut     uint64 `json:"bytes_out"`     // the same
	SendFailures uint64 `json:"send_failures"` // datagrams that the network did not take
	AcceptErrors uint64 `json:"accept_errors"` // passing errors of listeners
}

// Server runs one service. Its methods may be called from any goroutine.
type Server struct {
	kind   Kind
	cfg    Config
	ctx    context.Context // ends with the Server
	cancel context.CancelFunc

	stream func(*conn)                     // serves a connection and returns when it is over
	answer func(to, request []byte) []byte // appends the answer of a datagram to to; nil is none
	iperf  *iperf

	mu     sync.Mutex
	doors  map[io.Closer]func() // listeners and packet conns that are served, and how each ends
	conns  map[*conn]bool
	closed bool
	work   sync.WaitGroup // Serve, ServePacket and connections

	accepted, refused, datagrams, unanswered, in, out, sendFailures, acceptErrors atomic.Uint64
}

// New returns a Server for a service.
func New(kind Kind, cfg Config) (*Server, error) {
	if !kind.Valid() {
		return nil, fmt.Errorf("service: no service is called %q: want one of %v", kind, Kinds)
	}
	if cfg.Limits.Connections == 0 {
		cfg.Limits.Connections = DefaultConnections
	}
	if cfg.Limits.Idle == 0 {
		cfg.Limits.Idle = DefaultIdle
	}
	s := &Server{kind: kind, cfg: cfg, doors: map[io.Closer]func(){}, conns: map[*conn]bool{}}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	switch kind {
	case Echo:
		s.stream, s.answer = echo, echoDatagram
	case Discard:
		s.stream, s.answer = discard, discardDatagram
	case Chargen:
		s.stream, s.answer = chargen, chargenDatagram
	case Daytime:
		s.stream, s.answer = daytime, daytimeDatagram
	case Iperf3:
		s.iperf = newIperf(s)
		s.stream = s.iperf.serve
	}
	return s, nil
}

// Kind returns the service that s runs.
func (s *Server) Kind() Kind { return s.kind }

// Stats returns the counters.
func (s *Server) Stats() Stats {
	s.mu.Lock()
	active := len(s.conns)
	s.mu.Unlock()
	return Stats{
		Active: active, Accepted: s.accepted.Load(), Refused: s.refused.Load(), Datagrams: s.datagrams.Load(),
		Unanswered: s.unanswered.Load(), BytesIn: s.in.Load(), BytesOut: s.out.Load(),
		SendFailures: s.sendFailures.Load(), AcceptErrors: s.acceptErrors.Load(),
	}
}

// open notes a listener or packet conn, and what ends it; false means that the Server has been closed.
func (s *Server) open(door io.Closer, end func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.doors[door] = end
	s.work.Add(1)
	return true
}

// leave undoes open.
func (s *Server) leave(door io.Closer) {
	s.mu.Lock()
	delete(s.doors, door)
	s.mu.Unlock()
	door.Close()
	s.work.Done()
}

// shut closes what brings clients.
func (s *Server) shut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, end := range s.doors {
		end()
	}
}

// Shutdown takes no more clients and waits until those there are have finished, or until ctx ends: then
// their connections are closed. It returns ctx's error where that was needed.
func (s *Server) Shutdown(ctx context.Context) error {
	s.shut()
	done := make(chan struct{})
	go func() { s.work.Wait(); close(done) }()
	select {
	case <-done:
		s.cancel()
		return nil
	case <-ctx.Done():
		s.Close()
		<-done
		return ctx.Err()
	}
}

// Close ends the service and all its connections, and returns when their goroutines have ended.
func (s *Server) Close() {
	s.shut()
	s.cancel()
	s.mu.Lock()
	for c := range s.conns {
		c.Conn.Close() // its goroutine forgets it
	}
	s.mu.Unlock()
	s.work.Wait()
}

package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/internal/controlsocket"
)

// scrapes serves pages, such as the metrics, at an address that may change while the node runs.
type scrapes struct {
	kind    SocketKind
	most    int                 // requests at once
	path    string              // that the log names
	handler func() http.Handler // nil: there must be no address

	mu       sync.Mutex
	state    scrapeState
	at       string                  // the address that is configured; "" is none
	listener *controlsocket.Listener // nil without
	server   *http.Server            // of listener, while it serves
	serving  sync.WaitGroup
}

// scrapeState is the part of its life that a scrapes is in.
type scrapeState uint8

const (
	scrapesWaiting scrapeState = iota // for Run
	scrapesServed
	scrapesEnded
)

// SetMetrics serves the metrics at another address, and no more at the one before; "" is nowhere. On an error nothing has changed.
func (n *Node) SetMetrics(address string) error { return n.scrapes.set(n, address) }

// SetPages is SetMetrics for what Config.PagesHandler serves.
func (n *Node) SetPages(address string) error { return n.pages.set(n, address) }

// set serves at another address.
func (s *scrapes) set(n *Node, address string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.state == scrapesEnded, address == s.at && s.state != scrapesWaiting:
		return nil
	case address == "":
		s.close()
		s.at = ""
		return nil
	case s.handler == nil:
		return fmt.Errorf("%s: an address, and nothing that serves it", s.kind) // it would be missed only in an incident
	}
	l, err := s.listen(n, address)
	before := s.at
	if errors.Is(err, unix.EADDRINUSE) && s.listener != nil { // by this one perhaps: an address is a part of the unspecified one
		s.close()
		if l, err = s.listen(n, address); err != nil {
			if old, again := s.listen(n, before); again == nil {
				s.open(n, old, before)
			}
		}
	}
	if err != nil {
		return fmt.Errorf("%s: %w", s.kind, err)
	}
	s.close()
	s.open(n, l, address)
	return nil
}

// listen returns a listener: that which another process has passed, if there is one.
func (s *scrapes) listen(n *Node, address string) (*controlsocket.Listener, error) {
	if f := n.inherit(s.kind, address); f != nil {
		return controlsocket.FileListener(f)
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	return controlsocket.NewListener(l)
}

// open begins to serve a listener, or leaves it to Run. The caller holds mu.
func (s *scrapes) open(n *Node, l *controlsocket.Listener, at string) {
	s.listener, s.at = l, at
	if s.state == scrapesServed {
		s.serve(n)
	}
}

// serve answers scrapes, on the kernel's stack: metrics have to be readable when the loops are overloaded. Sources read counters
// that the loops publish, so a scrape never waits for a loop. The caller holds mu.
func (s *scrapes) serve(n *Node) {
	mux := http.NewServeMux()
	mux.Handle(s.path, s.handler())
	mux.HandleFunc("GET /healthz", serveHealth)
	mux.HandleFunc("GET /readyz", n.ServeReady)
	srv, l := controlsocket.NewServer(mux, s.most, n.log), s.listener
	s.server = srv
	n.log.Info(string(s.kind), "listen", "http://"+l.Addr().String()+s.path)
	s.serving.Go(func() {
		if err := srv.Serve(controlsocket.LimitConns(l)); !errors.Is(err, http.ErrServerClosed) {
			n.log.Error(string(s.kind), "error", err.Error())
		}
	})
}

// serveHealth answers that the process lives.
func serveHealth(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") }

// ServeReady answers 200 while the node serves, and 503 once its services finish what they have begun: a balancer in front then sends
// clients elsewhere.
func (n *Node) ServeReady(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	if n.draining.Load() {
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w, "draining\n")
		return
	}
	_, _ = io.WriteString(w, "ready\n")
}

// Draining reports whether services finish what they have begun, and take nothing new.
func (n *Node) Draining() bool { return n.draining.Load() }

// close stops serving. The caller holds mu.
func (s *scrapes) close() {
	if s.server != nil {
		s.server.Close()
	}
	if s.listener != nil {
		s.listener.Close()
	}
	s.server, s.listener = nil, nil
}

// serveUntil serves until ctx ends.
func (s *scrapes) serveUntil(ctx context.Context, n *Node) {
	s.mu.Lock()
	if s.state = scrapesServed; s.listener != nil {
		s.serve(n)
	}
	s.mu.Unlock()
	<-ctx.Done()
	s.mu.Lock()
	s.state = scrapesEnded
	s.close()
	s.mu.Unlock()
	s.serving.Wait()
}

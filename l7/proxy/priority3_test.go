package proxy

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/http3"
	"github.com/millrace/millrace/quic"
	"github.com/millrace/millrace/semantics"
)

// prioritisedSize is more than the gateway holds of a response.
const prioritisedSize = 240_000

// prioritised is a client of HTTP/3 whose connection has little room, and that says how urgent its requests are.
type prioritised struct {
	*rig
	q       *quic.Conn
	m       *http3.Machine
	control *quic.SendStream
}

func newPrioritised(ctx context.Context, t *testing.T) *prioritised {
	backend := served(t, func(w http.ResponseWriter, req *http.Request) {
		if v := req.URL.Query().Get("priority"); v != "" {
			w.Header().Set("Priority", v)
		}
		_, _ = w.Write(make([]byte, prioritisedSize))
	})
	p := &prioritised{rig: http3Rig(t, strings.TrimPrefix(backend.URL, "http://"), unhurried), m: http3.NewMachine(http3.RoleClient, http3.MachineOptions{})}
	p.q = p.dial3(ctx, quicSocket(t), &quic.Config{ConnWindow: 16 << 10, MaxConnWindow: 16 << 10, StreamWindow: 1 << 20})
	var err error
	p.control, err = p.q.OpenUniStream(ctx)
	must(t, err)
	p.say()
	return p
}

// say sends what the machine has for the control stream.
func (p *prioritised) say() {
	p.t.Helper()
	_, err := p.control.Write(p.m.AppendControl(nil))
	must(p.t, err)
}

// ask sends a request.
func (p *prioritised) ask(ctx context.Context, path, priority string) *quic.Stream {
	p.t.Helper()
	s, err := p.q.OpenStream(ctx)
	must(p.t, err)
	m := semantics.Message{Method: "GET", Scheme: "https", Authority: "gateway.test", Path: path, ContentLength: -1}
	if priority != "" {
		m.Fields = []semantics.Field{{Name: "priority", Value: priority}}
	}
	_, err = s.Write(p.m.AppendRequest(nil, uint64(s.ID()), &m))
	must(p.t, err)
	must(p.t, s.Close())
	return s
}

// waits reports whether n responses wait for room.
func (p *prioritised) waits(n int) bool {
	for _, f := range p.worker.fronts3 {
		for _, st := range f.Streams {
			if x, _ := st.User.(*exchange); x != nil && (len(x.down.held) > 0 || st.S.Room() == 0) {
				n--
			}
		}
	}
	return n == 0
}

// paced counts what it takes, more slowly than the gateway sends: so that something waits there.
type paced struct{ n *atomic.Int64 }

func (w *paced) Write(p []byte) (int, error) {
	w.n.Add(int64(len(p)))
	time.Sleep(time.Duration(len(p)) * 100)
	return len(p), nil
}

// Responses of HTTP/3 are sent by their urgency: as the field Priority of the request says, a PRIORITY_UPDATE before it or later, or
// the field of the response.
func TestHTTP3ResponsesAreSentByUrgency(t *testing.T) {
	for name, c := range map[string]struct {
		others, urgent, response string
		ahead, later             bool // by PRIORITY_UPDATE
	}{
		"fields":                        {"u=7", "u=0", "", false, false},
		"incremental":                   {"u=5, i", "u=1, i", "", false, false},
		"updates before the request":    {"u=5", "u=6", "", true, false},
		"updates of what waits":         {"u=5", "u=6", "", false, true},
		"the field of the response":     {"u=5", "u=6", "u=2", false, false},
		"none, and an update":           {"", "", "", false, true},
		"none, and the response's":      {"", "", "u=2", false, false},
		"a response without urgency":    {"u=5", "u=4", "i", false, false},
		"a response with a wrong field": {"u=5", "u=4", "u=7,", false, false},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			p := newPrioritised(ctx, t)
			var read sync.WaitGroup
			var rest atomic.Int64
			var streams []*quic.Stream
			for range 3 {
				streams = append(streams, p.ask(ctx, "/", c.others))
			}
			p.eventually("three responses", func() bool { return p.waits(3) })
			if c.ahead {
				p.m.UpdatePriority(12, http3.Priority{Urgency: 7})
				p.m.UpdatePriority(12, http3.Priority{Urgency: 0})
				p.say()
				p.eventually("the update", func() bool {
					for _, f := range p.worker.fronts3 {
						return f.Priorities[12] == http3.Priority{Urgency: 0} && len(f.Priorities) == 1
					}
					return false
				})
			}
			urgent := p.ask(ctx, "/?priority="+c.response, c.urgent)
			p.eventually("four responses", func() bool { return p.waits(4) })
			if c.later {
				p.m.UpdatePriority(uint64(urgent.ID()), http3.Priority{Urgency: 0})
				p.say()
				p.eventually("the update", func() bool {
					for _, f := range p.worker.fronts3 {
						for _, st := range f.Streams {
							if st.S.ID() == uint64(urgent.ID()) {
								return st.Priority.Urgency == 0
							}
						}
					}
					return false
				})
			}
			for _, s := range streams {
				read.Go(func() {
					_, _ = io.Copy(&paced{&rest}, s)
				})
			}
			n, err := io.Copy(&paced{new(atomic.Int64)}, urgent)
			if sent := rest.Load(); n < prioritisedSize || sent > 2*prioritisedSize || err != nil { // in turn, it would be three times as much
				t.Errorf("%d bytes were sent before the urgent response of %d, %v", sent, n, err)
			}
			read.Wait()
			if sent := rest.Load(); sent < 3*prioritisedSize {
				t.Errorf("the others got %d bytes", sent)
			}
		})
	}
}

// unhurried has no response cut on a machine that is busy.
func unhurried(r *rig) {
	r.each(func(l *Listener) { l.Timeouts.Write, l.Timeouts.Body = 0, 0 })
	r.pool.Body = 0
}

package proxy

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/filter/inspect"
	"github.com/millrace/millrace/http2"
	"github.com/millrace/millrace/internal/testkit/memtransport"
	"github.com/millrace/millrace/internal/testkit/wrongcases"
	"github.com/millrace/millrace/semantics"
)

// Modes of FuzzProxy, as bits.
const (
	fuzzFront2  = 1 << iota // the client speaks HTTP/2
	fuzzBack2               // the backend does
	fuzzEnd                 // the client ends its output
	fuzzSlow                // and reads slowly
	fuzzInspect             // requests and responses are inspected, by fuzzRules
)

// fuzzRules end some of the messages of the seeds, and have content of both directions watched.
const fuzzRules = `drop http any any -> any any (flow:to_server; http.request_body; content:"hello"; sid:1;)
drop http any any -> any any (flow:to_client; http.response_body; content:"evil"; sid:2;)
drop http any any -> any any (flow:to_client; http.response_body; content:"xyz"; endswith; sid:3;)
alert http any any -> any any (http.header; content:"Host"; nocase; sid:4;)
`

// FuzzProxy has a client send anything, and a backend answer anything. What reaches a backend is requests in a form that nobody
// has to repair, no more than were accepted; the client beside them gets its own response; and all is given back.
func FuzzProxy(f *testing.F) {
	for i, c := range wrongcases.All() {
		if len(c.Bytes) < 2000 && (i < 30 || i%7 == 0) {
			f.Add([]byte(c.Bytes), []byte(nil), uint64(i), uint8(i%2*fuzzEnd))
			f.Add([]byte(c.Bytes), []byte(nil), uint64(i), uint8(fuzzInspect|i%2*fuzzEnd))
		}
	}
	for i, c := range wrongcases.Downgrades() {
		if len(c.Bytes) < 2000 && i%3 == 0 {
			f.Add([]byte(c.Bytes), []byte(nil), uint64(i), uint8(fuzzFront2|i%4*fuzzBack2))
		}
	}
	for i, c := range wrongcases.Responses() {
		if len(c.Bytes) < 2000 {
			f.Add([]byte(getRoot+getRoot), []byte(c.Bytes), uint64(i), uint8(i%2*fuzzSlow))
			f.Add([]byte(getRoot+getRoot), []byte(c.Bytes), uint64(i), uint8(fuzzInspect|i%2*fuzzSlow))
		}
	}
	f.Add([]byte("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello"+getRoot), []byte("\x00\x00\x00\x04\x00\x00\x00\x00\x00"+
		"\x00\x00\x01\x01\x04\x00\x00\x00\x01\x88\x00\x00\x02\x00\x01\x00\x00\x00\x01ok"), uint64(1), uint8(fuzzBack2))
	f.Fuzz(fuzzProxy)
}

func fuzzProxy(t *testing.T, front, back []byte, seed uint64, mode uint8) {
	if len(front)+len(back) > 16<<10 {
		return
	}
	random := rand.New(rand.NewPCG(seed, 1))
	var engine *inspect.Engine
	r := newMemRig(t, func(r *memRig, tree *Tree) {
		if mode&fuzzInspect != 0 {
			for _, ln := range tree.Listeners {
				ln.Inspection = &Inspection{Policy: 1, Hold: int(seed % 100)}
			}
		}
		if mode&fuzzBack2 != 0 {
			r.to.Protocol = HTTP2
		}
		r.rule.Backends[0].Pool.Body, r.rule.Attempts = 25*time.Second, int(seed%3)
	})
	if mode&fuzzInspect != 0 {
		engine = inspect.New(compiledRules(t, fuzzRules, nil), inspect.Config{Inline: true, Refuse: true}, func(*inspect.Alert) {})
		r.worker.Inspect(func(uint8, bool) (*inspect.Engine, inspect.Mode) { return engine, inspect.Prevent })
	}
	b := &fuzzBackend{t: t, answer: back, random: random, h2: mode&fuzzBack2 != 0}
	r.backend = b.serve
	r.loop.Cut = func(n int) int { return 1 + random.IntN(n) }
	addr := memHTTP1
	if mode&fuzzFront2 != 0 {
		addr = memHTTP2
	}
	client := r.connect(addr)
	if mode&fuzzSlow != 0 {
		client.Window = 1 + random.IntN(500)
	}
	for len(front) > 0 {
		n := 1 + random.IntN(len(front))
		client.Write(front[:n])
		front = front[n:]
		r.run()
		if n := r.heldBytes(); n > 1<<20 {
			t.Fatalf("%d bytes are held", n)
		}
		if random.IntN(4) == 0 {
			client.Take()
		}
	}
	if mode&fuzzEnd != 0 {
		client.CloseWrite()
		r.run()
	}
	b.answer = nil // connections that were answered before still have what was left
	if got := r.ask("GET /own HTTP/1.1\r\nHost: a\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 200") && len(back) == 0 {
		t.Fatalf("a client beside it got %.200q", got)
	}
	r.nothingLeft(client)
	b.check()
	if engine != nil {
		if _, used := engine.Flows(); used != 0 {
			t.Errorf("the engine holds %d bytes", used)
		}
	}
}

// fuzzBackend answers with given bytes, by pieces, and later with good responses.
type fuzzBackend struct {
	t           *testing.T
	answer      []byte
	random      *rand.Rand
	h2          bool
	connections [][]byte
}

func (b *fuzzBackend) serve(p *memtransport.Peer) {
	if b.h2 {
		b.serve2(p)
		return
	}
	i, answered := len(b.connections), 0
	b.connections = append(b.connections, nil)
	answer := b.answer
	p.Handler = func(p *memtransport.Peer) {
		b.connections[i] = append(b.connections[i], p.Take()...)
		requests, _ := wrongcases.Parse(b.connections[i])
		for ; answered < len(requests) && requests[answered].Whole; answered++ {
			if len(answer) == 0 {
				p.Write([]byte("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"))
				continue
			}
			n := 1 + b.random.IntN(len(answer))
			p.Write(answer[:n])
			if answer = answer[n:]; len(answer) == 0 && b.random.IntN(2) == 0 {
				p.Close()
			}
		}
		if p.Ended {
			p.Close()
		}
	}
}

// serve2 is a backend of HTTP/2, whose machine must understand what it receives.
func (b *fuzzBackend) serve2(p *memtransport.Peer) {
	m := http2.NewMachine(http2.RoleServer, http2.Options{})
	var in []byte
	answer := b.answer
	if len(answer) == 0 {
		p.Write(m.AppendControl(nil))
	}
	p.Handler = func(p *memtransport.Peer) {
		in = append(in, p.Take()...)
		for {
			ev, n, err := m.Input(in)
			if in = in[n:]; err != nil {
				if len(b.answer) == 0 && len(answer) == 0 {
					b.t.Errorf("the backend cannot read what it gets: %v", err)
				}
				p.Close()
				break
			}
			switch ev.Kind {
			case http2.Failed:
				if ev.Err != nil && len(answer) == 0 {
					b.t.Errorf("the backend refuses what it gets: %v", ev.Err)
				}
				m.Release(ev.Stream)
			case http2.Data:
				m.Consumed(ev.Stream, len(ev.Payload))
			case http2.End:
				if !ev.Stream.Ended() {
					out, _ := m.AppendResponse(m.AppendControl(nil), ev.Stream, &semantics.Message{Status: 200, ContentLength: 0}, true)
					if len(answer) == 0 {
						p.Write(out)
					}
				}
				m.Release(ev.Stream)
			}
			if ev.Kind == http2.NeedInput {
				break
			}
		}
		switch {
		case len(answer) > 0:
			n := 1 + b.random.IntN(len(answer))
			p.Write(answer[:n])
			if answer = answer[n:]; len(answer) == 0 {
				p.Close()
			}
		case m.Pending():
			p.Write(m.AppendControl(nil))
		}
		if p.Ended {
			p.Close()
		}
	}
}

// check looks at what was received.
func (b *fuzzBackend) check() {
	for _, c := range b.connections {
		requests, err := wrongcases.Parse(c)
		if err == nil {
			continue
		}
		for i := range requests { // behind a change of protocol anything may follow
			if _, ok := requests[i].Field("upgrade"); ok {
				err = nil
			}
		}
		if err != nil {
			b.t.Errorf("ambiguous: %v\n%q", err, c)
		}
	}
}

package proxy

import (
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/http2"
	"github.com/millrace/millrace/internal/testkit/memtransport"
	"github.com/millrace/millrace/internal/testkit/wrongcases"
	"github.com/millrace/millrace/semantics"
)

// memClient2 is a client of HTTP/2 on a connection in memory.
type memClient2 struct {
	r *memRig
	p *memtransport.Peer
	m *http2.Machine
}

func newMemClient2(r *memRig) *memClient2 {
	c := &memClient2{r, r.connect(memHTTP2), http2.NewMachine(http2.RoleClient, http2.Options{})}
	c.p.Write(c.m.AppendControl(nil))
	return c
}

// memAnswer is what a client gets of a response.
type memAnswer struct {
	status        int
	content, made string // made is Proxy-Status
	whole, failed bool
}

// ask sends a request and returns what comes back without time passing.
func (c *memClient2) ask(method, path string) memAnswer { return c.send(method, "a", path) }

// askHost is ask for another host.
func (c *memClient2) askHost(host string) memAnswer { return c.send("GET", host, "/") }

func (c *memClient2) send(method, host, path string) (a memAnswer) {
	s, err := c.m.Open()
	if err != nil {
		c.r.t.Fatal(err)
	}
	out, err := c.m.AppendRequest(c.m.AppendControl(nil), s, &semantics.Message{Method: method, Scheme: "http", Authority: host, Path: path, ContentLength: -1}, true)
	if err != nil {
		c.r.t.Fatal(err)
	}
	c.p.Write(out)
	c.r.run()
	for in := c.p.Take(); ; {
		ev, n, err := c.m.Input(in)
		if in = in[n:]; err != nil {
			c.r.t.Errorf("the client cannot read what it gets: %v", err)
			return a
		}
		switch {
		case ev.Kind == http2.NeedInput:
			c.m.Release(s)
			return a
		case ev.Stream != s:
		case ev.Kind == http2.Headers:
			a.status = s.Message.Status
			for _, f := range s.Message.Fields {
				if f.Name == "proxy-status" {
					a.made = f.Value
				}
			}
		case ev.Kind == http2.Data:
			a.content += string(ev.Payload)
			c.m.Consumed(s, len(ev.Payload))
		case ev.Kind == http2.End:
			a.whole = true
		case ev.Kind == http2.Failed:
			a.failed = true
		}
	}
}

// The same with a client of HTTP/2: its other streams go on.
func TestHostileBackendsHTTP2(t *testing.T) {
	for _, c := range wrongcases.Responses() {
		r := newMemRig(t, nil)
		r.rule.Backends[0].Pool.Body = 20 * time.Second
		s := &scripted{response: c}
		r.backend = s.serve
		client := newMemClient2(r)
		method := c.Method
		if method == "" {
			method = "GET"
		}
		a := client.ask(method, "/first")
		refused := a.status == 502 && strings.HasPrefix(a.made, "millrace; error=") && a.whole
		var ok bool
		switch c.Outcome {
		case wrongcases.Refusal:
			ok = refused
		case wrongcases.Broken:
			ok = refused || a.failed && !a.whole
		default:
			ok = a.whole && !a.failed && a.made == ""
		}
		if !ok || strings.Contains(a.content, "poison") {
			t.Errorf("%s (%s): %+v\nthe back end sent %.200q", c.Name, c.Origin, a, c.Bytes)
		}
		for _, path := range []string{"/second", "/third"} {
			if a := client.ask("GET", path); !a.whole || a.content != path {
				t.Errorf("%s: the next stream got %+v", c.Name, a)
			}
		}
		if s.reused > 0 && c.Outcome != wrongcases.Reusable {
			t.Errorf("%s: %d requests followed on the connection", c.Name, s.reused)
		}
		r.nothingLeft(client.p)
	}
}

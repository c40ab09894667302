package proxy

import (
	"bytes"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/http2"
	"github.com/millrace/millrace/internal/testkit/memtransport"
	"github.com/millrace/millrace/l7/cache"
	"github.com/millrace/millrace/l7/trace"
	"github.com/millrace/millrace/semantics"
)

const benchClients = 32

var benchResponse = []byte("HTTP/1.1 200 OK\r\nserver: bench\r\ncontent-type: application/octet-stream\r\ncontent-length: 128\r\n\r\n" + strings.Repeat("x", 128))

// newBenchRig is a rig whose backend answers each request at once.
func newBenchRig(b *testing.B) *memRig {
	r := newMemRig(b, nil)
	r.backend = func(p *memtransport.Peer) {
		p.Handler = func(p *memtransport.Peer) {
			for range bytes.Count(p.Take(), []byte("\r\n\r\n")) {
				p.Write(benchResponse)
			}
		}
	}
	return r
}

// BenchmarkRequest is what a request costs the worker, between connections in memory: parsing, routing, relaying, without
// system calls. 32 clients send at a time.
func BenchmarkRequest(b *testing.B) {
	request := []byte("GET /bytes/128 HTTP/1.1\r\nhost: bench.example\r\nuser-agent: bench\r\naccept: */*\r\n\r\n")
	b.Run("HTTP/1.1", func(b *testing.B) {
		r := newBenchRig(b)
		var clients []*memtransport.Peer
		for range benchClients {
			clients = append(clients, r.connect(memHTTP1))
		}
		b.ReportAllocs()
		for n := 0; b.Loop(); n++ {
			c := clients[n%benchClients]
			c.Write(request)
			if n%benchClients == benchClients-1 {
				r.run()
				for _, c := range clients { // one that does not read is not served
					if got := c.Take(); !bytes.HasSuffix(got, benchResponse[len(benchResponse)-128:]) {
						b.Fatalf("%q", got)
					}
				}
			}
		}
	})
	b.Run("traced", func(b *testing.B) { // a request in 100
		r := newBenchRig(b)
		r.worker.tree.Tracer = &trace.Tracer{OneIn: 100, Export: func(trace.Span) {}}
		c := r.connect(memHTTP1)
		b.ReportAllocs()
		for b.Loop() {
			c.Write(request)
			r.run()
			c.Take()
		}
	})
	b.Run("untraced", func(b *testing.B) {
		r := newBenchRig(b)
		c := r.connect(memHTTP1)
		b.ReportAllocs()
		for b.Loop() {
			c.Write(request)
			r.run()
			c.Take()
		}
	})
	b.Run("cache", func(b *testing.B) {
		r := newBenchRig(b)
		r.rule.Cache = &cache.Rule{Store: cache.NewNamed("c", cache.Options{Memory: 1 << 24}, 1, time.Now), Name: "r", Policy: cache.Policy{MaxObject: 1 << 20, DefaultTTL: time.Hour}}
		c := r.connect(memHTTP1)
		b.ReportAllocs()
		for n := 0; b.Loop(); n++ {
			c.Write(request)
			if n%benchClients == benchClients-1 {
				r.run()
				if got := c.Take(); !bytes.HasSuffix(got, benchResponse[len(benchResponse)-128:]) {
					b.Fatalf("%q", got)
				}
			}
		}
		if len(r.backs) > 1 {
			b.Fatal("the backend was asked for each")
		}
	})
	b.Run("HTTP/2", func(b *testing.B) { benchmarkHTTP2(b, newBenchRig(b), memHTTP2) })
	b.Run("connection", func(b *testing.B) {
		r := newBenchRig(b)
		last := bytes.Replace(request, []byte("accept"), []byte("connection: close\r\naccept"), 1)
		b.ReportAllocs()
		for b.Loop() {
			c := r.connect(memHTTP1)
			c.Write(last)
			r.run()
			if !bytes.HasSuffix(c.Take(), benchResponse[len(benchResponse)-128:]) || !c.Ended {
				b.Fatal("no response, or no end")
			}
			c.Close()
			r.run()
		}
	})
}

// benchmarkHTTP2 makes 32 requests at a time on one connection.
func benchmarkHTTP2(b *testing.B, r *memRig, addr netip.AddrPort) {
	c, m := r.connect(addr), http2.NewMachine(http2.RoleClient, http2.Options{})
	message := semantics.Message{
		Method: "GET", Scheme: "http", Authority: "bench.example", Path: "/bytes/128", ContentLength: -1,
		Fields: []semantics.Field{{Name: "user-agent", Value: "bench"}, {Name: "accept", Value: "*/*"}},
	}
	var out []byte
	ask := func() {
		s, err := m.Open()
		if err == nil {
			out, err = m.AppendRequest(m.AppendControl(out[:0]), s, &message, true)
		}
		if err != nil {
			b.Fatal(err)
		}
		c.Write(out)
	}
	answered := func() (n int) {
		for p := c.Take(); ; {
			ev, used, err := m.Input(p)
			if err != nil {
				b.Fatal(err)
			}
			switch p = p[used:]; ev.Kind {
			case http2.NeedInput:
				return n
			case http2.Data:
				m.Consumed(ev.Stream, len(ev.Payload))
			case http2.End:
				m.Release(ev.Stream)
				n++
			}
		}
	}
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		ask()
		if n%benchClients == benchClients-1 {
			r.run()
			if got := answered(); got != benchClients {
				b.Fatalf("%d answers", got)
			}
		}
	}
}

package proxy

import (
	"context"
	ctls "crypto/tls"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/millrace/millrace/http1"
	"github.com/millrace/millrace/internal/testkit/memtransport"
	"github.com/millrace/millrace/internal/testkit/wrongcases"
	"github.com/millrace/millrace/quic"
)

// Input that becomes no request leaves a line in the access log, with the client's address.
func TestRefusedInputIsRecorded(t *testing.T) {
	headers := []wrongcases.Field{{":method", "GET"}, {":scheme", "http"}, {":authority", "a"}, {":path", "/"}}
	with := func(more ...wrongcases.Field) []wrongcases.Field { return append(headers[:4:4], more...) }
	for _, c := range []struct {
		name string
		to   netip.AddrPort
		send string
		wait time.Duration
		want []Record
	}{
		{"syntax", memHTTP1, "GET / HTTP/1.1\r\nHost: a\r\nx y: 1\r\n\r\n", 0, []Record{{Protocol: "HTTP/1.1", Status: 400, Error: "http_request_error", Reason: "syntax"}}},
		{"no host", memHTTP1, "GET / HTTP/1.1\r\n\r\n", 0, []Record{{Protocol: "HTTP/1.1", Status: 400, Error: "http_request_error", Reason: "host"}}},
		{"slow", memHTTP1, "GET / HTTP/1.1\r\n", memTimes.Header + time.Second, []Record{{Protocol: "HTTP/1.1", Status: 408, Error: "http_request_error", Reason: "incomplete"}}},
		{"target", memHTTP1, "GET /" + strings.Repeat("a", 300) + " HTTP/1.1\r\nHost: a\r\n\r\n", 0, []Record{{Protocol: "HTTP/1.1", Status: 414, Error: "http_request_error", Reason: "size"}}},
		{"fields", memHTTP1, "GET / HTTP/1.1\r\nHost: a\r\n" + strings.Repeat("a: b\r\n", 20) + "\r\n", 0, []Record{{Protocol: "HTTP/1.1", Status: 431, Error: "http_request_error", Reason: "size"}}},
		{"none", memHTTP1, "", memTimes.Idle + time.Second, nil},
		{"HTTP/2: fields", memHTTP2, wrongcases.Preface + wrongcases.Section(1, 1, with(manyFields(20)...)), 0, []Record{{Protocol: "HTTP/2", Status: 431, Error: "http_request_error", Reason: "size"}}},
		{"HTTP/2: malformed", memHTTP2, wrongcases.Preface + wrongcases.Section(1, 1, with(wrongcases.Field{"connection", "x"})), 0, []Record{{Protocol: "HTTP/2", Error: "http_request_error", Reason: "message"}}},
		{"HTTP/2: protocol", memHTTP2, wrongcases.Preface + wrongcases.Frame(8, 0, 0, "\x00\x00\x00\x00"), 0, []Record{{Protocol: "HTTP/2", Error: "http_request_error", Reason: "protocol"}}},
		{"HTTP/2: slow", memHTTP2, wrongcases.Preface + wrongcases.Section(1, 1, headers)[:12], memTimes.Header + time.Second, []Record{{Protocol: "HTTP/2", Error: "http_request_error", Reason: "incomplete"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newMemRig(t, func(r *memRig, tree *Tree) {
				tree.Listeners[0].HTTP1 = &http1.Options{MaxTarget: 200, MaxFields: 10}
				tree.Listeners[1].HTTP2.MaxFields = 10
			})
			var got []Record
			r.worker.OnRecord(func(record *Record) { got = append(got, *record) })
			p := r.connect(c.to)
			p.Write([]byte(c.send))
			r.run()
			r.pass(c.wait)
			for i := range c.want {
				c.want[i].Client, c.want[i].Listener = p.Conn.Remote(), map[netip.AddrPort]string{memHTTP1: "one", memHTTP2: "two"}[c.to]
			}
			if diff := cmp.Diff(c.want, got, cmpopts.EquateComparable(netip.AddrPort{}, netip.Addr{})); diff != "" {
				t.Errorf("records: %s", diff)
			}
			refused := uint64(0)
			for _, n := range r.worker.Stats().RefusedBy {
				refused += n
			}
			if refused != uint64(len(c.want)) {
				t.Errorf("%d refusals are counted, want %d", refused, len(c.want))
			}
			r.nothingLeft([]*memtransport.Peer{p}...)
		})
	}
}

func manyFields(n int) (fields []wrongcases.Field) {
	for range n {
		fields = append(fields, wrongcases.Field{"a", "b"})
	}
	return fields
}

// So does a handshake of TLS that a client begins and does not complete; a connection without a byte, as of a probe, does not.
func TestFailedHandshakesAreRecorded(t *testing.T) {
	r := newRig(t, echoBackend(t, false), nil)
	records := make(chan Record, 10)
	r.do(func() { r.worker.OnRecord(func(record *Record) { records <- *record }) })
	probe, err := net.Dial("tcp", r.secure)
	must(t, err)
	must(t, probe.Close())
	for name, play := range map[string]func(c net.Conn){
		"no TLS":              func(c net.Conn) { _, _ = c.Write([]byte("GET / HTTP/1.1\r\nHost: a\r\n\r\n")) },
		"untrusted authority": func(c net.Conn) { _ = ctls.Client(c, &ctls.Config{ServerName: "gateway.test"}).Handshake() },
		"a version of the past": func(c net.Conn) {
			_ = ctls.Client(c, &ctls.Config{InsecureSkipVerify: true, MinVersion: ctls.VersionTLS10, MaxVersion: ctls.VersionTLS10}).Handshake()
		},
	} {
		c, err := net.Dial("tcp", r.secure)
		must(t, err)
		play(c)
		select {
		case got := <-records:
			if got.Client.String() != c.LocalAddr().String() || got.Listener != "secure" || got.Protocol != "TLS" || got.Status != 0 || got.Error != "tls_protocol_error" || got.Reason == "" {
				t.Errorf("%s: %+v", name, got)
			}
		case <-time.After(patience):
			t.Errorf("%s: no record", name)
		}
		must(t, c.Close())
	}
	r.settled()
	if n := r.worker.Stats().Handshakes; n != 3 || len(records) != 0 {
		t.Errorf("%d handshakes have failed, %d more records", n, len(records))
	}
}

// Handshakes of HTTP/3 that fail have lines too, with the address of the client. All are counted; a flood has a bounded number of lines.
func TestFailedHandshakesOfHTTP3AreRecorded(t *testing.T) {
	r := http3Rig(t, "127.0.0.1:1", nil)
	records := make(chan Record, 1000)
	r.do(func() { r.worker.OnRecord(func(record *Record) { records <- *record }) })
	addr, err := net.ResolveUDPAddr("udp", r.secure)
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for name, c := range map[string]*ctls.Config{
		"untrusted authority": {ServerName: "gateway.test", NextProtos: []string{"h3"}},
		"another protocol":    {InsecureSkipVerify: true, NextProtos: []string{"hq"}},
	} {
		from := quicSocket(t)
		if _, err := from.Dial(ctx, addr, c, nil); err == nil {
			t.Fatalf("%s: the handshake is complete", name)
		}
		select {
		case got := <-records:
			_, port, _ := net.SplitHostPort(from.LocalAddr().String())
			if fmt.Sprint(got.Client.Port()) != port || got.Listener != "secure" || got.Protocol != "QUIC" || got.Status != 0 || got.Error != "tls_protocol_error" || got.Reason == "" {
				t.Errorf("%s: %+v", name, got)
			}
		case <-ctx.Done():
			t.Fatalf("%s: no record", name)
		}
	}
	var endpoint *endpoint
	r.do(func() { endpoint = r.endpoints.open[netip.MustParseAddrPort(r.secure)] })
	for range 3 * maxLines {
		endpoint.handshakeFailed(&net.UDPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 7}, quic.ErrHandshakeTimeout)
	}
	r.eventually("all are counted", func() bool { return r.worker.Stats().Handshakes == 2+3*maxLines })
	if n := len(records); n < maxLines-2 || n >= 3*maxLines {
		t.Errorf("%d lines of %d", n, 3*maxLines)
	}
	if got := <-records; got.Client.String() != "192.0.2.1:7" || got.Error != "connection_timeout" {
		t.Errorf("%+v", got)
	}
}

// Connections that are refused as soon as they come have lines with the reason, as many as there may be in a second. All are counted.
func TestDeniedConnectionsAreRecorded(t *testing.T) {
	r := newMemRig(t, func(r *memRig, tree *Tree) {
		for _, ln := range tree.Listeners {
			ln.Limits.Connections = 1
		}
	})
	var got []Record
	r.worker.OnRecord(func(record *Record) { got = append(got, *record) })
	var first []*memtransport.Peer
	for _, to := range []netip.AddrPort{memHTTP1, memHTTP2} {
		first = append(first, r.connect(to))
		p := r.connect(to)
		r.run()
		want := []Record{{
			Client: p.Conn.Remote(), Listener: map[netip.AddrPort]string{memHTTP1: "one", memHTTP2: "two"}[to],
			Protocol: "TCP", Error: "connection_limit_reached", Reason: "limit",
		}}
		if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.AddrPort{}, netip.Addr{})); diff != "" || !p.Reset {
			t.Errorf("records: %s", diff)
		}
		got = nil
	}
	for range 3 * maxLines {
		r.connect(memHTTP1)
	}
	r.run()
	if n := len(got); n > maxLines || n < maxLines-2 {
		t.Errorf("%d lines, want %d", n, maxLines)
	}
	if n := r.worker.admissions["one"].Refused(DeniedLimit); n != 3*maxLines+1 {
		t.Errorf("%d are counted", n)
	}
	r.pass(2 * time.Second)
	got = nil
	r.worker.draining = true
	r.connect(memHTTP1)
	r.run()
	if len(got) != 1 || got[0].Error != "destination_unavailable" || got[0].Reason != "draining" {
		t.Errorf("while draining: %+v", got)
	}
	r.nothingLeft(first...)
}

// So have those of HTTP/3, before the handshake and after it.
func TestDeniedConnectionsOfHTTP3AreRecorded(t *testing.T) {
	var shared *Admission
	for _, before := range []bool{false, true} {
		r := http3Rig(t, "127.0.0.1:1", func(r *rig) {
			if r.tree.Listeners[1].Limits.Connections = 1; before {
				shared = &Admission{}
				r.tree.Listeners[1].Admission = shared
			}
		})
		records := make(chan Record, 10)
		r.do(func() { r.worker.OnRecord(func(record *Record) { records <- *record }) })
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		r.dial3(ctx, quicSocket(t), nil)
		r.eventually("the first connection", func() bool { return len(r.worker.fronts3) == 1 })
		from := quicSocket(t)
		addr, err := net.ResolveUDPAddr("udp", r.secure)
		must(t, err)
		_, err = from.Dial(ctx, addr, &ctls.Config{RootCAs: r.roots, ServerName: "gateway.test", NextProtos: []string{"h3"}}, nil)
		if before != (err != nil) {
			t.Errorf("before the handshake %v: %v", before, err)
		}
		select {
		case got := <-records:
			_, port, _ := net.SplitHostPort(from.LocalAddr().String())
			if fmt.Sprint(got.Client.Port()) != port || got.Listener != "secure" || got.Protocol != "QUIC" || got.Error != "connection_limit_reached" || got.Reason != "limit" {
				t.Errorf("before the handshake %v: %+v", before, got)
			}
		case <-ctx.Done():
			t.Fatal("no record")
		}
		if n := r.worker.Stats().Handshakes; n != 0 {
			t.Errorf("%d handshakes have failed", n)
		}
	}
}

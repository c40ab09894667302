package proxy

import (
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/filter/inspect"
	"github.com/millrace/millrace/filter/signature"
	"github.com/millrace/millrace/http2"
	"github.com/millrace/millrace/internal/testkit/memtransport"
	"github.com/millrace/millrace/semantics"
	"github.com/millrace/millrace/wire"
)

// wireEngine sees the bytes of a connection as segments of TCP, as the inspection of services does.
type wireEngine struct {
	*inspect.Engine
	port uint16
	now  int64
	seq  [2]uint32
	sids map[uint32]bool
}

func newWireEngine(r *inspect.Rules, port uint16) *wireEngine {
	w := &wireEngine{port: port, seq: [2]uint32{1, 1}, sids: map[uint32]bool{}}
	w.Engine = inspect.New(r, inspect.Config{Inline: true}, func(a *inspect.Alert) {
		if a.Rule != nil {
			w.sids[a.Rule.SID] = true
		}
	})
	w.segment(0, wire.FlagSYN, nil, true)
	w.segment(1, wire.FlagSYN|wire.FlagACK, nil, false)
	w.segment(0, wire.FlagACK, nil, false)
	return w
}

// segment hands over a segment of the client (0) or of the server.
func (w *wireEngine) segment(side int, flags wire.TCPFlags, b []byte, fresh bool) {
	addrs, ports := [2][4]byte{{198, 18, 0, 9}, {192, 0, 2, 1}}, [2]uint16{40000, w.port}
	seq := w.seq[side]
	if flags.Has(wire.FlagSYN) {
		seq--
	}
	h := wire.TCPHeader{SrcPort: ports[side], DstPort: ports[1-side], Seq: seq, Ack: w.seq[1-side], Flags: flags, Window: 65535}
	t := append(wire.AppendTCP(nil, &h), b...)
	frame := wire.AppendEthernet(nil, wire.MAC{2}, wire.MAC{2, 1}, wire.EtherTypeIPv4)
	frame = wire.AppendIPv4(frame, &wire.IPv4Header{PayloadLen: len(t), TTL: 64, Proto: wire.ProtoTCP, Src: addrs[side], Dst: addrs[1-side]})
	w.now += 1e6
	w.seq[side] += uint32(len(b))
	w.Inspect(&inspect.Input{Now: w.now, Frame: append(frame, t...), Dir: signature.DirectionOf(side), Fresh: fresh})
}

func (w *wireEngine) send(side int, b []byte) {
	for part := range slices.Chunk(b, 1400) {
		w.segment(side, wire.FlagACK, part, false)
	}
}

var equalWords = []string{
	"alpha", "bravo", "Charlie", "delta", "echo-1", "fox", "/golf", "hotel.php", "index", "juliet=1", "kilo", "lima", "mike", "..%2f", "%41", "union select",
}

func anyOf[T any](rnd *rand.Rand, list ...T) T { return list[rnd.IntN(len(list))] }

// equalRules generates rules on buffers of requests and of responses.
func equalRules(rnd *rand.Rand, n int, responses bool) string {
	buffers := []string{
		"http.method", "http.uri", "http.uri.raw", "http.host", "http.host.raw", "http.user_agent", "http.header", "http.header.raw", "http.header_names", "http.cookie",
		"http.request_line", "http.protocol", "http.content_type", "http.content_len", "http.referer", "http.accept", "http.accept_enc", "http.accept_lang",
		"http.request_body", "file.data", "file.name", "http.start", "http.connection",
	}
	if responses {
		buffers = append(buffers, "http.stat_code", "http.stat_msg", "http.response_body", "http.response_line", "http.server", "http.location")
	}
	var b strings.Builder
	for sid := range n {
		flow := ""
		switch {
		case !responses:
			flow = "flow:established,to_server; "
		case rnd.IntN(2) == 0:
			flow = anyOf(rnd, "flow:to_server; ", "flow:established; ", "flow:to_client; ")
		}
		fmt.Fprintf(&b, "alert http any any -> any %s (%s", anyOf(rnd, "any", "any", "80", "!80", "[80,443]"), flow)
		for range 1 + rnd.IntN(2) {
			fmt.Fprintf(&b, "%s; ", anyOf(rnd, buffers...))
			if rnd.IntN(5) == 0 {
				b.WriteString(anyOf(rnd, "to_lowercase; ", "url_decode; ", "strip_whitespace; "))
			}
			switch rnd.IntN(9) {
			case 0:
				fmt.Fprintf(&b, "bsize:%s%d; ", anyOf(rnd, "", "<", ">"), 1+rnd.IntN(20))
			case 1:
				fmt.Fprintf(&b, `pcre:"/%s/%s"; `, anyOf(rnd, "a[lr]p?ha", "bra", "^G", "1$", "[0-9]{2}"), anyOf(rnd, "", "i"))
			default:
				word := anyOf(rnd, append(equalWords, "GET", "POST", "HTTP/1.1", "gzip", "text/", "200", "OK", "7", "Host")...)
				fmt.Fprintf(&b, `content:%s"%s"; %s%s`, anyOf(rnd, "", "", "", "!"), word, anyOf(rnd, "", "nocase; "), anyOf(rnd, "", "", "", "startswith; ", "endswith; ", "depth:12; "))
			}
		}
		fmt.Fprintf(&b, "sid:%d;)\n", sid+1)
	}
	return b.String()
}

// usable leaves out the rules that the parser refuses, such as a depth below the length of a content.
func usable(t *testing.T, text string) (*inspect.Rules, int) {
	f := signature.Parse("test", text, nil)
	list := slices.DeleteFunc(f.Rules, func(r *signature.Rule) bool { return inspect.NotOfMessages(r) != "" })
	r, err := inspect.Compile(list)
	must(t, err)
	return r, len(list)
}

// equalBody generates content and its coding.
func equalBody(rnd *rand.Rand) (body, coding, kind string) {
	for range 1 + rnd.IntN(6) {
		body += anyOf(rnd, equalWords...) + anyOf(rnd, "", " ", "&", "\r\n")
	}
	if rnd.IntN(6) == 0 {
		body = strings.Repeat(body, 40)
	}
	switch kind = anyOf(rnd, "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=B7"); {
	case strings.HasPrefix(kind, "multipart"):
		body = fmt.Sprintf("--B7\r\nContent-Disposition: form-data; name=a; filename=\"%s\"\r\n\r\n%s\r\n--B7\r\n\r\nmore\r\n--B7--\r\n", anyOf(rnd, equalWords...), body)
	case rnd.IntN(3) == 0:
		coding = anyOf(rnd, "gzip", "deflate", "br", "gzip, gzip", "gzip")
		var b bytes.Buffer
		for name := range strings.SplitSeq(coding, ", ") {
			var z io.WriteCloser = gzip.NewWriter(&b)
			if name == "deflate" {
				z = zlib.NewWriter(&b)
			}
			io.WriteString(z, body)
			z.Close()
			if body = b.String(); rnd.IntN(8) == 0 {
				body = "a label that is wrong: bravo"
			}
			b.Reset()
		}
	}
	return body, coding, kind
}

// equalRequest generates a request that the gateway serves.
func equalRequest(rnd *rand.Rand) semantics.Message {
	m := semantics.Message{Method: anyOf(rnd, "GET", "POST", "PUT", "bravo"), Scheme: "http", Authority: anyOf(rnd, "alpha", "Bravo.example:80", "kilo"), ContentLength: -1}
	for range 1 + rnd.IntN(3) {
		m.Path += "/" + anyOf(rnd, append(equalWords[:13], "a%2fb", "%62ravo", ".", "x")...)
	}
	m.Path = strings.ReplaceAll(m.Path, "//", "/") + anyOf(rnd, "", "?q=union+select", "?a=%62ravo&b=juliet=1")
	for _, f := range [...]string{"user-agent", "accept", "accept-encoding", "accept-language", "referer", "cookie", "x-echo", "x-echo"} {
		if rnd.IntN(2) == 0 {
			m.Fields = append(m.Fields, semantics.Field{Name: f, Value: anyOf(rnd, append(equalWords, "gzip", "a b  c")...)})
		}
	}
	return m
}

// asSent writes a request of HTTP/1.1 as clients do, with names in several cases and blanks.
func asSent(rnd *rand.Rand, m *semantics.Message, body, coding, kind string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\n%s: %s\r\n", m.Method, m.Path, anyOf(rnd, "Host", "host", "HOST"), m.Authority)
	for _, f := range m.Fields {
		name := f.Name
		if rnd.IntN(2) == 0 {
			name = strings.ToUpper(name[:1]) + name[1:]
		}
		fmt.Fprintf(&b, "%s:%s%s\r\n", name, anyOf(rnd, " ", "", "  "), f.Value)
	}
	if m.Method == "GET" {
		return b.String() + anyOf(rnd, "", "Connection: keep-alive\r\n") + "\r\n"
	}
	fmt.Fprintf(&b, "Content-Type: %s\r\n", kind)
	if coding != "" {
		fmt.Fprintf(&b, "Content-Encoding: %s\r\n", coding)
	}
	if rnd.IntN(3) == 0 {
		b.WriteString("Transfer-Encoding: chunked\r\n\r\n")
		for part := range slices.Chunk([]byte(body), 1+rnd.IntN(50)) {
			fmt.Fprintf(&b, "%x\r\n%s\r\n", len(part), part)
		}
		return b.String() + "0\r\n\r\n"
	}
	fmt.Fprintf(&b, "Content-Length: %d\r\n\r\n%s", len(body), body)
	return b.String()
}

// compareSids reports the rules that only one of two engines has found.
func compareSids(t *testing.T, rules, what string, wired, served map[uint32]bool) {
	t.Helper()
	lines := strings.Split(rules, "\n")
	for sid := range wired {
		if !served[sid] {
			t.Errorf("on the wire alone: %s\n%.400s", lines[sid-1], what)
		}
	}
	for sid := range served {
		if !wired[sid] {
			t.Errorf("at the listener alone: %s\n%.400s", lines[sid-1], what)
		}
	}
}

// TestRequestsMatchAsTheirPackets compares what rules match of the same requests and responses as packets and at a listener.
func TestRequestsMatchAsTheirPackets(t *testing.T) {
	rnd := rand.New(rand.NewPCG(7, 7))
	text := equalRules(rnd, 600, true)
	rules, n := usable(t, text)
	matches := 0
	for i := range 300 {
		m := equalRequest(rnd)
		body, coding, kind := equalBody(rnd)
		request := asSent(rnd, &m, body, coding, kind)
		answer, answerCoding, answerKind := equalBody(rnd)
		response := fmt.Sprintf("HTTP/1.1 200 OK\r\nServer: alpha\r\nContent-Type: %s\r\n", answerKind)
		if answerCoding != "" {
			response += "Content-Encoding: " + answerCoding + "\r\n"
		}
		response += fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(answer), answer)

		served := map[uint32]bool{}
		r := newInspectRig(t, inspect.Detect, 1<<16, evilURI)
		r.use(inspect.New(rules, inspect.Config{Inline: true}, func(a *inspect.Alert) { served[a.Rule.SID] = true }))
		r.backend = func(p *memtransport.Peer) {
			p.Handler = func(p *memtransport.Peer) {
				if bytes.Contains(p.Take(), []byte("HTTP/1.1\r\n")) {
					p.Write([]byte(response))
				}
			}
		}
		if got := r.ask(request); !strings.HasPrefix(got, "HTTP/1.1 200 ") {
			t.Fatalf("%q: %q", request, got)
		}
		r.released()

		w := newWireEngine(rules, memHTTP1.Port())
		w.send(0, []byte(request))
		w.send(1, []byte(response))
		w.Flush()
		compareSids(t, text, fmt.Sprintf("%d: %q, answered %q", i, request, response), w.sids, served)
		if matches += len(w.sids); t.Failed() {
			t.FailNow()
		}
	}
	t.Logf("%d rules, %d matches", n, matches)
	if n < 300 || matches < 2000 {
		t.Errorf("%d rules and %d matches say little", n, matches)
	}
}

// TestHTTP2MatchesAsItsPackets compares requests of HTTP/2 without TLS in the same way.
func TestHTTP2MatchesAsItsPackets(t *testing.T) {
	rnd := rand.New(rand.NewPCG(8, 8))
	text := equalRules(rnd, 600, false)
	rules, n := usable(t, text)
	matches := 0
	for i := range 200 {
		q := equalRequest(rnd)
		body, coding, kind := equalBody(rnd)
		if q.Method == "GET" {
			body = ""
		} else {
			if q.Fields = append(q.Fields, semantics.Field{Name: "content-type", Value: kind}); coding != "" {
				q.Fields = append(q.Fields, semantics.Field{Name: "content-encoding", Value: coding})
			}
			if rnd.IntN(2) == 0 {
				q.ContentLength = int64(len(body))
			}
		}
		served := map[uint32]bool{}
		r := newInspectRig(t, inspect.Detect, 1<<16, evilURI)
		r.use(inspect.New(rules, inspect.Config{Inline: true}, func(a *inspect.Alert) { served[a.Rule.SID] = true }))
		m := http2.NewMachine(http2.RoleClient, http2.Options{})
		s, err := m.Open()
		must(t, err)
		sent, err := m.AppendRequest(m.AppendControl(nil), s, &q, body == "")
		must(t, err)
		if body != "" {
			took := 0
			if sent, took, err = m.AppendData(sent, s, []byte(body), true); took != len(body) || err != nil {
				t.Fatalf("%d of %d bytes were sent: %v", took, len(body), err)
			}
		}
		c := r.connect(memHTTP2)
		c.Write(sent)
		r.run()
		if r.records == nil || r.records[0].Status != 200 {
			t.Fatalf("%+v: %+v", q, r.records)
		}
		r.released(c)

		w := newWireEngine(rules, memHTTP2.Port())
		w.send(0, sent)
		w.Flush()
		compareSids(t, text, fmt.Sprintf("%d: %+v %q", i, q, body), w.sids, served)
		if matches += len(w.sids); t.Failed() {
			t.FailNow()
		}
	}
	t.Logf("%d rules, %d matches", n, matches)
	if n < 300 || matches < 1000 {
		t.Errorf("%d rules and %d matches say little", n, matches)
	}
}

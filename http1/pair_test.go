package http1

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/testkit/cut"
	"github.com/millrace/millrace/semantics"
)

// must returns the bytes of an Append method that does not fail.
func must(t testing.TB) func(b []byte, err error) []byte {
	return func(b []byte, err error) []byte {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
}

func newRequest(method, path string, length int64, fields ...semantics.Field) *semantics.Message {
	return &semantics.Message{Method: method, Scheme: "http", Authority: "a", Path: path, ContentLength: length, Fields: fields}
}

func TestAppendRequest(t *testing.T) {
	for _, test := range []struct {
		name string
		msg  *semantics.Message
		end  bool
		want string
	}{
		{"GET", newRequest("GET", "/x", -1, semantics.Field{Name: "a", Value: "b"}), true, "GET /x HTTP/1.1\r\nhost: a\r\na: b\r\n\r\n"},
		{"POST without content states so (RFC 9110 8.6)", newRequest("POST", "/", -1), true, "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n"},
		{"a length", newRequest("POST", "/", 5), false, "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\n"},
		{"no length", newRequest("GET", "/", -1), false, "GET / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n"},
		{
			"fields that are its own", newRequest("GET", "/", -1, semantics.Field{Name: "host", Value: "b"}, semantics.Field{Name: "content-length", Value: "7"},
				semantics.Field{Name: "te", Value: "trailers"}, semantics.Field{Name: "connection", Value: "x"}, semantics.Field{Name: "transfer-encoding", Value: "x"},
				semantics.Field{Name: "keep-alive", Value: "x"}, semantics.Field{Name: "proxy-connection", Value: "x"}, semantics.Field{Name: "upgrade", Value: "h2c"}),
			true, "GET / HTTP/1.1\r\nhost: a\r\n\r\n",
		},
		{"cookies of HTTP/2 (RFC 9113 8.2.3)", newRequest("GET", "/", -1, semantics.Field{Name: "cookie", Value: "a=1"}, semantics.Field{Name: "b", Value: "c"},
			semantics.Field{Name: "cookie", Value: "d=2"}), true, "GET / HTTP/1.1\r\nhost: a\r\ncookie: a=1; d=2\r\nb: c\r\n\r\n"},
		{"CONNECT", &semantics.Message{Method: "CONNECT", Authority: "a:443", ContentLength: -1}, true, "CONNECT a:443 HTTP/1.1\r\nhost: a:443\r\n\r\n"},
		{
			"an upgrade", &semantics.Message{Method: "GET", Authority: "a", Path: "/", Protocol: "websocket", ContentLength: -1}, true,
			"GET / HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := NewMachine(RoleClient, Options{})
			if got := string(must(t)(m.AppendRequest(nil, test.msg, test.end))); got != test.want {
				t.Errorf("got  %q\nwant %q", got, test.want)
			}
		})
	}
}

func TestAppendResponse(t *testing.T) {
	const get, old = "GET / HTTP/1.1\r\nHost: a\r\n\r\n", "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"
	for _, test := range []struct {
		name, request string
		msg           semantics.Message
		end           bool
		want          string
		keep          bool
	}{
		{"no content", get, semantics.Message{Status: 200, ContentLength: -1}, true, "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", true},
		{"a length", get, semantics.Message{Status: 404, ContentLength: 9}, false, "HTTP/1.1 404 Not Found\r\ncontent-length: 9\r\n\r\n", true},
		{"no length", get, semantics.Message{Status: 200, ContentLength: -1}, false, "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", true},
		{"an unknown status", get, semantics.Message{Status: 299, ContentLength: -1}, true, "HTTP/1.1 299 \r\ncontent-length: 0\r\n\r\n", true},
		{"204", get, semantics.Message{Status: 204, ContentLength: -1}, true, "HTTP/1.1 204 No Content\r\n\r\n", true},
		{"204 has no length", get, semantics.Message{Status: 204, ContentLength: 0}, true, "HTTP/1.1 204 No Content\r\n\r\n", true},
		{"304 with the length of a 200", get, semantics.Message{Status: 304, ContentLength: 7}, true, "HTTP/1.1 304 Not Modified\r\ncontent-length: 7\r\n\r\n", true},
		{"HEAD", "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n", semantics.Message{Status: 200, ContentLength: 7}, false, "HTTP/1.1 200 OK\r\ncontent-length: 7\r\n\r\n", true},
		{"HEAD without a length", "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n", semantics.Message{Status: 200, ContentLength: -1}, false, "HTTP/1.1 200 OK\r\n\r\n", true},
		{
			"the client closes", "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
			semantics.Message{Status: 200, ContentLength: -1},
			true,
			"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n", false,
		},
		{"HTTP/1.0", old, semantics.Message{Status: 200, ContentLength: 3}, false, "HTTP/1.1 200 OK\r\ncontent-length: 3\r\nconnection: keep-alive\r\n\r\n", true},
		{"HTTP/1.0 has no chunks", old, semantics.Message{Status: 200, ContentLength: -1}, false, "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n", false},
		{"an interim response", get, semantics.Message{Status: 103, Fields: []semantics.Field{{Name: "link", Value: "</a>"}}}, false, "HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n", true},
		{"CONNECT", "CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n", semantics.Message{Status: 200, ContentLength: -1}, false, "HTTP/1.1 200 OK\r\n\r\n", false},
		{
			"an upgrade", "GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
			semantics.Message{Status: 101, Protocol: "websocket"},
			false,
			"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n", false,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := server()
			if ev, _, err := m.Input([]byte(test.request), false); ev.Kind != Headers || err != nil {
				t.Fatal(ev, err)
			}
			if got := string(must(t)(m.AppendResponse(nil, &test.msg, test.end))); got != test.want {
				t.Errorf("got  %q\nwant %q", got, test.want)
			}
			if none := test.end || strings.HasPrefix(test.request, "HEAD"); none && m.Sending() != NoBody {
				t.Errorf("content of the kind %s is awaited", m.Sending())
			}
			if m.KeepAlive() != test.keep {
				t.Errorf("KeepAlive is %v", m.KeepAlive())
			}
		})
	}
}

func TestFaultsOfTheCaller(t *testing.T) {
	c, s := NewMachine(RoleClient, Options{}), server()
	if _, err := s.AppendResponse(nil, &semantics.Message{Status: 200}, true); !errors.Is(err, ErrNoRequest) {
		t.Errorf("a response without a request: %v", err)
	}
	if out, err := c.AppendRequest(nil, newRequest("GET", "/", 5), true); !errors.Is(err, ErrLength) || len(out) > 0 {
		t.Errorf("a length without content: %q, %v", out, err)
	}
	must(t)(c.AppendRequest(nil, newRequest("POST", "/", 5), false))
	if _, err := c.AppendRequest(nil, newRequest("GET", "/", -1), true); !errors.Is(err, ErrInProgress) {
		t.Errorf("a second request: %v", err)
	}
	if out, err := c.AppendData([]byte("x"), []byte("123456")); !errors.Is(err, ErrLength) || string(out) != "x" {
		t.Errorf("more than the length: %q, %v", out, err)
	}
	must(t)(c.AppendData(nil, []byte("1234")))
	if _, err := c.AppendEnd(nil, nil); !errors.Is(err, ErrLength) || c.KeepAlive() {
		t.Errorf("less than the length: %v, kept %v", err, c.KeepAlive())
	}
	s.Input([]byte("GET / HTTP/1.1\r\nHost: a\r\n\r\n"), false)
	if _, err := s.AppendResponse(nil, &semantics.Message{Status: 200, ContentLength: 1}, true); !errors.Is(err, ErrLength) {
		t.Errorf("a response that ends before its length: %v", err)
	}
	must(t)(s.AppendResponse(nil, &semantics.Message{Status: 204, ContentLength: -1}, true))
	if _, err := s.AppendData(nil, []byte("x")); !errors.Is(err, ErrLength) {
		t.Errorf("content after 204: %v", err)
	}
	if _, err := s.AppendResponse(nil, &semantics.Message{Status: 200, ContentLength: -1}, true); !errors.Is(err, ErrNoRequest) {
		t.Errorf("a second response: %v", err)
	}
}

// What waits behind a request is not read before its response is complete (pipelining).
func TestTheNextRequestWaitsForTheResponse(t *testing.T) {
	m := server()
	in := []byte("GET /1 HTTP/1.1\r\nHost: a\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\n\r\n")
	events := func(kinds ...EventKind) {
		t.Helper()
		for _, want := range kinds {
			ev, n, err := m.Input(in, false)
			if in = in[n:]; err != nil || ev.Kind != want {
				t.Fatalf("event %d, want %d (%v)", ev.Kind, want, err)
			}
		}
	}
	events(Headers, End, NeedInput)
	if !bytes.HasPrefix(in, []byte("GET /2")) || m.Idle() {
		t.Fatalf("left are %q, idle %v", in, m.Idle())
	}
	must(t)(m.AppendResponse(nil, &semantics.Message{Status: 103}, false))
	events(NeedInput)
	must(t)(m.AppendResponse(nil, &semantics.Message{Status: 200, ContentLength: 1}, false))
	must(t)(m.AppendData(nil, []byte("x")))
	events(NeedInput)
	must(t)(m.AppendEnd(nil, nil))
	events(Headers)
	if m.Message().Path != "/2" {
		t.Errorf("path %s", m.Message().Path)
	}
	events(End, NeedInput)
	m.CloseAfter()
	if out := must(t)(m.AppendResponse(nil, &semantics.Message{Status: 200, ContentLength: -1}, true)); !strings.Contains(string(out), "connection: close\r\n") {
		t.Errorf("last response %q", out)
	}
	in = []byte("GET /3")
	events(NeedInput)
	if len(in) != 6 || m.KeepAlive() {
		t.Errorf("a request after the last was read")
	}
}

// A response that ends before the request is complete: the client goes on sending, and then the connection is free.
func TestAnEarlyResponse(t *testing.T) {
	c := NewMachine(RoleClient, Options{})
	must(t)(c.AppendRequest(nil, newRequest("POST", "/", 2), false))
	if got := trace(c, "HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\n\r\n", false, cut.Whole); !strings.HasSuffix(got, "end\n") {
		t.Fatal(got)
	}
	if c.Idle() {
		t.Error("the request is not complete")
	}
	must(t)(c.AppendData(nil, []byte("ab")))
	must(t)(c.AppendEnd(nil, nil))
	if !c.Idle() || !c.KeepAlive() {
		t.Error("the connection is not free")
	}
}

// Random messages go from one machine to the other and back, and are the same there.
func TestPairs(t *testing.T) {
	for seed := range uint64(300) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { runPair(t, rand.New(rand.NewPCG(seed, 7))) })
	}
}

// runPair exchanges messages on one connection.
func runPair(t *testing.T, r *rand.Rand) {
	c, s := NewMachine(RoleClient, Options{}), server()
	for range 1 + r.IntN(4) {
		method := []string{"GET", "POST", "HEAD", "PUT"}[r.IntN(4)]
		sent := newRequest(method, "/"+strings.Repeat("p", r.IntN(300)), -1, randomFields(r)...)
		out, want := sendMessage(t, r, c, func(end bool) []byte { return must(t)(c.AppendRequest(nil, sent, end)) }, sent, false)
		got := receive(t, r, s, out)
		if want = fmt.Sprintf("%s %s %s", method, sent.Path, want); got != want {
			t.Fatalf("request\ngot  %s\nwant %s", got, want)
		}
		answer := &semantics.Message{Status: []int{200, 204, 304, 404}[r.IntN(4)], ContentLength: -1, Fields: randomFields(r)}
		none := method == "HEAD" || answer.Status == 204 || answer.Status == 304
		out, want = sendMessage(t, r, s, func(end bool) []byte { return must(t)(s.AppendResponse(nil, answer, end)) }, answer, none)
		got = receive(t, r, c, out)
		if want = fmt.Sprintf("%d %s", answer.Status, want); got != want {
			t.Fatalf("response to %s\ngot  %s\nwant %s", method, got, want)
		}
		if !c.Idle() || !s.Idle() || !c.KeepAlive() || !s.KeepAlive() {
			t.Fatal("the connection is not free")
		}
	}
}

// sendMessage appends a message with random content, and returns what its receiver should report.
func sendMessage(t *testing.T, r *rand.Rand, m *Machine, header func(end bool) []byte, msg *semantics.Message, none bool) (out []byte, want string) {
	content := make([]byte, r.IntN(3)*r.IntN(2000))
	for i := range content {
		content[i] = byte(r.Uint32())
	}
	var trailers []semantics.Field
	switch {
	case none:
		content = nil
	case r.IntN(2) == 0:
		msg.ContentLength = int64(len(content))
	default:
		trailers = randomFields(r)[1:]
	}
	end := none || len(content) == 0 && msg.ContentLength == 0
	out = header(end)
	if !end {
		for rest := content; len(rest) > 0; {
			n := 1 + r.IntN(len(rest))
			out = must(t)(m.AppendData(out, rest[:n]))
			rest = rest[n:]
		}
		out = must(t)(m.AppendData(out, nil))
		out = must(t)(m.AppendEnd(out, trailers))
	}
	return out, fmt.Sprintf("%s %x %s", describeFields(msg.Fields), content, describeFields(trailers))
}

// receive feeds a machine a message at random cuts, and returns what it reports.
func receive(t *testing.T, r *rand.Rand, m *Machine, in []byte) string {
	var start string
	var content []byte
	trailers := "[]"
	for {
		n := r.IntN(len(in) + 1)
		ev, used, err := m.Input(in[:n], false)
		if err != nil {
			t.Fatal(err)
		}
		in = in[used:]
		switch ev.Kind {
		case Headers:
			msg := m.Message()
			if start = fmt.Sprintf("%s %s ", msg.Method, msg.Path); msg.Status != 0 {
				start = fmt.Sprintf("%d ", msg.Status)
			}
			start += describeFields(msg.Fields)
		case Data:
			content = append(content, ev.Payload...)
		case Trailers:
			trailers = describeFields(m.Trailers())
		case End:
			if len(in) > 0 {
				t.Fatalf("%q is left", in)
			}
			return fmt.Sprintf("%s %x %s", start, content, trailers)
		}
	}
}

func randomFields(r *rand.Rand) []semantics.Field {
	fields := []semantics.Field{{Name: "x-first", Value: ""}}
	for i := range r.IntN(8) {
		fields = append(fields, semantics.Field{Name: fmt.Sprintf("x-%d", i), Value: strings.Repeat("v w", 1+r.IntN(40))})
	}
	return fields
}

// One connection, many requests and responses: nothing is allocated once buffers have grown.
func TestNothingIsAllocated(t *testing.T) {
	c, s := NewMachine(RoleClient, Options{}), server()
	get := newRequest("POST", "/path", -1, semantics.Field{Name: "x", Value: "y"}, semantics.Field{Name: "accept", Value: "*/*"})
	answer := &semantics.Message{Status: 200, ContentLength: -1, Fields: get.Fields}
	trailer := []semantics.Field{{Name: "t", Value: "u"}}
	var buf []byte
	drain := func(m *Machine) {
		for in := buf; ; {
			ev, n, err := m.Input(in, false)
			if err != nil {
				t.Fatal(err)
			}
			if in = in[n:]; ev.Kind == End {
				return
			}
		}
	}
	allocs := testing.AllocsPerRun(100, func() {
		buf, _ = c.AppendRequest(buf[:0], get, false)
		buf, _ = c.AppendData(buf, []byte("content"))
		buf, _ = c.AppendEnd(buf, trailer)
		drain(s)
		buf, _ = s.AppendResponse(buf[:0], answer, false)
		buf, _ = s.AppendData(buf, []byte("content"))
		buf, _ = s.AppendEnd(buf, trailer)
		drain(c)
	})
	if allocs != 0 {
		t.Errorf("%v allocations for a request and its response", allocs)
	}
}

func TestResetAndCompact(t *testing.T) {
	m := server()
	in := "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
	first := trace(m, in, false, cut.Whole)
	m.Compact()
	if m.buf != nil {
		t.Error("an idle connection keeps its buffer")
	}
	m.Reset()
	if second := trace(m, in, false, cut.Whole); second != first {
		t.Errorf("after Reset\n%s", second)
	}
	m.Reset()
	m.Input([]byte("GET /"), false)
	if m.Compact(); m.buf == nil {
		t.Error("Compact has taken the buffer of a request in progress")
	}
}

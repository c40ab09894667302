package http1

import (
	"fmt"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/testkit/cut"
	"github.com/millrace/millrace/semantics"
)

// asked returns a client that waits for the response to a request.
func asked(method, protocol string) func() *Machine {
	return func() *Machine {
		m := NewMachine(RoleClient, Options{})
		_, err := m.AppendRequest(nil, &semantics.Message{Method: method, Authority: "a:1", Path: "/", Protocol: protocol, ContentLength: -1}, true)
		if err != nil {
			panic(err)
		}
		return m
	}
}

func TestResponses(t *testing.T) {
	for _, test := range []struct{ name, method, in, want string }{
		{
			"a length", "GET", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nA: b\r\n\r\nxy",
			`response 1.1 200 "OK" length=2 body=length [a="b"]` + "\ndata \"xy\"\nend\n",
		},
		{"no reason", "GET", "HTTP/1.1 404 \r\nContent-Length: 0\r\n\r\n", "response 1.1 404 \"\" length=0 body=none []\nend\n"},
		{"no reason and no space", "GET", "HTTP/1.1 404\r\nContent-Length: 0\r\n\r\n", "response 1.1 404 \"\" length=0 body=none []\nend\n"},
		{
			"a reason with blanks", "GET", "HTTP/1.1 404 Not  here \r\nContent-Length: 0\r\n\r\n",
			"response 1.1 404 \"Not  here \" length=0 body=none []\nend\n",
		},
		{
			"chunks", "GET", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nxy\r\n0\r\nT: u\r\n\r\n",
			"response 1.1 200 \"OK\" body=chunked []\ndata \"xy\"\ntrailers [t=\"u\"]\nend\n",
		},
		{
			"up to the end of the connection (RFC 9112 6.3 rule 8)", "GET", "HTTP/1.1 200 OK\r\n\r\nxy",
			"response 1.1 200 \"OK\" body=until close close []\ndata \"xy\"\nend\n",
		},
		{"HTTP/1.0", "GET", "HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\nx", "response 1.0 200 \"OK\" length=1 body=length close []\ndata \"x\"\nend\n"},
		{
			"HEAD has no content (rule 1)", "HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n",
			"response 1.1 200 \"OK\" length=9 body=none []\nend\n",
		},
		{"HEAD has no chunks", "HEAD", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "response 1.1 200 \"OK\" body=none []\nend\n"},
		{
			"304 has no content", "GET", "HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n",
			"response 1.1 304 \"Not Modified\" length=9 body=none []\nend\n",
		},
		{"204 has no content", "GET", "HTTP/1.1 204 No Content\r\n\r\n", "response 1.1 204 \"No Content\" body=none []\nend\n"},
		{
			"204 with a length of content is the last", "GET", "HTTP/1.1 204 No Content\r\nContent-Length: 4\r\n\r\n",
			"response 1.1 204 \"No Content\" body=none close []\nend\n",
		},
		{
			"interim responses (RFC 9110 15.2)", "GET", "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
			"response 1.1 100 \"Continue\" body=none []\nresponse 1.1 103 \"Early Hints\" body=none [link=\"</a>\"]\nresponse 1.1 200 \"OK\" length=0 body=none []\nend\n",
		},
		{"close", "GET", "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n", "response 1.1 200 \"OK\" length=0 body=none close []\nend\n"},
		{
			"CONNECT opens a tunnel", "CONNECT", "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcdef",
			"response 1.1 200 \"OK\" length=3 body=none []\ndata \"abcdef\"\nend\n",
		},
		{"CONNECT that fails", "CONNECT", "HTTP/1.1 403 No\r\nContent-Length: 1\r\n\r\nx", "response 1.1 403 \"No\" length=1 body=length []\ndata \"x\"\nend\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := traceAll(t, asked(test.method, ""), test.in, true); got != test.want {
				t.Errorf("input %q\ngot:\n%swant:\n%s", test.in, got, test.want)
			}
		})
	}
}

func TestSwitchingProtocols(t *testing.T) {
	got := traceAll(t, asked("GET", "websocket"), "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nframes", true)
	if want := "response 1.1 101 \"Switching Protocols\" protocol=websocket body=none []\ndata \"frames\"\nend\n"; got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

func TestRefusedResponses(t *testing.T) {
	for _, test := range []struct {
		name, in string
		status   int
	}{
		{"101 without a request for it", "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n", 502},
		{"an empty line before", "\r\nHTTP/1.1 200 OK\r\n\r\n", 502},
		{"HTTP/2", "HTTP/2.0 200 OK\r\n\r\n", 502},
		{"no version", "200 OK\r\n\r\n", 502},
		{"a status of two digits", "HTTP/1.1 20 OK\r\n\r\n", 502},
		{"a status of four digits", "HTTP/1.1 2000 OK\r\n\r\n", 502},
		{"status 099", "HTTP/1.1 099 OK\r\n\r\n", 502},
		{"a status with a sign", "HTTP/1.1 +20 OK\r\n\r\n", 502},
		{"a control character in the reason", "HTTP/1.1 200 O\x01K\r\n\r\n", 502},
		{"bare CR in the reason", "HTTP/1.1 200 O\rK\r\n\r\n", 502},
		{"length and coding", "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\nx", 400},
		{"two lengths", "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx", 400},
		{"a coding in HTTP/1.0", "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
		{"an unknown coding", "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nx", 501},
		{"an interim response with a length", "HTTP/1.1 100 Continue\r\nContent-Length: 1\r\n\r\nx", 502},
		{"the connection ends before the response", "", 400},
		{"the connection ends within the header", "HTTP/1.1 200 OK\r\n", 400},
		{"the connection ends within the content", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nx", 400},
		{"more than one response", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 502},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := traceAll(t, asked("GET", ""), test.in, true)
			if want := fmt.Sprintf("error %d ", test.status); !strings.Contains(got, want) {
				t.Errorf("input %q\ngot:\n%swant %s", test.in, got, want)
			}
		})
	}
}

func TestWhichResponsesAreTheLast(t *testing.T) {
	for in, kept := range map[string]bool{
		"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n":                                                true,
		"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n":                           false,
		"HTTP/1.1 204 No Content\r\nContent-Length: 1\r\n\r\n":                                        false,
		"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n":                                                false,
		"HTTP/1.0 200 OK\r\nContent-Length: 0\r\nConnection: keep-alive\r\n\r\n":                      true,
		"HTTP/1.1 103 Early Hints\r\nConnection: close\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n":        true,
		"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\nframes": false,
	} {
		m := asked("GET", "websocket")()
		trace(m, in, false, cut.Whole)
		if m.KeepAlive() != kept {
			t.Errorf("KeepAlive is %v after %q", m.KeepAlive(), in)
		}
	}
}

func TestInterimResponsesTakeNoMemory(t *testing.T) {
	m := asked("GET", "")()
	for range 10000 {
		if got := trace(m, "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n", false, cut.Whole); !strings.HasPrefix(got, "response 1.1 103") {
			t.Fatal(got)
		}
	}
	if cap(m.buf) > 1024 {
		t.Errorf("%d bytes are kept", cap(m.buf))
	}
}

func TestBytesWithoutARequest(t *testing.T) {
	m := NewMachine(RoleClient, Options{})
	if got := trace(m, "HTTP/1.1 408 Request Timeout\r\n\r\n", false, cut.Whole); !strings.HasPrefix(got, "error 502 ") {
		t.Errorf("got %s", got)
	}
	if m.KeepAlive() {
		t.Error("the connection is still used")
	}
}

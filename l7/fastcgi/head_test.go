package fastcgi

import (
	"strconv"
	"strings"
	"testing"

	"github.com/millrace/millrace/semantics"
)

// head reads a header in pieces of n bytes, and returns what is behind it.
func head(text string, n int, l Limits) (m semantics.Message, behind string, err error) {
	var h Head
	h.Reset()
	for text != "" {
		piece := text[:min(n, len(text))]
		k, complete, err := h.Take([]byte(piece), &l)
		text = text[k:]
		if err != nil {
			return m, text, err
		}
		if complete {
			m, err = h.Message(nil, &l)
			return m, text, err
		}
		if k < len(piece) {
			panic("bytes of an incomplete header are not taken")
		}
	}
	return m, "", errIncomplete
}

const errIncomplete = Error(0)

func TestHeadersOfResponses(t *testing.T) {
	for text, want := range map[string]string{
		"Content-Type: text/html\r\n\r\n":                                 "200 -1 content-type=text/html",
		"Content-Type: text/html\n\nx":                                    "200 -1 content-type=text/html",
		"Status: 404 Not Found\r\nX-A:b\r\n\r\n":                          "404 -1 x-a=b",
		"Status: 204\r\n\r\n":                                             "204 -1",
		"Status:500\nX-A: \t b \t\n\n":                                    "500 -1 x-a=b",
		"Location: /elsewhere\r\n\r\n":                                    "302 -1 location=/elsewhere",
		"Location: http://a.example/\r\nStatus: 301 Moved\r\n\r\n":        "301 -1 location=http://a.example/",
		"Status: 201 Created\nLocation: /x\n\n":                           "201 -1 location=/x",
		"Content-Length: 12\r\nA: b\r\n\r\n":                              "200 12 content-length=12 a=b",
		"Content-Length: 5\r\nContent-Length: 5\r\n\r\n":                  "200 5 content-length=5",
		"A: 1\r\nA: 2\r\nSet-Cookie: c=d; path=/\r\n\r\n":                 "200 -1 a=1 a=2 set-cookie=c=d; path=/",
		"Transfer-Encoding: chunked\r\nConnection: close\r\nA: b\r\n\r\n": "200 -1 a=b",
		"Upgrade: x\nTE: trailers\nTrailer: x\nKeep-Alive: 5\nA:\r\n\r\n": "200 -1 a=",
		"STATUS: 403 No\r\nx-powered-BY: PHP/8.2\r\n\r\n":                 "403 -1 x-powered-by=PHP/8.2",
	} {
		for n := 1; n < 9; n++ {
			m, _, err := head(text, n, Limits{})
			got := ""
			for _, f := range m.Fields {
				got += " " + f.Name + "=" + f.Value
			}
			if got = strconv.Itoa(m.Status) + " " + strconv.FormatInt(m.ContentLength, 10) + got; err != nil || got != want {
				t.Errorf("%q in pieces of %d: %s, %v; want %s", text, n, got, err, want)
			}
		}
	}
	if _, behind, err := head("A: b\r\n\r\ncontent\n\n", 100, Limits{}); err != nil || behind != "content\n\n" {
		t.Errorf("behind the header: %q, %v", behind, err)
	}
}

func TestWrongHeadersOfResponses(t *testing.T) {
	for _, text := range []string{
		"\r\n", "\n", "no colon\r\n\r\n", ": b\r\n\r\n", "A b: c\r\n\r\n", "A: b\r\n folded\r\n\r\n", "A: b\x00\r\n\r\n", "A: b\rc\r\n\r\n", "A\x80: b\n\n",
		"Status: 99\r\n\r\n", "Status: 1000\r\n\r\n", "Status: OK\r\n\r\n", "Status:\r\n\r\n", "Status: 200\r\nStatus: 200\r\n\r\n", "Status: 100 Continue\r\n\r\n", "Status: 101\r\n\r\n",
		"Status: 103\nLink: x\n\n", "Content-Length: x\r\n\r\n", "Content-Length: -1\r\n\r\n", "Content-Length: 1\r\nContent-Length: 2\r\n\r\n", "HTTP/1.1 200 OK\r\nA: b\r\n\r\n",
	} {
		if m, _, err := head(text, 100, Limits{}); err != ErrHead {
			t.Errorf("%q: %+v, %v", text, m, err)
		}
	}
	long := "A: " + strings.Repeat("b", 100) + "\r\n\r\n"
	for _, n := range []int{1, 7, 1000} {
		if _, _, err := head(long, n, Limits{Bytes: len(long)}); err != nil {
			t.Errorf("%d bytes: %v", len(long), err)
		}
		if _, _, err := head(long, n, Limits{Bytes: len(long) - 1}); err != ErrHeadSize {
			t.Errorf("%d bytes of %d: %v", len(long), len(long)-1, err)
		}
	}
	if _, _, err := head(strings.Repeat("A: b\n", 20000)+"\n", 1<<20, Limits{}); err != ErrHeadSize {
		t.Errorf("without a limit: %v", err)
	}
	if _, _, err := head("A: b\nB: c\nC: d\n\n", 100, Limits{Fields: 3}); err != nil {
		t.Error(err)
	}
	if _, _, err := head("A: b\nB: c\nC: d\n\n", 100, Limits{Fields: 2}); err != ErrHeadSize {
		t.Error(err)
	}
}

// FuzzHead holds that what is read is a message that may be sent on: names and values of fields, one length, and no interim status.
func FuzzHead(f *testing.F) {
	f.Add("Status: 404 Not Found\r\nContent-Type: text/html\r\n\r\nx", uint8(5))
	f.Add("Location: /x\nContent-Length: 3\n\n", uint8(1))
	f.Fuzz(func(t *testing.T, text string, n uint8) {
		l := Limits{Bytes: 200, Fields: 10}
		a, behindA, errA := head(text, len(text)+1, l)
		b, behindB, errB := head(text, int(n)+1, l)
		if errA != errB || errA == nil && (a.Status != b.Status || behindA != behindB || len(a.Fields) != len(b.Fields)) {
			t.Fatalf("%+v, %v as a whole; %+v, %v in pieces", a, errA, b, errB)
		}
		if errA != nil {
			return
		}
		if a.Status < 200 || a.Status > 999 || len(a.Fields) > 10 {
			t.Errorf("%+v", a)
		}
		for _, f := range a.Fields {
			if !semantics.IsName(f.Name) || !semantics.IsValue(f.Value) || f.Name == "transfer-encoding" || f.Name == "connection" {
				t.Errorf("%+v", f)
			}
		}
	})
}

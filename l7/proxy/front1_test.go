package proxy

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"testing"
	"time"
)

// script is a backend that answers each connection by a function.
func script(t *testing.T, f func(c net.Conn)) string {
	t.Helper()
	ln := over.listen(t)
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() { defer c.Close(); f(c) }()
		}
	}()
	return ln.Addr().String()
}

// talk sends bytes to the plain listener and returns all that comes back until the end, or half a second of silence.
func (r *rig) talk(bytes string) string {
	r.t.Helper()
	c, err := net.Dial("tcp", r.addr)
	must(r.t, err)
	defer c.Close()
	_, err = io.WriteString(c, bytes)
	must(r.t, err)
	var all strings.Builder
	buf := make([]byte, 4096)
	for {
		c.SetReadDeadline(time.Now().Add(500 * time.Millisecond))
		n, err := c.Read(buf)
		all.Write(buf[:n])
		if err != nil {
			return all.String()
		}
	}
}

// Requests that are sent ahead are answered in order.
func TestPipelining(t *testing.T) {
	r := newRig(t, echoBackend(t, false), nil)
	var all strings.Builder
	for i := range 10 {
		body := strings.Repeat(fmt.Sprint(i), i)
		fmt.Fprintf(&all, "POST /%d HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s", i, len(body), body)
	}
	got := r.talk(all.String())
	at := 0
	for i := range 10 {
		j := strings.Index(got[at:], fmt.Sprintf("x-path: /%d\r\n", i))
		if j < 0 {
			t.Fatalf("answer %d is missing or out of order:\n%s", i, got)
		}
		at += j
	}
	r.settled()
}

// What is malformed is answered and closed, and nothing of it reaches a backend.
func TestMalformedRequestsReachNoBackend(t *testing.T) {
	r := newRig(t, script(t, func(c net.Conn) { t.Error("a connection to the backend") }), nil)
	for _, c := range []struct{ in, want string }{
		{"GET / HTTP/1.1\r\n\r\n", "400"},
		{"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", "400"},
		{"GET /../a HTTP/1.1\r\nHost: a\r\n\r\n", "400"},
		{"CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n", "405"},
		{"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n", "505"},
		{"GET / HTTP/1.1\r\nHost: a\r\nX: " + strings.Repeat("x", 40000) + "\r\n\r\n", "431"},
	} {
		got := r.talk(c.in)
		if !strings.HasPrefix(got, "HTTP/1.1 "+c.want) {
			t.Errorf("%.60q: %q", c.in, got)
		}
	}
	r.settled()
}

// A backend that fails is named in Proxy-Status, and the connection of the client goes on.
func TestFailuresOfBackends(t *testing.T) {
	for _, c := range []struct {
		name   string
		answer func(c net.Conn)
		status int
		want   string
	}{
		{"closes", func(c net.Conn) {}, 502, "connection_terminated"},
		{"garbage", func(c net.Conn) { read(c); io.WriteString(c, "hello\r\n\r\n") }, 502, "http_protocol_error"},
		{"both lengths", func(c net.Conn) {
			read(c)
			io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")
		}, 502, "http_protocol_error"},
		{"silence", func(c net.Conn) { read(c); time.Sleep(2 * time.Second) }, 504, "http_response_timeout"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, script(t, c.answer), func(r *rig) { r.rule.Attempt = 300 * time.Millisecond })
			resp, err := http.Get("http://" + r.addr)
			must(t, err)
			resp.Body.Close()
			if got := resp.Header.Get("Proxy-Status"); resp.StatusCode != c.status || !strings.Contains(got, c.want) {
				t.Errorf("%d %q, want %d %s", resp.StatusCode, got, c.status, c.want)
			}
			r.settled()
		})
	}
	t.Run("refuses", func(t *testing.T) {
		r := newRig(t, free(t).String(), nil)
		resp, err := http.Get("http://" + r.addr)
		must(t, err)
		resp.Body.Close()
		if got := resp.Header.Get("Proxy-Status"); resp.StatusCode != 502 || !strings.Contains(got, "connection_refused") {
			t.Errorf("%d %q", resp.StatusCode, got)
		}
	})
}

// read reads the header of a request.
func read(c net.Conn) { http.ReadRequest(bufio.NewReader(c)) }

// A response that ends before its length is cut for the client too.
func TestIncompleteResponsesAreCut(t *testing.T) {
	r := newRig(t, script(t, func(c net.Conn) { read(c); io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc") }), nil)
	for _, c := range []*http.Client{{}, r.client(true)} {
		url := "http://" + r.addr
		if c.Transport != nil {
			url = "https://" + r.secure
		}
		resp, err := c.Get(url)
		if err != nil { // the header may be lost with the end
			continue
		}
		if _, err := io.ReadAll(resp.Body); err == nil {
			t.Errorf("%s: the end of the response is not noticed", resp.Proto)
		}
		resp.Body.Close()
	}
	r.settled()
}

// Interim responses, Expect and bodiless responses pass.
func TestInterimAndBodilessResponses(t *testing.T) {
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		switch req.URL.Path {
		case "/hints":
			w.Header().Set("Link", "</a.css>")
			w.WriteHeader(103)
		case "/204":
			w.WriteHeader(204)
			return
		case "/304":
			w.WriteHeader(304)
			return
		}
		body, _ := io.ReadAll(req.Body)
		fmt.Fprintf(w, "%s %s", req.Method, body)
	}))
	defer backend.Close()
	r := newRig(t, strings.TrimPrefix(backend.URL, "http://"), nil)
	for _, c := range []*http.Client{{Transport: &http.Transport{ExpectContinueTimeout: time.Hour}}, r.client(true)} {
		url := "http://" + r.addr
		if c.Transport.(*http.Transport).TLSClientConfig != nil {
			url = "https://" + r.secure
		}
		hints := 0
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
			if code == 103 && h.Get("Link") == "</a.css>" {
				hints++
			}
			return nil
		}})
		for _, q := range []struct{ method, path, body, want string }{
			{"GET", "/hints", "", "GET "}, {"HEAD", "/", "", ""}, {"GET", "/204", "", ""}, {"GET", "/304", "", ""}, {"PUT", "/", "abc", "PUT abc"}, {"OPTIONS", "/", "", "OPTIONS "},
		} {
			req, err := http.NewRequestWithContext(ctx, q.method, url+q.path, strings.NewReader(q.body))
			must(t, err)
			if q.body != "" {
				req.Header.Set("Expect", "100-continue")
			}
			resp, err := c.Do(req)
			must(t, err)
			body, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if err != nil || string(body) != q.want {
				t.Errorf("%s %s %s: %d %q %v", resp.Proto, q.method, q.path, resp.StatusCode, body, err)
			}
		}
		if hints != 1 {
			t.Errorf("%d responses 103", hints)
		}
	}
	r.settled()
}

// Trailers pass between all versions.
func TestTrailers(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		r := newRig(t, echoBackend(t, h2), func(r *rig) {
			if h2 {
				r.pool.Protocol = HTTP2
			}
		})
		for _, front2 := range []bool{false, true} {
			resp, err := r.client(front2).Post("https://"+r.secure+"/trailers", "text/plain", strings.NewReader("abc"))
			must(t, err)
			body, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if err != nil || string(body) != "abc" || resp.Trailer.Get("X-Sum") != "7" {
				t.Errorf("back h2 %v, front h2 %v: %q %v %v", h2, front2, body, resp.Trailer, err)
			}
		}
	}
}

// What the gateway answers by itself leaves the connection open, and requests that were sent ahead are answered in turn.
func TestLocalAnswersKeepTheConnection(t *testing.T) {
	r := newRig(t, "127.0.0.1:1", func(r *rig) { r.rule.Response = &Response{Status: 200, Body: []byte("here")} })
	got := r.talk(strings.Repeat("GET / HTTP/1.1\r\nHost: a\r\n\r\n", 3))
	if strings.Count(got, "HTTP/1.1 200 OK") != 3 || strings.Count(got, "here") != 3 {
		t.Errorf("%q", got)
	}
	c, err := net.Dial("tcp", r.addr)
	must(t, err)
	defer c.Close()
	in := bufio.NewReader(c)
	for i := range 3 {
		io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		resp, err := http.ReadResponse(in, nil)
		if err != nil || resp.Close {
			t.Fatalf("answer %d: %v %v", i, resp, err)
		}
		io.Copy(io.Discard, resp.Body)
	}
	r.settled()
}

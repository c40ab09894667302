package proxy

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/testkit/memtransport"
	"github.com/millrace/millrace/internal/testkit/wrongcases"
)

// scripted is a backend that answers the first request on its first connection by a script, and each other request with its path.
type scripted struct {
	response wrongcases.Response
	opened   int
	poisoned *memtransport.Peer // the connection with the script
	reused   int                // requests on it after the script
}

func (s *scripted) serve(p *memtransport.Peer) {
	s.opened++
	first := s.opened == 1
	if first {
		s.poisoned = p
	}
	var in []byte
	answered := 0
	p.Handler = func(p *memtransport.Peer) {
		in = append(in, p.Take()...)
		if p.Ended {
			p.Close()
			return
		}
		requests, _ := wrongcases.Parse(in)
		for ; answered < len(requests) && requests[answered].Whole; answered++ {
			if first && answered == 0 {
				p.Write([]byte(s.response.Bytes))
				if s.response.Close {
					p.Close()
				}
				continue
			}
			if first {
				s.reused++
			}
			target := requests[answered].Target
			p.Write(fmt.Appendf(nil, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(target), target))
		}
	}
}

// Whatever a backend answers, its client gets the response or an error, every other client its own, and a connection of which
// nobody knows whose bytes come next is not used again.
func TestHostileBackends(t *testing.T) {
	for _, c := range wrongcases.Responses() {
		for _, cut := range []func(int) int{nil, func(n int) int { return max(1, n/2) }} {
			playHostile(t, c, cut)
		}
	}
}

func playHostile(t *testing.T, c wrongcases.Response, cut func(int) int) {
	t.Helper()
	r := newMemRig(t, nil)
	r.rule.Backends[0].Pool.Body = 20 * time.Second
	s := &scripted{response: c}
	r.backend, r.loop.Cut = s.serve, cut
	method := c.Method
	if method == "" {
		method = "GET"
	}
	client, second := r.connect(memHTTP1), r.connect(memHTTP1)
	client.Write([]byte(method + " /first HTTP/1.1\r\nHost: a\r\n\r\n"))
	second.Write([]byte("GET /second HTTP/1.1\r\nHost: a\r\n\r\n"))
	r.run()
	got := string(client.Take())
	if failure := outcome(c, method, got, client.Ended); failure != "" {
		t.Errorf("%s (%s): %s\nthe back end sent %.200q, the client got %.300q, ended: %v", c.Name, c.Origin, failure, c.Bytes, got, client.Ended)
	}
	if strings.Contains(got, "poison") {
		t.Errorf("%s (%s): the client got %.300q", c.Name, c.Origin, got)
	}
	if !strings.HasSuffix(string(second.Take()), "/second") {
		t.Errorf("%s: a client beside it got no answer", c.Name)
	}
	if !client.Ended {
		client.Write([]byte("GET /third HTTP/1.1\r\nHost: a\r\n\r\n"))
		r.run()
		if got := string(client.Take()); !strings.HasSuffix(got, "/third") {
			t.Errorf("%s: the next request of the client got %.200q", c.Name, got)
		}
	}
	for i := range 3 {
		path := fmt.Sprintf("/later%d", i)
		if got := r.ask("GET " + path + " HTTP/1.1\r\nHost: a\r\n\r\n"); !strings.HasSuffix(got, path) || strings.Count(got, "HTTP/1.1") != 1 {
			t.Errorf("%s: a later client got %.200q", c.Name, got)
		}
	}
	if s.reused > 0 && c.Outcome != wrongcases.Reusable {
		t.Errorf("%s: %d requests followed on the connection", c.Name, s.reused)
	}
	r.nothingLeft(client, second)
}

// outcome says how what a client got differs from what it may get.
func outcome(c wrongcases.Response, method, got string, ended bool) string {
	in := bufio.NewReader(strings.NewReader(got))
	var resp *http.Response
	for {
		var err error
		if resp, err = http.ReadResponse(in, &http.Request{Method: method}); err != nil {
			return "no response: " + err.Error()
		}
		if resp.StatusCode >= 200 {
			break
		}
	}
	body, err := io.ReadAll(resp.Body)
	made := strings.HasPrefix(resp.Header.Get("Proxy-Status"), "millrace; error=")
	rest, _ := io.ReadAll(in)
	refused := resp.StatusCode == 502 && made && err == nil
	until := resp.ContentLength < 0 && len(resp.TransferEncoding) == 0 && method != "HEAD" && resp.StatusCode != 204 && resp.StatusCode != 304
	switch {
	case len(rest) > 0:
		return fmt.Sprintf("%q behind the response", rest)
	case c.Outcome == wrongcases.Refusal && !refused:
		return "it is not refused"
	case c.Outcome == wrongcases.Broken && !refused && (err == nil || !ended):
		return fmt.Sprintf("it seems whole: %q", body)
	case c.Outcome >= wrongcases.Whole && c.Outcome != wrongcases.Any && (made || err != nil || until && !ended):
		return fmt.Sprintf("it is not whole: %v", err)
	}
	return ""
}

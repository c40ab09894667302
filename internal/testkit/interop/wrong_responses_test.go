package interop

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/testkit/wrongcases"
)

// verdict is what a client gets of a response.
type verdict uint8

const (
	waiting verdict = iota // nothing, or not all, and no end
	refused                // an error of the proxy, or the end of the connection
	broken                 // less than the response, and the client can tell
	whole
)

func (v verdict) String() string { return [...]string{"waits", "refused", "broken", "whole"}[v] }

// ask sends a request over a new connection and says what came back in time, with the content and all that came behind the
// response.
func (l *lane) ask(addr, method, path string, patience time.Duration) (v verdict, content, rest string, err error) {
	c, err := net.Dial(l.network, addr)
	if err != nil {
		return waiting, "", "", err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	if _, err := fmt.Fprintf(c, "%s %s HTTP/1.1\r\nHost: a\r\n\r\n", method, path); err != nil {
		return waiting, "", "", err
	}
	in := bufio.NewReaderSize(c, 1<<20)
	for {
		resp, err := http.ReadResponse(in, &http.Request{Method: method})
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return waiting, "", "", nil
		case err != nil:
			return refused, "", "", nil
		case resp.StatusCode < 200:
			continue
		}
		body, err := io.ReadAll(resp.Body)
		_ = c.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
		behind, _ := io.ReadAll(in)
		switch {
		case resp.StatusCode >= 500:
			v = refused
		case errors.Is(err, os.ErrDeadlineExceeded):
			v = waiting
		case err != nil:
			v = broken
		default:
			v = whole
		}
		return v, string(body), string(behind), nil
	}
}

// script has the back end of a lane answer the next connection's first request with bytes, and all other requests with their
// path. It returns how many requests came on that connection behind the first.
func (r *recorder) script(c *wrongcases.Response) (reused func() int) {
	n, taken := 0, false
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = func(conn, request int, target string) (bytes string, end bool) {
		if request == 0 && !taken {
			taken = true
			r.scripted = conn
			return c.Bytes, c.Close
		}
		if conn == r.scripted {
			n++
		}
		return fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(target), target), false
	}
	r.scripted = -1
	return func() int {
		r.mu.Lock()
		defer r.mu.Unlock()
		return n
	}
}

func (r result) String() string { return fmt.Sprintf("%v %q %d", r.verdict, r.poisoned, r.reused) }

// result is what a proxy made of a response.
type result struct {
	verdict  verdict
	poisoned string // a response that nobody has asked for
	reused   int    // requests behind it on the connection
}

// Every case of a hostile back end stands behind nginx, HAProxy and the gateway. Our client gets no more than that of the stricter
// of the two; nobody gets what nobody has asked for, and the connection is not used again where theirs is not.
func TestWrongResponses(t *testing.T) {
	cases := wrongcases.Responses()
	all := []*contestant{
		{name: "nginx", lanes: nginxLanes(t)}, {name: "HAProxy", lanes: haproxyLanes(t)}, {name: "gateway", lanes: gatewayLanes(t), ours: true},
	}
	results := make([][]result, len(all))
	var wg sync.WaitGroup
	for k, p := range all {
		results[k] = make([]result, len(cases))
		next := make(chan int)
		for _, l := range p.lanes {
			wg.Go(func() {
				for i := range next {
					results[k][i] = l.answered(t, p, &cases[i])
				}
			})
		}
		wg.Go(func() {
			for i := range cases {
				next <- i
			}
			close(next)
		})
	}
	wg.Wait()
	t.Logf("of %d responses: %s", len(cases), passedWhole(all, results))
	for i, c := range cases {
		ours := results[2][i]
		t.Logf("%-60.60s | nginx: %v | HAProxy: %v | gateway: %v", c.Name, results[0][i], results[1][i], ours)
		if ours.poisoned != "" {
			t.Errorf("%s (%s): a client got %q", c.Name, c.Origin, ours.poisoned)
		}
		if ours.reused > 0 && c.Outcome != wrongcases.Reusable {
			t.Errorf("%s (%s): the connection was used again", c.Name, c.Origin)
		}
		for k, their := range []result{results[0][i], results[1][i]} {
			if (their.verdict == refused || their.verdict == broken) && ours.verdict == whole && c.Stricter == "" {
				t.Errorf("%s (%s): %s is stricter: %v; here it is %v\nthe back end sent %.300q", c.Name, c.Origin, all[k].name, their, ours, c.Bytes)
			}
		}
	}
}

// passedWhole counts the responses that clients got whole.
func passedWhole(all []*contestant, results [][]result) (text string) {
	for k, p := range all {
		n := 0
		for _, r := range results[k] {
			if r.verdict == whole {
				n++
			}
		}
		text += fmt.Sprintf("%s passes %d whole. ", p.name, n)
	}
	return text
}

// answered plays a case: the request that meets it, and three behind it.
func (l *lane) answered(t *testing.T, p *contestant, c *wrongcases.Response) (r result) {
	patience := time.Second // a peer that takes longer is none that is stricter
	if p.ours {
		patience = 20 * time.Second
	}
	l.backend.hangUp() // the case needs a connection of its own
	time.Sleep(50 * time.Millisecond)
	reused := l.backend.script(c)
	method := c.Method
	if method == "" {
		method = "GET"
	}
	v, content, rest, err := l.ask(l.http1, method, "/first", patience)
	if err != nil {
		t.Errorf("%s: %s: %v", p.name, c.Name, err)
	}
	r.verdict = v
	if strings.Contains(content+rest, "poison") {
		r.poisoned = content + rest
	}
	for i := range 3 {
		path := fmt.Sprintf("/later%d", i)
		if v, content, rest, err := l.ask(l.http1, "GET", path, 20*time.Second); v != whole || content != path || rest != "" || err != nil {
			r.poisoned = fmt.Sprintf("%s: %v %q %q %v", path, v, content, rest, err)
		}
	}
	r.reused = reused()
	return r
}

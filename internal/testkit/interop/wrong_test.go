package interop

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/millrace/millrace/internal/testkit/wrongcases"
)

// outcome is what a proxy did with a case.
type outcome struct {
	statuses []int
	closed   bool     // the proxy has closed the connection, or reset the stream
	received [][]byte // by the back end
	requests int      // as the back end counts them
}

// refused reports whether the last answer is an error, or none came before the connection was closed.
func (o *outcome) refused() bool {
	if len(o.statuses) == 0 {
		return o.closed
	}
	return o.statuses[len(o.statuses)-1] >= 400
}

func (o *outcome) String() string {
	s := []string{}
	for _, status := range o.statuses {
		s = append(s, strconv.Itoa(status))
	}
	if o.closed {
		s = append(s, "closed")
	}
	return fmt.Sprintf("%s, %d to the back end", strings.Join(s, " "), o.requests)
}

// quiet is how long a proxy may say nothing until it is believed to wait for more.
const quiet = 150 * time.Millisecond

// play sends a case and returns what came of it. A proxy that says nothing for quiet is believed to wait for more; where strict
// says so, it has 20 s for the answers that the case has.
func (l *lane) play(addr string, c *wrongcases.Case, strict bool, read func(b []byte) (statuses []int, reset bool)) (*outcome, error) {
	conn, err := net.Dial(l.network, addr)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	go func() { _, _ = io.Copy(conn, strings.NewReader(c.Bytes)) }() // a proxy that refuses need not read all of it
	o := &outcome{}
	var in []byte
	buf := make([]byte, 64<<10)
	deadline := time.Now().Add(20 * time.Second)
	for {
		wait := quiet
		if strict && !o.enough(c) && !c.Unfinished && time.Now().Before(deadline) {
			wait = time.Until(deadline)
		}
		_ = conn.SetReadDeadline(time.Now().Add(wait))
		n, err := conn.Read(buf)
		in = append(in, buf[:n]...)
		var reset bool
		o.statuses, reset = read(in)
		o.closed = o.closed || reset
		if err != nil {
			o.closed = o.closed || !os.IsTimeout(err)
			break
		}
	}
	_ = conn.Close()
	for strict && l.backend.count() < c.Passed && time.Now().Before(deadline) { // a proxy without a CPU: the next case would have it
		time.Sleep(time.Millisecond)
	}
	time.Sleep(5 * time.Millisecond) // what the end of the connection makes a proxy send
	o.received, o.requests = l.backend.take()
	return o, nil
}

// enough reports whether the answers are all that a case can have.
func (o *outcome) enough(c *wrongcases.Case) bool {
	if o.closed || c.Passed == wrongcases.Either {
		return o.closed || len(o.statuses) > 0
	}
	return o.refused() || c.Passed > 0 && len(o.statuses) >= c.Passed
}

var statusLine = regexp.MustCompile(`HTTP/1\.[01] ([2-9][0-9]{2}) `)

// statusesHTTP1 returns the final statuses of an input of HTTP/1.1.
func statusesHTTP1(b []byte) (statuses []int, _ bool) {
	for _, m := range statusLine.FindAllSubmatch(b, -1) {
		status, _ := strconv.Atoi(string(m[1]))
		statuses = append(statuses, status)
	}
	return statuses, false
}

// statusesHTTP2 returns the final statuses of an input of HTTP/2, and whether stream or connection ended by an error.
func statusesHTTP2(b []byte) (statuses []int, reset bool) {
	f := http2.NewFramer(io.Discard, bytes.NewReader(b))
	f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			return statuses, reset
		}
		switch frame := frame.(type) {
		case *http2.MetaHeadersFrame:
			if status, _ := strconv.Atoi(frame.PseudoValue("status")); status >= 200 {
				statuses = append(statuses, status)
			}
		case *http2.RSTStreamFrame:
			reset = reset || frame.ErrCode != http2.ErrCodeNo
		case *http2.GoAwayFrame:
			reset = reset || frame.ErrCode != http2.ErrCodeNo
		}
	}
}

// contestant is a proxy.
type contestant struct {
	name    string
	lanes   []*lane
	ours    bool
	machine bool // nothing but the machines

	outcomes []*outcome // of run
}

// run plays all cases, as many at a time as there are lanes.
func (p *contestant) run(t *testing.T, cases []*wrongcases.Case, addr func(*lane) string, read func([]byte) ([]int, bool)) {
	p.outcomes = make([]*outcome, len(cases))
	next := make(chan int)
	var wg sync.WaitGroup
	for _, l := range p.lanes {
		wg.Go(func() {
			for i := range next {
				o, err := l.play(addr(l), cases[i], p.ours && !(p.machine && cases[i].Gateway), read)
				if err != nil {
					t.Errorf("%s: %s: %v", p.name, cases[i].Name, err)
					o = &outcome{closed: true}
				}
				p.outcomes[i] = o
			}
		})
	}
	for i := range cases {
		next <- i
	}
	close(next)
	wg.Wait()
}

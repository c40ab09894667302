package health

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// A conversation is gone through step by step, however what comes is cut.
func TestAConversationIsJudged(t *testing.T) {
	address := listen(t, func(c *net.TCPConn) {
		for _, part := range []string{"22", "0 ready", "\r\n"} {
			io.WriteString(c, part)
			time.Sleep(time.Millisecond)
		}
		for r := bufio.NewScanner(c); r.Scan(); {
			switch line := r.Text(); {
			case line == "QUIT":
				io.WriteString(c, "221 bye\r\n")
				return
			case line == "FLOOD":
				for i := 0; i < 100; i++ {
					if _, err := c.Write(make([]byte, 4096)); err != nil {
						return
					}
				}
			default:
				fmt.Fprintf(c, "250 %s\r\n250 again\r\n", line)
			}
		}
	})
	send, expect2 := func(s string) Step { return Step{Send: []byte(s)} }, func(s string) Step { return Step{Expect: []byte(s)} }
	for _, c := range []struct {
		steps []Step
		want  string
	}{
		{[]Step{expect2("220 ready\r\n"), send("EHLO a\n"), expect2("250 EHLO a\r\n"), expect2("again"), send("QUIT\n"), expect2("221")}, ""},
		{nil, ""},
		{[]Step{send("QUIT\n")}, ""},
		{[]Step{expect2("220"), send("QUIT\n"), expect2("220")}, "step 3: wrong answer: the connection has ended"},
		{[]Step{expect2("220 ready"), expect2("ready")}, "no answer"}, // what a step has found is not found again
		{[]Step{send("FLOOD\n"), expect2("none")}, "step 2: wrong answer"},
	} {
		check := New()
		check.TCP = c.steps
		if c.want == "no answer" {
			check.Timeout = 50 * time.Millisecond
		}
		if p := check.Validate(); len(p) > 0 {
			t.Fatalf("%v", p)
		}
		expect(t, once(t, check, address), c.want)
	}
	for _, steps := range [][]Step{{{}}, {{Send: []byte("a"), Expect: []byte("b")}}, make([]Step, maxSteps+1), {send(strings.Repeat("a", maxExpect+1))}} {
		check := New()
		if check.TCP = steps; len(check.Validate()) == 0 {
			t.Errorf("%d steps: no problem", len(steps))
		}
	}
}

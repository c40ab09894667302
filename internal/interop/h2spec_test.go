package interop

import (
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"testing"

	"github.com/millrace/millrace/http2"
	"github.com/millrace/millrace/semantics"
)

// TestH2spec runs h2spec's cases of RFC 9113 and RFC 7541 against a server that a machine of package http2 is behind.
// `make h2spec` builds h2spec.
func TestH2spec(t *testing.T) {
	program := os.Getenv("MILLRACE_H2SPEC")
	if program == "" {
		t.Skip("MILLRACE_H2SPEC names no program; make h2spec builds it")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go serveHTTP2(c)
		}
	}()
	port := strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
	out, err := exec.Command(program, "--strict", "--timeout", "2", "-h", "127.0.0.1", "-p", port).CombinedOutput()
	t.Logf("%s", out)
	summary := regexp.MustCompile(`(\d+) tests, (\d+) passed, (\d+) skipped, (\d+) failed`).FindSubmatch(out)
	if err != nil || summary == nil || string(summary[2]) == "0" || string(summary[4]) != "0" {
		t.Errorf("h2spec: %v", err)
	}
}

// serveHTTP2 answers every request with its content.
func serveHTTP2(c net.Conn) {
	defer c.Close()
	m := http2.NewMachine(http2.RoleServer, http2.Options{})
	var out []byte
	waiting := map[*http2.Stream][]byte{} // content that no window permits yet
	buf, held := make([]byte, 16<<10), 0
	for {
		n, err := c.Read(buf[held:])
		if err != nil {
			return
		}
		in := buf[:held+n]
		for {
			ev, used, err := m.Input(in)
			in = in[used:]
			if err != nil {
				c.Write(m.AppendControl(out)) //nolint:errcheck // the connection ends
				var ce *http2.ConnError
				if errors.As(err, &ce) {
					c.(*net.TCPConn).CloseWrite() //nolint:errcheck // the same
					io.Copy(io.Discard, c)        //nolint:errcheck // a reset would take the GOAWAY with it
				}
				return
			}
			if ev.Kind == http2.NeedInput {
				break
			}
			out = answerHTTP2(m, out, ev, waiting)
		}
		held = copy(buf, in)
		if _, err := c.Write(append(m.AppendControl(nil), out...)); err != nil {
			return
		}
		out = out[:0]
	}
}

// answerHTTP2 handles an event.
func answerHTTP2(m *http2.Machine, out []byte, ev http2.Event, waiting map[*http2.Stream][]byte) []byte {
	s := ev.Stream
	switch ev.Kind {
	case http2.Headers:
		waiting[s] = []byte("hello")
	case http2.Data:
		waiting[s] = append(waiting[s], ev.Payload...)
		m.Consumed(s, len(ev.Payload))
	case http2.End:
		out, _ = m.AppendResponse(out, s, &semantics.Message{Status: 200, ContentLength: -1}, false)
		return sendHTTP2(m, out, s, waiting)
	case http2.Failed:
		delete(waiting, s)
		m.Release(s)
	case http2.PeerSettings, http2.Window:
		for s := range waiting {
			out = sendHTTP2(m, out, s, waiting)
		}
	}
	return out
}

// sendHTTP2 sends what the windows permit.
func sendHTTP2(m *http2.Machine, out []byte, s *http2.Stream, waiting map[*http2.Stream][]byte) []byte {
	out, n, err := m.AppendData(out, s, waiting[s], true)
	if waiting[s] = waiting[s][n:]; err != nil || s.Ended() {
		delete(waiting, s)
		m.Release(s)
	}
	return out
}

package interop

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"testing"

	"github.com/millrace/millrace/http2"
	"github.com/millrace/millrace/l7/proxy"
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
	runH2spec(t, program, l.Addr().(*net.TCPAddr).AddrPort())
}

// TestH2specGateway runs the same cases against the gateway, by prior knowledge and over TLS, in front of backends with both
// versions.
func TestH2specGateway(t *testing.T) {
	program := os.Getenv("MILLRACE_H2SPEC")
	if program == "" {
		t.Skip("MILLRACE_H2SPEC names no program; make h2spec builds it")
	}
	backend := serveH2C(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body) //nolint:errcheck // the client may have gone
		io.WriteString(w, "hello")  //nolint:errcheck // the same
	}))
	for _, c := range []struct {
		name string
		to   proxy.PoolProtocol
	}{{"HTTP1", proxy.HTTP1}, {"HTTP2", proxy.HTTP2}} {
		g := newTestGateway(t, backend, func(g *testGateway) {
			g.pool.Protocol = c.to
			g.plain.HTTP1 = nil // a listener with both versions answers what is no preface by HTTP/1.1
		})
		t.Run("h2c to "+c.name, func(t *testing.T) { runH2spec(t, program, g.plain.Address) })
		t.Run("h2 to "+c.name, func(t *testing.T) { runH2spec(t, program, g.secure.Address, "--tls", "--insecure") })
		g.settled()
	}
}

// runH2spec expects all cases to pass, the strict ones too.
func runH2spec(t *testing.T, program string, server netip.AddrPort, args ...string) {
	args = append(args, "--strict", "--timeout", "5", "-h", server.Addr().String(), "-p", strconv.Itoa(int(server.Port())))
	out, err := exec.Command(program, args...).CombinedOutput()
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

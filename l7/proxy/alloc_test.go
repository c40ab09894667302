package proxy

import (
	"bytes"
	ctls "crypto/tls"
	"fmt"
	"net"
	"runtime"
	"testing"

	"github.com/millrace/millrace/http2"
	"github.com/millrace/millrace/semantics"
)

// rawBackend answers each read of whole requests with a fixed response, without an allocation.
func rawBackend(t *testing.T) string {
	return script(t, func(c net.Conn) {
		buf := make([]byte, 64<<10)
		response := []byte("HTTP/1.1 200 OK\r\nServer: x\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n\r\nhello")
		for {
			n, err := c.Read(buf)
			if err != nil {
				return
			}
			for range bytes.Count(buf[:n], []byte("\r\n\r\n")) {
				c.Write(response)
			}
		}
	})
}

// A request allocates nothing once buffers have grown: by HTTP/1.1 and HTTP/2, plain and with TLS.
func TestRequestsAllocateNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	r := newRig(t, rawBackend(t), nil)
	dial := func(protocol string) net.Conn {
		if protocol == "" {
			c, err := net.Dial("tcp", r.addr)
			must(t, err)
			return c
		}
		c, err := ctls.Dial("tcp", r.secure, &ctls.Config{RootCAs: r.roots, ServerName: "gateway.test", NextProtos: []string{protocol}})
		must(t, err)
		return c
	}
	for _, c := range []struct {
		name, protocol string
		h2             bool
		limit          float64 // of crypto/tls at the client
	}{
		{"h1", "", false, 0.05}, {"h1 with content", "", false, 0.05}, {"h1 tls", "http/1.1", false, 4.05}, {"h2", "", true, 0.05}, {"h2 tls", "h2", true, 4.05},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn := dial(c.protocol)
			defer conn.Close()
			once := client1(t, conn)
			if c.name == "h1 with content" {
				once = client1Content(t, conn)
			}
			if c.h2 {
				once = client2(t, conn)
			}
			for range 200 {
				once()
			}
			var before, after runtime.MemStats
			const n = 2000
			runtime.ReadMemStats(&before)
			for range n {
				once()
			}
			runtime.ReadMemStats(&after)
			if per := float64(after.Mallocs-before.Mallocs) / n; per > c.limit {
				t.Errorf("%.2f allocations for each request", per)
			}
		})
	}
}

// client1 returns a function that makes a request of HTTP/1.1.
func client1(t *testing.T, c net.Conn) func() {
	request := []byte("GET /a/b?c=d HTTP/1.1\r\nHost: example.org\r\nUser-Agent: test\r\nAccept: */*\r\n\r\n")
	buf := make([]byte, 4096)
	return func() {
		c.Write(request)
		n, err := c.Read(buf)
		if err != nil || !bytes.HasSuffix(buf[:n], []byte("hello")) {
			t.Fatalf("%q %v", buf[:n], err)
		}
	}
}

// client1Content returns a function that makes a request of HTTP/1.1 with content.
func client1Content(t *testing.T, c net.Conn) func() {
	request := fmt.Appendf(nil, "POST / HTTP/1.1\r\nHost: example.org\r\nContent-Length: 3000\r\n\r\n%3000d", 1)
	buf := make([]byte, 4096)
	return func() {
		c.Write(request)
		n, err := c.Read(buf)
		if err != nil || !bytes.HasSuffix(buf[:n], []byte("hello")) {
			t.Fatalf("%q %v", buf[:n], err)
		}
	}
}

// client2 returns a function that makes a request of HTTP/2.
func client2(t *testing.T, c net.Conn) func() {
	m := http2.NewMachine(http2.RoleClient, http2.Options{})
	message := semantics.Message{
		Method: "GET", Scheme: "http", Authority: "example.org", Path: "/a/b?c=d", ContentLength: -1,
		Fields: []semantics.Field{{Name: "user-agent", Value: "test"}, {Name: "accept", Value: "*/*"}},
	}
	buf, out := make([]byte, 64<<10), []byte(nil)
	return func() {
		s, err := m.Open()
		must(t, err)
		out, err = m.AppendRequest(m.AppendControl(out[:0]), s, &message, true)
		must(t, err)
		c.Write(out)
		for got := 0; ; {
			n, err := c.Read(buf)
			must(t, err)
			for p := buf[:n]; ; {
				ev, used, err := m.Input(p)
				must(t, err)
				p = p[used:]
				switch ev.Kind {
				case http2.Data:
					got += len(ev.Payload)
					m.Consumed(ev.Stream, len(ev.Payload))
				case http2.End:
					if got != 5 || ev.Stream.Message.Status != 200 {
						t.Fatal(got, ev.Stream.Message)
					}
					m.Release(ev.Stream)
					return
				case http2.Failed:
					t.Fatal(ev.Code, ev.Err)
				}
				if ev.Kind == http2.NeedInput {
					break
				}
			}
		}
	}
}

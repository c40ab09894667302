package daemon

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/gateway/admin"
)

// Streams to a backend end after the drain time of its pool, however it goes: by a command, by its state, or out of the file.
func TestStreamsEndWithTheDrainTime(t *testing.T) {
	echo := echoBytes(t)
	config := func(backend string) string {
		return fmt.Sprintf(`
admin: {socket: SOCKET}
loops: 2
listeners: [{name: plain, address: "LISTEN", protocol: TCP}]
tcp_routes: [{name: echo, backend_refs: [{name: echo, weight: 1}, {name: none, weight: 0}]}]
pools:
- {name: echo, protocol: TCP, drain: 50ms, backends: [%s]}
- {name: none, protocol: TCP, backends: [{address: "192.0.2.1:80"}]}
`, backend)
	}
	was := config(fmt.Sprintf(`{name: a, address: "%s"}`, echo))
	s := newSite(t, was)
	open := func() net.Conn {
		c, err := net.Dial("tcp", s.addr)
		if err != nil {
			t.Fatal(err)
		}
		c.SetDeadline(time.Now().Add(time.Minute))
		if _, err := io.WriteString(c, "x"); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		return c
	}
	for i, c := range []struct {
		name string
		do   func()
	}{
		{"a command", func() {
			d := admin.Drain{Target: admin.Target{Service: "echo", Backend: "a"}, Deadline: admin.Duration(10 * time.Millisecond), Force: true}
			if err := s.admin.Drain(t.Context(), d); err != nil {
				t.Fatal(err)
			}
		}},
		{"its state", func() { s.reload(config(fmt.Sprintf(`{name: a, address: "%s", state: draining}`, echo))) }},
		{"another backend", func() { s.reload(config(`{name: a, address: "192.0.2.2:80"}`)) }},
		{"no pool", func() {
			text, rest, _ := strings.Cut(config(""), "- {name: echo")
			_, rest, _ = strings.Cut(rest, "\n")
			s.reload(strings.Replace(text, "{name: echo, weight: 1}, {name: none, weight: 0}", "{name: none}", 1) + rest)
		}},
	} {
		conn := open()
		c.do()
		if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, unix.ECONNRESET) {
			t.Errorf("%s: %v", c.name, err)
		}
		conn.Close()
		if n := s.counted("millrace_http_drained_streams_total"); n != fmt.Sprint(i+1) {
			t.Errorf("%s: %s are counted", c.name, n)
		}
		_ = s.admin.Undrain(t.Context(), admin.Target{Service: "echo", Backend: "a"}) // after the command
		s.reload(was)
	}
	conn := open()
	time.Sleep(100 * time.Millisecond) // a drain that was called off ends nothing
	if _, err := io.WriteString(conn, "x"); err != nil {
		t.Error(err)
	}
	if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
		t.Error(err)
	}
	conn.Close()
}

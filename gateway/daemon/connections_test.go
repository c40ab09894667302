package daemon

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/gateway/admin"
)

// TestConnectionsOfListenersAreListed has a request in progress, an idle connection, one that has sent nothing, and one that is passed
// through; they are chosen by listener, pool and backend.
func TestConnectionsOfListenersAreListed(t *testing.T) {
	release := make(chan struct{})
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			<-release
		}
	}))
	defer backend.Close()
	passed, to := free(t), strings.TrimPrefix(backend.URL, "http://")
	s := newSite(t, fmt.Sprintf(`
admin: {socket: SOCKET}
loops: 2
listeners: [{name: web, address: "LISTEN", protocol: HTTP}, {name: through, address: "%s", protocol: TCP}]
routes: [{name: r, rules: [{backend_refs: [{name: p}]}]}]
tcp_routes: [{name: t, backend_refs: [{name: echo}]}]
pools: [{name: p, backends: [{name: a, address: "%s"}]}, {name: echo, protocol: TCP, backends: [{name: e, address: "%s"}]}]
`, passed, to, echoBytes(t)))
	dial := func(at, send string) net.Conn {
		c, err := net.Dial("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		if _, err := io.WriteString(c, send); err != nil {
			t.Fatal(err)
		}
		return c
	}
	const request = "GET %s HTTP/1.1\r\nHost: a\r\n\r\n"
	conns := map[string]net.Conn{"active": dial(s.addr, fmt.Sprintf(request, "/slow")), "idle": dial(s.addr, fmt.Sprintf(request, "/")), "passed": dial(passed, "x"), "fresh": dial(s.addr, "")}
	list := func(q admin.Query) (lines []string) {
		if err := s.admin.Connections(t.Context(), q, func(c admin.Connection) bool {
			for name, conn := range conns {
				if conn.LocalAddr().String() == c.Client.String() {
					lines = append(lines, fmt.Sprintf("%s: %s %s %s to %s/%s %v, %d of %d at %v", name, c.Listener, c.Protocol, c.State, c.Service, c.Backend, c.Target.IsValid(), c.Active, c.Requests, c.Address))
				}
			}
			return true
		}); err != nil {
			t.Fatal(err)
		}
		slices.Sort(lines)
		return lines
	}
	want := []string{
		"active: web HTTP/1.1 active to p/a true, 1 of 1 at " + s.addr,
		"fresh: web HTTP/1.1 idle to / false, 0 of 0 at " + s.addr,
		"idle: web HTTP/1.1 idle to / false, 0 of 1 at " + s.addr,
		"passed: through TCP passed to echo/e true, 0 of 0 at " + passed,
	}
	var got []string
	for end := time.Now().Add(time.Minute); !slices.Equal(got, want) && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		got = list(admin.Query{})
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	for _, c := range []struct {
		q    admin.Query
		want []string
	}{
		{admin.Query{Service: "web"}, want[:3]},
		{admin.Query{Service: "p"}, want[:1]},
		{admin.Query{Backend: "e"}, want[3:]},
		{admin.Query{Service: "echo", Backend: "e"}, want[3:]},
		{admin.Query{Service: "through"}, want[3:]},
	} {
		if got := list(c.q); !slices.Equal(got, c.want) {
			t.Errorf("%+v: %q, want %q", c.q, got, c.want)
		}
	}
	if err := s.admin.Connections(t.Context(), admin.Query{Service: "none"}, func(admin.Connection) bool { return true }); err == nil {
		t.Error("an unknown service is taken")
	}
	close(release)
}

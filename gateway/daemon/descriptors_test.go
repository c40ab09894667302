package daemon

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	l4control "github.com/millrace/millrace/l4/control"
)

const descriptorsConfig = `
admin: {socket: SOCKET}
loops: 1
listeners:
- {name: web, address: "LISTEN", protocol: HTTP, timeouts: {request_header: 1h, idle: 1h}}
routes:
- {name: r, rules: [{backend_refs: [{name: p}]}]}
pools:
- {name: p, backends: [{name: b, address: "BACKEND"}]}
`

// TestDescriptorPeer is the other process of the test below: the backend, and clients that open connections and send nothing.
func TestDescriptorPeer(t *testing.T) {
	if os.Getenv("DESCRIPTOR_PEER") == "" {
		t.Skip("it runs in a process of its own, which another test starts")
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go http.Serve(ln, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "served") }))
	fmt.Println("backend", ln.Addr())
	in := bufio.NewScanner(os.Stdin)
	in.Scan()
	var conns []net.Conn
	for range 300 {
		c, err := net.Dial("tcp", in.Text())
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, c)
	}
	in.Scan()
	for _, c := range conns {
		c.Close()
	}
	in.Scan() // until the end
}

// lines is a log that may be read while it is written.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// descriptorPeer starts the other process, and returns the address of its backend.
func descriptorPeer(t *testing.T) (backend string, flood io.WriteCloser) {
	t.Helper()
	peer := exec.Command(os.Args[0], "-test.run=^TestDescriptorPeer$")
	peer.Env = append(os.Environ(), "DESCRIPTOR_PEER=1")
	flood, err := peer.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := peer.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := peer.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = flood.Close()
		_ = peer.Process.Kill()
		_ = peer.Wait()
	})
	first, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || !strings.HasPrefix(first, "backend ") {
		t.Fatal(first, err)
	}
	return strings.TrimSpace(strings.TrimPrefix(first, "backend ")), flood
}

// fewDescriptors leaves the process n more descriptors than it has open.
func fewDescriptors(t *testing.T, n int) {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	few := was
	few.Cur = uint64(len(list) + n)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &few); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Setrlimit(unix.RLIMIT_NOFILE, &was) })
}

// Clients that open more connections than there are descriptors leave some for backends and the admin socket. The log has it, and new
// clients are served once the others are gone.
func TestClientsThatTakeAllDescriptors(t *testing.T) {
	backend, flood := descriptorPeer(t)
	fewDescriptors(t, 100)
	log := &lines{}
	s := newLoggedSite(t, strings.ReplaceAll(descriptorsConfig, "BACKEND", backend), slog.New(slog.NewTextHandler(log, nil)))
	c, err := net.Dial("tcp", s.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(time.Minute))
	await(t, func() bool { return s.d.workers.Totals().Open == 1 })
	fmt.Fprintln(flood, s.addr)
	await(t, func() bool { return strings.Contains(log.String(), "file descriptors run short") })

	fmt.Fprint(c, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(resp.Body); string(b) != "served" || err != nil {
		t.Errorf("a client among the others: %d, %q, %v", resp.StatusCode, b, err)
	}
	if _, err := s.admin.Status(t.Context(), l4control.Selection{}); err != nil {
		t.Error("status:", err)
	}
	if got := s.counted("millrace_http_descriptor_shortages_total"); got == "" || got == "0" {
		t.Errorf("%q shortages are in the metrics", got)
	}
	fmt.Fprintln(flood, "leave")
	if status, body := s.get("/"); status != 200 || body != "served" {
		t.Errorf("after the others: %d, %q", status, body)
	}
}

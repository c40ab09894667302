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

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
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
	go http.Serve(ln, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/slow") { // for long enough that all requests are there at the same time
			time.Sleep(100 * time.Millisecond)
		}
		io.WriteString(w, "served")
	}))
	fmt.Println("backend", ln.Addr())
	var conns []net.Conn
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		switch command, addr, _ := strings.Cut(in.Text(), " "); command {
		case "flood":
			for range 300 {
				c, err := net.Dial("tcp", addr)
				if err != nil {
					t.Fatal(err)
				}
				conns = append(conns, c)
			}
		case "leave":
			for _, c := range conns {
				c.Close()
			}
		case "a", "b":
			fmt.Println("asked", statuses(t, addr, command, 42))
		}
	}
}

// statuses returns how often clients that ask at the same time, once on a connection each, get which status.
func statuses(t *testing.T, addr, host string, clients int) map[int]int {
	got := make(chan int, clients)
	for range clients {
		go func() {
			status := 0
			defer func() { got <- status }()
			c, err := net.Dial("tcp", addr)
			if err != nil {
				return
			}
			defer c.Close()
			c.SetDeadline(time.Now().Add(time.Minute))
			fmt.Fprintf(c, "GET /slow HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", host)
			if resp, err := http.ReadResponse(bufio.NewReader(c), nil); err == nil {
				status = resp.StatusCode
			}
		}()
	}
	count := map[int]int{}
	for range clients {
		count[<-got]++
	}
	return count
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
func descriptorPeer(t *testing.T) (backend string, commands io.WriteCloser, answers *bufio.Reader) {
	t.Helper()
	peer := exec.Command(os.Args[0], "-test.run=^TestDescriptorPeer$")
	peer.Env = append(os.Environ(), "DESCRIPTOR_PEER=1")
	commands, err := peer.StdinPipe()
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
		_ = commands.Close()
		_ = peer.Process.Kill()
		_ = peer.Wait()
	})
	answers = bufio.NewReader(out)
	first, err := answers.ReadString('\n')
	if err != nil || !strings.HasPrefix(first, "backend ") {
		t.Fatal(first, err)
	}
	return strings.TrimSpace(strings.TrimPrefix(first, "backend ")), commands, answers
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
	backend, flood, _ := descriptorPeer(t)
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
	fmt.Fprintln(flood, "flood", s.addr)
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

// Requests for which there is no descriptor wait for one, as they do for a connection of a backend that has as many as it may. The
// connections to one backend, which keep theirs, make room for those to another.
func TestRequestsWaitForDescriptors(t *testing.T) {
	backend, peer, answers := descriptorPeer(t)
	fewDescriptors(t, 100)
	src := strings.Replace(descriptorsConfig, "{name: p, backends", "{name: p, timeouts: {wait: 1m}, backends", 1) +
		"- {name: q, timeouts: {wait: 1m}, backends: [{name: b, address: \"BACKEND\"}]}\n"
	src = strings.Replace(src, "routes:\n", "routes:\n- {name: b, hostnames: [b], rules: [{backend_refs: [{name: q}]}]}\n", 1)
	s := newSite(t, strings.ReplaceAll(src, "BACKEND", backend))
	for _, host := range []string{"a", "b", "a"} {
		fmt.Fprintln(peer, host, s.addr)
		if got, err := answers.ReadString('\n'); strings.TrimSpace(got) != "asked map[200:42]" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
	}
	if got := s.counted("millrace_http_descriptor_shortages_total"); got == "" || got == "0" {
		t.Errorf("%q shortages are in the metrics: all have found a descriptor", got)
	}
}

const filesConfig = `
admin: {socket: SOCKET}
loops: 1
listeners:
- {name: web, address: "LISTEN", protocol: HTTP, versions: ["1.1", "2"]}
routes:
- {name: r, rules: [{static: {root: "ROOT"}}]}
`

// stalledGets opens an HTTP/2 connection that gets files and takes no content.
func stalledGets(t *testing.T, addr string, n int, path func(i int) string) {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	var b bytes.Buffer
	b.WriteString(http2.ClientPreface)
	f := http2.NewFramer(&b, nil)
	f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
	for i := range n {
		var h bytes.Buffer
		e := hpack.NewEncoder(&h)
		for _, field := range [][2]string{{":method", "GET"}, {":scheme", "http"}, {":authority", "a"}, {":path", path(i)}} {
			e.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]})
		}
		f.WriteHeaders(http2.HeadersFrameParam{StreamID: uint32(2*i + 1), BlockFragment: h.Bytes(), EndStream: true, EndHeaders: true})
	}
	if _, err := c.Write(b.Bytes()); err != nil {
		t.Fatal(err)
	}
}

// Clients that take no content of files leave descriptors for others, whether they get one file or many.
func TestFilesLeaveDescriptors(t *testing.T) {
	root := t.TempDir()
	large := bytes.Repeat([]byte("x"), 1<<20)
	for i := range 100 {
		if err := os.WriteFile(fmt.Sprintf("%s/%d", root, i), large, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	fewDescriptors(t, 100)
	log := &lines{}
	s := newLoggedSite(t, strings.ReplaceAll(filesConfig, "ROOT", root), slog.New(slog.NewTextHandler(log, nil)))
	stalledGets(t, s.addr, 90, func(int) string { return "/0" })
	stalledGets(t, s.addr, 90, func(int) string { return "/0" })
	await(t, func() bool { return s.d.workers.Totals().Active == 180 })
	if strings.Contains(log.String(), "run short") {
		t.Error("many responses with one file have taken the descriptors")
	}
	stalledGets(t, s.addr, 90, func(i int) string { return fmt.Sprint("/", i) })
	await(t, func() bool { return strings.Contains(log.String(), "run short") })
	if _, err := s.admin.Status(t.Context(), l4control.Selection{}); err != nil {
		t.Error("status:", err)
	}
	if status, body := s.get("/0"); status != 200 || body != string(large) {
		t.Errorf("another client: %d, %d bytes", status, len(body))
	}
}

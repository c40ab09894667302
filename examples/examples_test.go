// Package examples_test runs the example programs as a user does: as processes, on an interface that the
// kernel uses too.
package examples_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/testkit/testnet"
)

const (
	kernelAddr = "198.18.0.1" // of the programs' machine
	stackAddr  = "198.18.0.2" // of a program
	peerAddr   = "198.18.0.9" // of the machine at the other end
)

// network is two machines. The programs run on the first, beside its kernel.
type network struct {
	dir         string // of the programs
	local, peer *testnet.Namespace
}

func newNetwork(t *testing.T) *network {
	t.Helper()
	n := testnet.For(t, "mr-examples")
	x := &network{dir: t.TempDir(), local: n.Namespace("local"), peer: n.Namespace("peer")}
	must(t, n.Link(x.local, "eth1", x.peer, "eth1"))
	must(t, x.local.Up("eth1", kernelAddr+"/24"))
	must(t, x.peer.Up("eth1", peerAddr+"/24"))
	if out, err := exec.Command("go", "build", "-o", x.dir, "./httpserver", "./httpclient", "./udpecho", "./poller").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return x
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// start runs a server until the test ends, and then expects it to end by itself and to leave the interface
// to the kernel.
func (x *network) start(t *testing.T, program string) {
	t.Helper()
	var out bytes.Buffer
	cmd := exec.Command(filepath.Join(x.dir, program), "eth1", stackAddr+"/24")
	cmd.Stdout, cmd.Stderr = &out, &out
	must(t, x.local.Start(cmd))
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		ended := time.AfterFunc(10*time.Second, func() { _ = cmd.Process.Signal(syscall.SIGKILL) })
		if err := cmd.Wait(); err != nil || !ended.Stop() {
			t.Errorf("%s: %v\n%s", program, err, out.String())
		}
		x.ping(t)
	})
}

// ping expects the kernel of the local machine to answer.
func (x *network) ping(t *testing.T) {
	t.Helper()
	if out, err := x.peer.Run("ping", "-c1", "-W5", kernelAddr); err != nil {
		t.Errorf("the kernel's address: %v\n%s", err, out)
	}
}

// dial connects from the peer by its kernel, once the server listens.
func (x *network) dial(t *testing.T, network, port string) (c net.Conn) {
	t.Helper()
	d := net.Dialer{Timeout: time.Second}
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if err := x.peer.Do(func() (err error) {
			c, err = d.Dial(network, net.JoinHostPort(stackAddr, port))
			return err
		}); err == nil {
			_ = c.SetDeadline(time.Now().Add(5 * time.Minute))
			return c
		}
	}
	t.Fatalf("%s %s does not answer", network, port)
	return nil
}

func TestBesideTheKernel(t *testing.T) {
	x := newNetwork(t)
	t.Run("httpserver", x.httpServer)
	t.Run("httpclient", x.httpClient)
	t.Run("udpecho", x.udpEcho)
	t.Run("poller", x.poller)
}

func (x *network) httpServer(t *testing.T) {
	x.start(t, "httpserver")
	c := x.dial(t, "tcp", "80")
	defer c.Close()
	fmt.Fprintf(c, "GET /page HTTP/1.0\r\n\r\n")
	got, err := io.ReadAll(c)
	if want := "/page from " + stackAddr + ":80 to " + peerAddr; err != nil || !strings.Contains(string(got), want) {
		t.Errorf("%q, %v, want %q", got, err, want)
	}
	x.ping(t)
}

func (x *network) httpClient(t *testing.T) {
	var l net.Listener
	must(t, x.peer.Do(func() (err error) {
		l, err = net.Listen("tcp", peerAddr+":80")
		return err
	}))
	from := make(chan string, 1)
	server := http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		from <- r.RemoteAddr
		_, _ = io.WriteString(w, "the page\n")
	})}
	defer server.Close()
	go func() { _ = server.Serve(l) }()
	out, err := x.local.Run(filepath.Join(x.dir, "httpclient"), "eth1", stackAddr+"/24", "http://"+peerAddr+"/")
	if err != nil || out != "the page\n" {
		t.Errorf("%q, %v", out, err)
	}
	if client := <-from; !strings.HasPrefix(client, stackAddr+":") {
		t.Errorf("the request came from %s", client)
	}
	x.ping(t)
}

func (x *network) udpEcho(t *testing.T) {
	x.start(t, "udpecho")
	c := x.dial(t, "udp", "7")
	defer c.Close()
	buf := make([]byte, 100)
	for range 100 {
		_, _ = c.Write([]byte("hello"))
		_ = c.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		if n, err := c.Read(buf); err == nil {
			if string(buf[:n]) != "hello" {
				t.Errorf("%q", buf[:n])
			}
			return
		}
	}
	t.Error("no answer")
}

func (x *network) poller(t *testing.T) {
	x.start(t, "poller")
	conns := make([]net.Conn, 1000)
	for i := range conns {
		conns[i] = x.dial(t, "tcp", "7")
		defer conns[i].Close()
	}
	for i, c := range conns {
		fmt.Fprintf(c, "this is connection %03d", i)
	}
	for i, c := range conns {
		want := fmt.Sprintf("this is connection %03d", i)
		got := make([]byte, len(want))
		if _, err := io.ReadFull(c, got); err != nil || string(got) != want {
			t.Errorf("%q, %v, want %q", got, err, want)
		}
	}
}

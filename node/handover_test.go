package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/millrace/millrace/metrics"
)

// namedNode runs a node without devices that answers with a name.
func namedNode(t *testing.T, c Config, name string) (*Node, func()) {
	t.Helper()
	h := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, name) })
	c.WithoutDevices, c.ControlInUse = true, errors.New("in use")
	c.ControlServer = func(*Node) http.Handler { return h }
	c.Exposition = func(*metrics.Registry) http.Handler { return h }
	n, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Add(Service{Name: name}); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- n.Run(ctx) }()
	return n, func() {
		t.Helper()
		stop()
		if err := errors.Join(<-done, n.Close()); err != nil {
			t.Error(err)
		}
	}
}

// TestSocketsPassFromNodeToNode asks at the control socket and for metrics, over new connections, while one node takes over from
// another: one of the two answers, and from the end of the first on the second does.
func TestSocketsPassFromNodeToNode(t *testing.T) {
	c := Config{Control: filepath.Join(t.TempDir(), "c"), Metrics: fmt.Sprintf("127.0.0.1:%d", freePort(t))}
	ask := func(want string) {
		t.Helper()
		for network, at := range map[string]string{"unix": c.Control, "tcp": c.Metrics} {
			client := http.Client{Transport: &http.Transport{
				DisableKeepAlives: true,
				DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
					return new(net.Dialer).DialContext(ctx, network, at)
				},
			}}
			resp, err := client.Get("http://x/metrics")
			if err != nil {
				t.Error(network, err)
				continue
			}
			body, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			if string(body) != want {
				t.Errorf("%s: %q answers, want %q", network, body, want)
			}
		}
	}
	old, end := namedNode(t, c, "old")
	ask("old")
	sockets, err := old.Sockets()
	if err != nil {
		t.Fatal(err)
	}
	if c.Inherited = sockets; len(sockets) != 2 {
		t.Fatalf("%d sockets", len(sockets))
	}
	old.HoldAccept(true)
	successor, endSuccessor := namedNode(t, c, "new")
	ask("new")
	if err := successor.OwnSockets(); err != nil {
		t.Error(err)
	}
	old.LeaveSockets()
	end()
	ask("new")
	endSuccessor()
	if _, err := os.Lstat(c.Control); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the control socket is left: %v", err)
	}
}

// TestARefusedNodeLeavesTheSockets opens a node with sockets of another, and closes it: the other goes on.
func TestARefusedNodeLeavesTheSockets(t *testing.T) {
	c := Config{Control: filepath.Join(t.TempDir(), "c")}
	old, end := namedNode(t, c, "old")
	defer end()
	sockets, err := old.Sockets()
	if err != nil {
		t.Fatal(err)
	}
	c.WithoutDevices, c.Inherited = true, sockets
	n, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Close(); err != nil {
		t.Error(err)
	}
	conn, err := net.Dial("unix", c.Control)
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
}

// TestASocketIsInheritedOnce has a socket of each kind at one address.
func TestASocketIsInheritedOnce(t *testing.T) {
	n := &Node{cfg: Config{Inherited: []Socket{{MetricsSocket, "a", os.Stdin}, {ControlSocket, "a", os.Stdout}}}}
	for _, want := range []*os.File{os.Stdin, nil} {
		if f := n.inherit(MetricsSocket, "a"); f != want {
			t.Errorf("%v, want %v", f, want)
		}
	}
	if n.inherit(ControlSocket, "b") != nil {
		t.Error("a socket of another address")
	}
}

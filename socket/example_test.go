package socket_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"

	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/ring"
	"github.com/millrace/millrace/socket"
	"github.com/millrace/millrace/stack"
	"github.com/millrace/millrace/stack/host"
)

// A web server and its client, each on a host of its own, joined by a wire in memory. Over a network
// interface the drivers come from pmd/device; all else is the same.
func Example() {
	arena, err := ring.NewArena(ring.ArenaConfig{Frames: 4096})
	if err != nil {
		log.Fatal(err)
	}
	defer arena.Close()
	poolA, _ := arena.Cut(2048)
	poolB, _ := arena.Cut(2048)
	a, b, err := pmd.NewMemory(pmd.MemoryConfig{A: poolA, B: poolB})
	if err != nil {
		log.Fatal(err)
	}
	defer a.Close()
	defer b.Close()
	server := open(a, poolA, "198.18.0.1/24")
	defer server.Close()
	client := open(b, poolB, "198.18.0.2/24")
	defer client.Close()

	l, err := server.Listen("tcp", ":80")
	if err != nil {
		log.Fatal(err)
	}
	go func() {
		_ = http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") }))
	}()

	web := http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			return client.DialContext(ctx, network, addr)
		},
	}}
	resp, err := web.Get("http://198.18.0.1/")
	if err != nil {
		log.Fatal(err)
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	fmt.Printf("%s: %s\n", resp.Status, body)
	// Output: 200 OK: hello
}

// open starts a host with one loop.
func open(d pmd.Driver, p *ring.Pool, addr string) *socket.Stack {
	s, err := socket.New(socket.Config{
		Host:  host.Config{Loops: []stack.Config{{Ports: []pmd.Driver{d}, Pool: p, Engine: gpukern.NewCPU(gpukern.Config{})}}},
		Addrs: []socket.Address{{Prefix: netip.MustParsePrefix(addr)}},
	})
	if err != nil {
		log.Fatal(err)
	}
	return s
}

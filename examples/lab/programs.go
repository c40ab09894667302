package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"
)

// Ports that the backends serve.
const (
	webPort  = 8080
	echoPort = 5353
)

// backend is a sample server: HTTP that says its name, or sends /bytes?, and UDP that answers each
// datagram with its name.
func backend(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("backend", flag.ContinueOnError)
	name := flags.String("name", "", "what the server calls itself")
	if err := flags.Parse(args); err != nil {
		return err
	}
	udp, err := net.ListenPacket("udp", fmt.Sprintf(":%d", echoPort))
	if err != nil {
		return err
	}
	go answer(udp, *name)
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, *name) })
	mux.HandleFunc("/bulk", func(w http.ResponseWriter, r *http.Request) { _, _ = io.CopyN(w, zeros{}, bulkBytes) })
	mux.HandleFunc("/chat", func(w http.ResponseWriter, r *http.Request) { chat(w, r, *name) })
	mux.HandleFunc(grpcMethod, func(w http.ResponseWriter, r *http.Request) { serveGRPC(w, r, *name) })
	srv := &http.Server{Addr: fmt.Sprintf(":%d", webPort), Handler: mux, ReadHeaderTimeout: 5 * time.Second, Protocols: new(http.Protocols)}
	srv.Protocols.SetHTTP1(true)
	srv.Protocols.SetUnencryptedHTTP2(true) // gRPC
	context.AfterFunc(ctx, func() { srv.Close() })
	if err := srv.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// answer replies to every datagram with the server's name.
func answer(c net.PacketConn, name string) {
	buf := make([]byte, 2048)
	for {
		_, from, err := c.ReadFrom(buf)
		if err != nil {
			return
		}
		_, _ = c.WriteTo([]byte(name), from)
	}
}

// zeros is an endless stream of zero bytes.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// tally counts who answered.
type tally struct {
	ByServer map[string]int `json:"by_server"`
	Lost     int            `json:"lost"`
	Seconds  float64        `json:"seconds"`
}

// udpClient sends datagrams from sockets of their own, so each is a flow, and prints who answered.
func udpClient(_ context.Context, args []string) error {
	flags := flag.NewFlagSet("udp-client", flag.ContinueOnError)
	to := flags.String("to", "", "address and port")
	flows := flags.Int("flows", 100, "sockets")
	each := flags.Int("each", 10, "datagrams of each")
	if err := flags.Parse(args); err != nil {
		return err
	}
	t, start := tally{ByServer: map[string]int{}}, time.Now()
	for range *flows {
		if err := t.ask(*to, *each); err != nil {
			return err
		}
	}
	t.Seconds = time.Since(start).Seconds()
	return json.NewEncoder(os.Stdout).Encode(t)
}

// ask exchanges n datagrams over one socket.
func (t *tally) ask(to string, n int) error {
	c, err := net.Dial("udp", to)
	if err != nil {
		return err
	}
	defer c.Close()
	buf := make([]byte, 2048)
	for range n {
		if _, err := c.Write([]byte("who is there?")); err != nil {
			return err
		}
		_ = c.SetReadDeadline(time.Now().Add(500 * time.Millisecond))
		k, err := c.Read(buf)
		if err != nil {
			t.Lost++
			continue
		}
		t.ByServer[string(buf[:k])]++
	}
	return nil
}

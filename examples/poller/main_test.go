package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/socket"
)

// open starts the server and returns the client's stack and a function that dials the server.
func open(t *testing.T) (dial func() net.Conn) {
	t.Helper()
	server, client, err := socket.Pair(netip.MustParsePrefix("198.18.0.2/24"), netip.MustParsePrefix("198.18.0.1/24"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- serve(ctx, server) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		_ = client.Close()
		_ = server.Close()
	})
	return func() net.Conn {
		for {
			c, err := client.Dial("tcp", "198.18.0.2:7")
			if err == nil {
				_ = c.SetDeadline(time.Now().Add(time.Minute))
				return c
			}
			if !strings.Contains(err.Error(), "connection refused") { // it does not listen yet
				t.Fatal(err)
			}
		}
	}
}

// TestThousandConnections has a thousand connections open at once, and one goroutine for all of them.
func TestThousandConnections(t *testing.T) {
	dial := open(t)
	conns := make([]net.Conn, 1000)
	conns[0] = dial()
	before := runtime.NumGoroutine()
	for i := range conns[1:] {
		conns[1+i] = dial()
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
	if n := runtime.NumGoroutine(); n > before+4 {
		t.Errorf("%d goroutines, %d before", n, before)
	}
	for i, c := range conns {
		if err := c.(*socket.TCPConn).CloseWrite(); err != nil {
			t.Error(err)
		}
		if n, err := c.Read(make([]byte, 1)); n != 0 || err != io.EOF {
			t.Errorf("connection %d: %d, %v, want the end", i, n, err)
		}
		_ = c.Close()
	}
}

// TestBackPressure sends more than all buffers hold before it reads.
func TestBackPressure(t *testing.T) {
	c := open(t)()
	data := bytes.Repeat([]byte("0123456789abcdef"), 1<<20)
	go func() { _, _ = c.Write(data) }()
	time.Sleep(50 * time.Millisecond)
	got := make([]byte, len(data))
	if n, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, data) {
		t.Errorf("%d of %d bytes, %v", n, len(data), err)
	}
	_ = c.Close()
}

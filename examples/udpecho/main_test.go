package main

import (
	"bytes"
	"context"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/millrace/millrace/socket"
)

// TestEcho has datagrams of every size echoed by another stack of this process.
func TestEcho(t *testing.T) {
	server, client, err := socket.Pair(netip.MustParsePrefix("198.18.0.2/24"), netip.MustParsePrefix("198.18.0.1/24"))
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	defer client.Close()
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- echo(ctx, server) }()

	c, err := client.Dial("udp", "198.18.0.2:7")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, size := range []int{1, 1472, 3000, 65507} {
		data := bytes.Repeat([]byte{byte(size)}, size)
		if got := exchange(t, c, data); !bytes.Equal(got, data) {
			t.Errorf("%d bytes came back of %d", len(got), size)
		}
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// exchange sends data until it comes back: the first may arrive before the server listens.
func exchange(t *testing.T, c net.Conn, data []byte) []byte {
	t.Helper()
	buf := make([]byte, 1<<16)
	for range 100 {
		_, _ = c.Write(data)
		_ = c.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		if n, err := c.Read(buf); err == nil {
			return buf[:n]
		}
	}
	t.Fatalf("no answer to %d bytes", len(data))
	return nil
}

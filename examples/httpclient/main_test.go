package main

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/millrace/socket"
)

// TestGet gets pages from net/http on another stack of this process.
func TestGet(t *testing.T) {
	server, client, err := socket.Pair(netip.MustParsePrefix("198.18.0.2/24"), netip.MustParsePrefix("198.18.0.1/24"))
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	defer client.Close()
	l, err := server.Listen("tcp", ":80")
	if err != nil {
		t.Fatal(err)
	}
	page := bytes.Repeat([]byte("0123456789"), 100_000)
	mux := http.NewServeMux()
	mux.HandleFunc("/page", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(page) })
	go func() { _ = http.Serve(l, mux) }()

	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	var got bytes.Buffer
	if err := get(ctx, client, "http://198.18.0.2/page", &got); err != nil || !bytes.Equal(got.Bytes(), page) {
		t.Errorf("%d of %d bytes, %v", got.Len(), len(page), err)
	}
	if err := get(ctx, client, "http://198.18.0.2/other", &got); err == nil {
		t.Error("a page that is not there has no error")
	}
	if err := get(ctx, client, "http://198.18.0.2:81/", &got); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("%v, want %v", err, syscall.ECONNREFUSED)
	}
}

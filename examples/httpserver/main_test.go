package main

import (
	"context"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/socket"
)

// TestServe asks the server from another stack of this process, and then ends it.
func TestServe(t *testing.T) {
	server, client, err := socket.Pair(netip.MustParsePrefix("198.18.0.2/24"), netip.MustParsePrefix("198.18.0.1/24"))
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	defer client.Close()
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- serve(ctx, server) }()

	web := http.Client{Transport: &http.Transport{DialContext: client.DialContext}, Timeout: 10 * time.Second}
	for {
		resp, err := web.Get("http://198.18.0.2/page")
		if err != nil && strings.Contains(err.Error(), "connection refused") {
			continue // it does not listen yet
		}
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		if want := "/page from 198.18.0.2:80 to 198.18.0.1:"; err != nil || !strings.HasPrefix(string(body), want) {
			t.Errorf("%q, %v, want %q and a port", body, err, want)
		}
		_ = resp.Body.Close()
		break
	}
	stop()
	if err := <-served; err != nil {
		t.Error(err)
	}
}

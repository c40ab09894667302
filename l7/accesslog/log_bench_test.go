package accesslog

import (
	"log/slog"
	"net/netip"
	"path/filepath"
	"testing"
	"time"
)

// BenchmarkWrite is what a request's line costs its loop, with the queue to the file. What the file takes is the queue's goroutine's.
func BenchmarkWrite(b *testing.B) {
	r := &Record{
		Client: netip.MustParseAddrPort("192.0.2.1:47426"), Listener: "web", Protocol: "HTTP/1.1", Method: "GET", Host: "bench.example",
		Path: "/bytes/128", Route: "all", Rule: "all/1", Pool: "one", Backend: "127.0.0.1:8080", Status: 200, Attempts: 1, BytesOut: 128,
		Began: 3837 * time.Microsecond,
	}
	layout, err := JSON(nil)
	if err != nil {
		b.Fatal(err)
	}
	o := Options{Path: filepath.Join(b.TempDir(), "log"), Buffer: 64 << 20, Layout: layout, Log: slog.New(slog.DiscardHandler)}
	target, err := Open(&o)
	if err != nil {
		b.Fatal(err)
	}
	l := Use(o, target, nil)
	defer l.Close()
	var lines Lines
	b.ReportAllocs()
	for b.Loop() {
		lines.Write(l, r)
	}
}

package accesslog

import (
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"github.com/millrace/millrace/clock"
)

// BenchmarkWrite is what a request's line costs its loop, with the queue to the file. What the file takes is the queue's goroutine's. "unlike"
// has lines that differ in all fields from the ones before.
func BenchmarkWrite(b *testing.B) {
	r := &Record{
		Client: netip.MustParseAddrPort("192.0.2.1:47426"), Listener: "web", Protocol: "HTTP/1.1", Method: "GET", Host: "bench.example",
		Path: "/bytes/128", Route: "all", Rule: "all/1", Pool: "one", Backend: "127.0.0.1:8080", Status: 200, Attempts: 1, BytesOut: 128,
		Began: 3837 * time.Microsecond,
	}
	b.Run("alike", func(b *testing.B) { benchmarkWrite(b, func(int) *Record { return r }) })
	var unlike []*Record
	for i := range 512 {
		c := *r
		c.Rule, c.Backend, c.Method, c.Status = fmt.Sprintf("all/%03d", i), fmt.Sprintf("10.0.%d.0:8080", i), string("GPHD"[i%4])+"ET", 200+i%100
		unlike = append(unlike, &c)
	}
	b.Run("unlike", func(b *testing.B) { benchmarkWrite(b, func(n int) *Record { return unlike[n%len(unlike)] }) })
}

func benchmarkWrite(b *testing.B, record func(n int) *Record) {
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
	for n := 0; b.Loop(); n++ {
		lines.Write(l, clock.Time(n)*14_000, record(n)) // 70 000 requests a second
	}
}

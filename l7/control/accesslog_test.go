package control

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/millrace/millrace/l7/proxy"
)

// What a client sends stays within its line, and is read back as it was but for what is not UTF-8.
func FuzzRecordsAreLinesOfJSON(f *testing.F) {
	for _, s := range []string{"/", "a\"b\\c", "line\nbreak\r\x00\x1f\x7f", "\xff\xfe", "é\u2028", "</script>"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r := &proxy.Record{Client: netip.MustParseAddrPort("[2001:db8::1]:7"), Path: s, Host: s, Status: 200, BytesOut: 7, Began: 1500 * time.Millisecond}
		line := appendRecord(nil, time.Unix(0, 0), r)
		if bytes.IndexByte(line, '\n') != len(line)-1 {
			t.Fatalf("%q is not one line", line)
		}
		var got struct {
			Time, Client, Path, Host string
			Status                   int
			Bytes                    int `json:"bytes_out"`
			Seconds                  float64
		}
		if err := json.Unmarshal(line, &got); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if got.Status != 200 || got.Bytes != 7 || got.Seconds != 1.5 || got.Client != "[2001:db8::1]:7" || got.Time != "1970-01-01T00:00:00.000Z" {
			t.Errorf("%+v", got)
		}
		if utf8.ValidString(s) && (got.Path != s || got.Host != s) {
			t.Errorf("%q became %q", s, got.Path)
		}
	})
}

func BenchmarkRecord(b *testing.B) {
	r := &proxy.Record{
		Client: netip.MustParseAddrPort("192.0.2.1:7"), Listener: "web", Protocol: "HTTP/2", Method: "GET", Host: "shop.example.org",
		Path: "/api/items?page=7", Route: "shop", Rule: "shop/api", Pool: "api", Backend: "a1", Status: 200, Attempts: 1, BytesOut: 1234,
	}
	var line []byte
	for b.Loop() {
		line = appendRecord(line[:0], time.Now(), r)
	}
}

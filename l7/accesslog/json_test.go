package accesslog

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// inJSON returns a log of JSON whose lines go nowhere.
func inJSON(t testing.TB, names ...string) *Log {
	l, err := JSON(names)
	if err != nil {
		t.Fatal(err)
	}
	return &Log{opt: Options{Layout: l}}
}

// What a client sends stays within its line, and is read back as it was but for what is not UTF-8.
func FuzzRecordsAreLinesOfJSON(f *testing.F) {
	for _, s := range []string{"/", "a\"b\\c", "line\nbreak\r\x00\x1f\x7f", "\xff\xfe", "é\u2028", "</script>"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r := &Record{Client: netip.MustParseAddrPort("[2001:db8::1]:7"), Path: s, Host: s, Status: 200, BytesOut: 7, Began: 1500 * time.Millisecond}
		line := new(Lines).append(nil, time.Unix(0, 0), inJSON(t), r, 1)
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

// TestTimesOfLines compares the times of lines, as they are kept and counted, with those of packages time and strconv.
func TestTimesOfLines(t *testing.T) {
	var line Lines
	to := inJSON(t)
	r := rand.New(rand.NewPCG(1, 2))
	now := time.Unix(1_790_000_000, 0)
	for range 5000 {
		switch r.IntN(4) {
		case 0: // the next second, or one before: a clock is set
			now = now.Add(time.Duration(r.Int64N(3e9)) - time.Second)
		case 1:
			now = now.Add(time.Duration(r.Int64N(1e6)))
		}
		took := time.Duration(r.Int64N(1 << r.IntN(50)))
		got := string(line.append(nil, now, to, &Record{Began: took}, 1))
		want := now.UTC().Format(`{"time":"2006-01-02T15:04:05.000Z07:00",`)
		seconds := `,"seconds":` + strconv.FormatFloat(took.Round(time.Microsecond).Seconds(), 'f', 6, 64) + "}\n"
		if !strings.HasPrefix(got, want) || !strings.HasSuffix(got, seconds) {
			t.Fatalf("%v, %v: %s", now, took, got)
		}
	}
}

func BenchmarkRecord(b *testing.B) {
	r := &Record{
		Client: netip.MustParseAddrPort("192.0.2.1:7"), Listener: "web", Protocol: "HTTP/2", Method: "GET", Host: "shop.example.org",
		Path: "/api/items?page=7", Route: "shop", Rule: "shop/api", Pool: "api", Backend: "a1", Status: 200, Attempts: 1, BytesOut: 1234,
	}
	var line []byte
	var made Lines
	to := inJSON(b)
	for b.Loop() {
		line = made.append(line[:0], time.Now(), to, r, 1)
	}
}

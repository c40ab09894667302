package accesslog

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"
)

// A line does not depend on those before it: what is kept of them is compared with all of its values. Records differ in one value at a time.
func TestLinesDoNotDependOnThoseBefore(t *testing.T) {
	for _, names := range [][]string{nil, {"listener", "protocol", "method", "cache", "status", "attempts", "listener", "protocol", "method", "route"}} {
		layout, err := JSON(names)
		if err != nil {
			t.Fatal(err)
		}
		to := &Log{opt: Options{Layout: layout}}
		var lines Lines
		rnd, now := rand.New(rand.NewPCG(1, 2)), time.Unix(1e9, 0)
		r := Record{Client: netip.MustParseAddrPort("192.0.2.1:7")}
		texts := []*string{&r.Listener, &r.Protocol, &r.Method, &r.Host, &r.Path, &r.Route, &r.Rule, &r.Pool, &r.Backend, &r.Error, &r.Reason, &r.RequestID, &r.User, &r.Cache}
		buffer := make([]byte, 0, 16) // texts of a record lie in memory that is used again
		for range 20000 {
			switch n := rnd.IntN(len(texts) + 3); n {
			case len(texts):
				r.Status = rnd.IntN(3) * 100
			case len(texts) + 1:
				r.Attempts = rnd.IntN(12)
			case len(texts) + 2:
				r.BytesIn, r.BytesOut = rnd.Uint64N(2000), rnd.Uint64()>>rnd.IntN(64)
			default:
				*texts[n] = []string{"", "a", "b", "aa", "\"x", "long value of a field"}[rnd.IntN(6)]
			}
			buffer = append(buffer[:0], r.Method...)
			view := r
			view.Method = string(buffer)
			var fresh Lines
			got, want := string(lines.append(nil, now, to, &view, 1)), string(fresh.append(nil, now, to, &r, 1))
			if got != want {
				t.Fatalf("%s, want %s", got, want)
			}
		}
	}
}

// A line in the steady state allocates nothing, whatever its values: also with more backends than places.
func TestLinesAllocateNothing(t *testing.T) {
	layout, err := JSON(nil)
	if err != nil {
		t.Fatal(err)
	}
	to := &Log{opt: Options{Layout: layout}}
	var lines Lines
	var records []Record
	for i := range 300 {
		records = append(records, Record{
			Client: netip.MustParseAddrPort("192.0.2.1:7"), Method: fmt.Sprint("M", i), Backend: fmt.Sprint("backend", i), Rule: "r", Route: "s", Status: i, BytesIn: uint64(i),
		})
	}
	b, now := make([]byte, 0, 4096), time.Unix(1e9, 0)
	all := func() {
		for i := range records {
			b = lines.append(b[:0], now, to, &records[i], 1)
		}
	}
	for range 3 {
		all()
	}
	if n := testing.AllocsPerRun(10, all); n > 0 {
		t.Errorf("%v allocations for %d lines", n, len(records))
	}
}

// Seconds have six digits and are rounded; numbers are those of strconv.
func TestNumbersOfLines(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0.000000", 499: "0.000000", 500: "0.000001", 3837 * time.Microsecond: "0.003837", time.Second: "1.000000", 999999500: "1.000000", 12*time.Hour + 1500: "43200.000002",
		-time.Second: "0.000000",
	} {
		if got := string(appendSeconds(nil, d)); got != want {
			t.Errorf("%d: %s, want %s", d, got, want)
		}
	}
	for _, n := range []int{0, 7, 9, 10, 99, 100, 909, 999, 1000, 1234567, -1, -200} {
		if got := string(appendInt(nil, n)); got != fmt.Sprint(n) {
			t.Errorf("%d: %s", n, got)
		}
	}
}

package proxy

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/l7/ratelimit"
	"github.com/millrace/millrace/l7/rewrite"
)

// A backend may read any of several values of a key: each of them counts, so that none goes on by another in front of it or behind.
func TestEachValueOfAKeyCounts(t *testing.T) {
	for by, form := range map[rewrite.KeyBy]string{
		rewrite.ByHeader: "GET / HTTP/1.1\r\nHost: a\r\nX-Key: %s\r\nX-Key: %s\r\n\r\n",
		rewrite.ByCookie: "GET / HTTP/1.1\r\nHost: a\r\nCookie: x-key=%s; x-key=%s\r\n\r\n",
		rewrite.ByQuery:  "GET /?x-key=%s&x-key=%s HTTP/1.1\r\nHost: a\r\n\r\n",
	} {
		r, _ := limited(t, RateKey{Key: rewrite.Key{By: by, Name: "x-key"}}, ratelimit.Options{Requests: 1, Interval: time.Hour, Burst: 1, Keys: 100})
		for _, step := range [][3]string{{"a", "b", "200"}, {"c", "a", "429"}, {"a", "d", "429"}, {"e", "b", "429"}, {"f", "g", "200"}} {
			if got := r.ask(fmt.Sprintf(form, step[0], step[1])); !strings.HasPrefix(got, "HTTP/1.1 "+step[2]) {
				t.Errorf("by %d: %s: %.20q", by, step, got)
			}
		}
		r.nothingLeft()
	}
}

// A request with more values than may count is refused, and one with as many is served.
func TestTooManyValuesOfAKeyAreRefused(t *testing.T) {
	for n, want := range map[int]string{maxValues: "200", maxValues + 1: "429"} {
		r, _ := limited(t, RateKey{Key: rewrite.Key{By: rewrite.ByQuery, Name: "k"}}, ratelimit.Options{Requests: 1, Interval: time.Hour, Burst: 1, Keys: 100})
		query := ""
		for i := range n {
			query += fmt.Sprintf("&k=%d", i)
		}
		if got := r.ask("GET /?" + query[1:] + " HTTP/1.1\r\nHost: a\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 "+want) {
			t.Errorf("%d values: %.20q", n, got)
		}
		r.nothingLeft()
	}
}

package inspect

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/filter/signature"
)

// piecesRules ask for bodies in every way: as they grow, whole, with what must be absent, by names of files, and beside the head.
const piecesRules = `alert http any any -> any any (flow:to_server; http.request_body; content:"alpha"; sid:1;)
alert http any any -> any any (flow:to_server; http.request_body; content:"alpha"; content:!"beta"; sid:2;)
alert http any any -> any any (flow:to_server; http.request_body; content:"beta"; endswith; sid:3;)
alert http any any -> any any (flow:to_server; http.request_body; content:"gamma"; bsize:<40; sid:4;)
alert http any any -> any any (flow:to_server; http.request_body; content:"alpha"; content:"gamma"; distance:0; within:20; sid:5;)
alert http any any -> any any (flow:to_server; http.uri; content:"/path"; http.request_body; content:!"delta"; sid:6;)
alert http any any -> any any (flow:to_server; http.uri; content:"/path"; http.request_body; content:"x"; sid:7;)
alert http any any -> any any (flow:to_server; file.data; content:"delta"; isdataat:!5,relative; sid:8;)
alert http any any -> any any (flow:to_server; file.data; content:"gamma"; file.name; content:"name"; sid:9;)
alert http any any -> any any (flow:to_server; http.request_body; to_uppercase; content:"DELTA"; sid:10;)
alert http any any -> any any (flow:to_server; http.request_body; bsize:0; sid:11;)
alert http any any -> any any (flow:to_client; file.data; content:"alpha"; sid:12;)
`

// piecesText is a random body of words that rules ask for.
func piecesText(rng *rand.Rand) string {
	var b strings.Builder
	for range rng.IntN(12) {
		b.WriteString([]string{"alpha", "beta", "gamma", "delta", "x", strings.Repeat("-", rng.IntN(70)), "al", "\r\n"}[rng.IntN(8)])
	}
	return b.String()
}

// piecesHead returns a head for a body, which it encodes: as it is, in gzip, cut off in gzip, or in parts.
func piecesHead(rng *rand.Rand, text string) (fields []string, body string) {
	switch rng.IntN(5) {
	case 0:
		return []string{"content-encoding", "gzip"}, gzipped(text)
	case 1: // no gzip from some byte on: recipients may take all of it as it came
		zip := gzipped(text)
		return []string{"content-encoding", "gzip"}, zip[:rng.IntN(len(zip))] + text
	case 2:
		body = "--cut\r\ncontent-disposition: form-data; filename=name\r\n\r\n" + text + "\r\n--cut--\r\n"
		return []string{"content-type", "multipart/form-data; boundary=cut"}, body
	}
	return nil, text
}

// A body in pieces matches the same rules as one in a single piece: what was searched as it grew is not searched at its end, and nothing is
// missed by that. Rules are swapped on the way, and bounds are met.
func TestBodiesInPiecesMatchAsWhole(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 5))
	all := strings.SplitAfter(strings.TrimSpace(piecesRules), "\n")
	matched := map[string]int{}
	for round := range 500 {
		fields, body := piecesHead(rng, piecesText(rng))
		fields = append([]string{":method", "POST", ":path", "/path", ":authority", "a"}, fields...)
		cfg := Config{}
		if !slices.Contains(fields, "gzip") { // where text is as long as the bound, less of the coded body was read in pieces
			cfg.BodyBytes = []int{0, 30, 64}[rng.IntN(3)]
		}
		run := func(h *handed, cut func(h *handed, i int) int) string {
			c := h.connect()
			var x Exchange
			c.Begin(&x)
			x.Head(1, signature.ToServer, pairs("HTTP/2", false, fields...))
			for rest := []byte(body); len(rest) > 0; {
				n := min(cut(h, len(body)-len(rest)), len(rest))
				x.Body(1, signature.ToServer, bytes.Clone(rest[:n]))
				rest = rest[n:]
			}
			x.End(1, signature.ToServer)
			x.Close(1)
			c.Close()
			h.empty()
			return h.take()
		}
		whole := run(newHanded(t, cfg, piecesRules), func(*handed, int) int { return len(body) })
		swapAt := rng.IntN(2*len(body) + 1)
		first := strings.Join(slices.DeleteFunc(slices.Clone(all), func(rule string) bool {
			return rng.IntN(2) == 0 && !strings.Contains(rule, "sid:11;") // one that has bodies kept
		}), "")
		if swapAt > len(body) {
			first = piecesRules
		}
		swapped, late := false, false
		got := run(newHanded(t, cfg, first), func(h *handed, at int) int {
			if at >= swapAt && !swapped {
				swapped, late = true, at >= h.cfg.bodyBytes()
				h.Swap(rulesOf(t, piecesRules, h.rules), h.cfg)
			}
			return 1 + rng.IntN(20)
		})
		if late || !swapped && first != piecesRules {
			continue // the other rules have decided
		}
		if got != whole {
			t.Fatalf("round %d: %q in whole, %q in pieces; %v, bound %d, swapped at %d\n%q", round, whole, got, fields[6:], cfg.BodyBytes, swapAt, body)
		}
		for sid := range strings.FieldsSeq(whole) {
			matched[sid]++
		}
	}
	for n := range 12 {
		if sid := fmt.Sprint(n + 1); (matched[sid] == 0) != (n == 10 || n == 11) {
			t.Errorf("rule %s has matched %d times", sid, matched[sid])
		}
	}
}

// What was searched as a body grew is searched once: a pattern that the test writes there after is not found at the end, and one in
// bytes that were not searched is.
func TestBodiesAreSearchedOnce(t *testing.T) {
	const rules = `alert http any any -> any any (flow:to_server; http.request_body; content:"secret"; sid:1;)
alert http any any -> any any (flow:to_server; http.request_body; content:"secret"; content:!"public"; sid:2;)
alert http any any -> any any (flow:to_client; http.response_body; content:"secret"; sid:3;)`
	for _, c := range []struct {
		name    string
		work    int // that is left
		swap    bool
		pattern int // where it is written
		want    string
	}{
		{"searched", 0, false, 10, ""},
		{"postponed", workAtFirst, false, 200, "1 2"},
		{"searched before others were postponed", workAtFirst, false, 10, ""},
		{"over both", workAtFirst, false, 97, "1 2"},
		{"searched by other rules", 0, true, 10, "1 2"},
	} {
		h := newHanded(t, Config{}, rules)
		conn := h.connect()
		x := begun(conn)
		x.Head(1, signature.ToServer, raw("POST / HTTP/1.1\nHost: a\n\n", false))
		x.Body(1, signature.ToServer, bytes.Repeat([]byte{'-'}, 100))
		conn.f.sides[0].spent = c.work + 1000*workPerByte
		x.Body(1, signature.ToServer, bytes.Repeat([]byte{'-'}, 200))
		copy(x.sides[0].msg.Body[c.pattern:], "secret")
		if c.swap {
			h.Swap(rulesOf(t, rules, h.rules), h.cfg)
		}
		x.End(1, signature.ToServer)
		if got := h.take(); got != c.want {
			t.Errorf("%s: alerts %q, want %q", c.name, got, c.want)
		}
		x.Close(1)
		conn.Close()
		h.empty()
	}
}

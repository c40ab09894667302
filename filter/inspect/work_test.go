package inspect

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/millrace/millrace/filter/signature"
)

// partOf returns the first part of a rule about UDP.
func partOf(t *testing.T, options string) *part {
	t.Helper()
	f := signature.Parse("test", "alert udp any any -> any any ("+options+" sid:1;)", nil)
	for _, e := range append(f.Errors, f.Skipped...) {
		t.Fatal(e)
	}
	p := newPart(&f.Rules[0].Parts[0])
	return &p
}

// naive tries every place of every content, and remembers nothing.
func naive(e *evaluator, p *part, i, prev int) bool {
	if i == len(p.Tests) {
		return true
	}
	t := &p.Tests[i]
	if t.Kind != signature.TestContent {
		next, ok := prev, false
		switch t.Kind {
		case signature.TestByte:
			ok = e.byteTest(t.Number, prev)
		case signature.TestIsDataAt:
			ok = e.isDataAt(t.IsDataAt, prev)
		default:
			next, ok = e.number(t, prev)
		}
		return ok && naive(e, p, i+1, next)
	}
	c := t.Content
	lo, hi := e.bounds(c, prev)
	any := false
	for at := max(lo, 0); at+len(c.Bytes) <= min(hi, len(e.b)); at++ {
		text := e.b[at : at+len(c.Bytes)]
		if c.EndsWith && at+len(c.Bytes) < len(e.b) || !bytes.Equal(text, c.Bytes) && !(c.NoCase && bytes.EqualFold(text, c.Bytes)) {
			continue
		}
		any = true
		if !c.Not && naive(e, p, i+1, at+len(c.Bytes)) {
			return true
		}
	}
	return c.Not && !any && naive(e, p, i+1, prev)
}

// TestEvaluationAgreesWithTryingAll compares random rules on random texts of few letters with a search that remembers nothing.
func TestEvaluationAgreesWithTryingAll(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 9))
	word := func(n int) string {
		b := make([]byte, n)
		for i := range b {
			b[i] = "abA\x01"[rng.IntN(4)]
		}
		return string(b)
	}
	matched := 0
	for range 3000 {
		var s strings.Builder
		for i := range 2 + rng.IntN(4) {
			fmt.Fprintf(&s, "content:%s\"%s\"; ", []string{"", "", "", "!"}[rng.IntN(4)], escaped(word(1+rng.IntN(2))))
			switch k := rng.IntN(9); {
			case i > 0 && k < 4:
				fmt.Fprintf(&s, "distance:%d; ", rng.IntN(4)-1)
			case i > 0 && k < 6:
				fmt.Fprintf(&s, "distance:%d; within:%d; ", rng.IntN(3), 2+rng.IntN(6))
			case k == 6:
				fmt.Fprintf(&s, "offset:%d; depth:%d; ", rng.IntN(3), 2+rng.IntN(9))
			}
			if rng.IntN(4) == 0 {
				s.WriteString("nocase; ")
			}
			switch rng.IntN(9) {
			case 0:
				s.WriteString("byte_test:1,>,90,0,relative; ")
			case 1:
				s.WriteString("isdataat:2,relative; ")
			case 2:
				fmt.Fprintf(&s, "byte_extract:1,0,v%d,relative; ", i)
			case 3:
				s.WriteString("byte_jump:1,0,relative; ")
			}
		}
		p := partOf(t, s.String())
		for range 20 {
			text := []byte(word(rng.IntN(24)))
			var e, o evaluator
			o.p, o.b = p, text
			got, want := e.match(p, text, 0), naive(&o, p, 0, 0)
			if got != want {
				t.Fatalf("%s on %q: %v, want %v", s.String(), text, got, want)
			}
			matched += boolInt(got)
		}
	}
	if matched < 2000 {
		t.Errorf("%d of 60000 matched", matched)
	}
}

func escaped(s string) string { return strings.ReplaceAll(s, "\x01", "|01|") }

// TestContentsTakeLinearWork: contents that occur everywhere, before one that does not.
func TestContentsTakeLinearWork(t *testing.T) {
	for _, options := range []string{
		`content:"a"; content:"b"; distance:0; content:"c"; distance:0;`,
		`content:"a"; content:"b"; distance:0; content:"c"; distance:0; within:5;`,
		`content:"a"; content:"b"; distance:0; content:"b"; distance:0; content:"b"; distance:0; content:"c"; distance:0;`,
		`content:"a"; content:"b"; distance:1; within:30000; content:"c"; distance:2; within:30000;`,
		`content:"a"; content:!"b"; distance:0;`,
		`content:"a"; content:"b"; distance:0; content:"c";`,
		`content:"a"; content:"b"; distance:0; dsize:9;`,
		`content:"a"; nocase; content:"B"; nocase; distance:0; isdataat:60000,relative;`,
		`content:"a"; content:"b"; pcre:"/^c/R";`,
		`content:"a"; pcre:"/^b/R"; content:"c"; distance:0;`,
	} {
		p := partOf(t, options)
		text := bytes.Repeat([]byte("a"), 32<<10)
		text = append(text, bytes.Repeat([]byte("b"), 32<<10)...)
		var e evaluator
		if e.match(p, text, 0) && !strings.Contains(options, "dsize") {
			t.Errorf("%s matched", options)
		}
		if most := len(text) * (3*testWork + 4) * len(p.Tests); e.work > most || e.gaveUp > 0 {
			t.Errorf("%s: %d steps for %d bytes, want at most %d; gave up %d", options, e.work, len(text), most, e.gaveUp)
		}
	}
}

// One evaluation ends at a bound, whatever the text is: contents behind a variable are searched for again from each place before.
func TestOneEvaluationIsBounded(t *testing.T) {
	p := partOf(t, `content:"a"; byte_extract:1,0,v,relative; content:"a"; distance:0; content:"a"; distance:0; content:"z"; distance:v;`)
	var e evaluator
	if e.match(p, bytes.Repeat([]byte("a"), 600), 0) {
		t.Error("it has matched")
	}
	if e.gaveUp != 1 || e.work < maxWork || e.work > maxWork+maxWork/100 {
		t.Errorf("%d steps, gave up %d times; the bound is %d", e.work, e.gaveUp, maxWork)
	}
	if maxWork > 4<<20 {
		t.Errorf("the bound of one evaluation is %d: a packet would occupy a core", maxWork)
	}
}

// TestDecoysOfContents has the first contents of a rule up to 10000 times before those that match.
func TestDecoysOfContents(t *testing.T) {
	for _, n := range []int{16, 100, 1000, 10000} {
		l := newLab(t, `content:"abc"; content:"xyz"; distance:0; content:"end"; distance:1; within:4;
content:"abc"; content:"xyz"; distance:0; within:5; pcre:"/^.end/R";
alert http any any -> any any (http.request_body; content:"abc"; content:"xyz"; distance:2; within:9; content:"end"; distance:1; within:3;)`)
		text := strings.Repeat("abc", n) + strings.Repeat("xyz_", n/4) + "..abc..xyz.end"
		c := l.tcp(80).open()
		c.send(true, fmt.Sprintf("POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n%s", len(text), text), 1400)
		c.close()
		l.want(fmt.Sprint(n, " decoys"), "1 2 3")
		if s := l.e.Stats(); s.GaveUp > 0 || s.Postponed > 0 {
			t.Errorf("%d decoys: %+v", n, s)
		}
	}
}

// manyRules returns rules whose first content differs and whose second has to follow.
func manyRules(n int) string {
	var s strings.Builder
	for i := range n {
		fmt.Fprintf(&s, "alert tcp any any -> any any (content:\"key%04d\"; fast_pattern; content:\"never%04d\"; sid:%d;)\n", i, i, i+1)
	}
	return s.String()
}

// TestSingleBytesPayForTheirWork begins to match 1000 rules and goes on with single bytes.
func TestSingleBytesPayForTheirWork(t *testing.T) {
	const rules, segments = 1000, 3000
	l := newLab(t, manyRules(rules))
	c := l.tcp(80).open()
	var begin strings.Builder
	for i := range rules {
		fmt.Fprintf(&begin, "key%04d", i)
	}
	c.send(true, begin.String(), 1400)
	c.send(true, strings.Repeat(".", 24<<10), 1400)
	c.send(true, strings.Repeat("x", segments), 1)
	s := l.e.Stats()
	bytes := begin.Len() + 24<<10 + segments
	most := workAtFirst + bytes*workPerByte + (segments+30)*(workPerSegment+2<<15/scanWork)
	if s.Postponed == 0 || s.Work > uint64(most) {
		t.Errorf("%d steps for %d bytes, want at most %d; %d segments at which rules wait", s.Work, bytes, most, s.Postponed)
	}
	c.send(true, "never0001never0999never0500", 3)
	c.close()
	l.want("at the end", "1000 2 501")
	if n := l.e.Stats().Postponed; n > segments+100 {
		t.Errorf("%d postponed", n)
	}
}

// TestRulesThatWaitStopTheFlow: what waits may not pass where nothing passes uninspected.
func TestRulesThatWaitStopTheFlow(t *testing.T) {
	for _, refuse := range []bool{false, true} {
		l := newLab(t, manyRules(1000))
		l.e.Swap(l.e.rules, Config{Inline: true, Block: true, Refuse: refuse, MemoryBytes: 1 << 20, MaxFlows: 10})
		c := l.tcp(80).open()
		var begin strings.Builder
		for i := range 1000 {
			fmt.Fprintf(&begin, "key%04d", i)
		}
		c.send(true, begin.String()+strings.Repeat(".", 8<<10), 1400)
		c.send(true, strings.Repeat("x", 500), 1)
		s := l.e.Stats()
		if s.Postponed == 0 || s.Bounds == 0 || (s.Blocked == 1) != refuse {
			t.Errorf("refuse %v: %+v", refuse, s)
		}
	}
}

// TestMemoryOfManyFlowsIsBounded has 100,000 connections that send single bytes with gaps.
func TestMemoryOfManyFlowsIsBounded(t *testing.T) {
	l := newLab(t, `content:"abc";`)
	const memory, flows = 1 << 20, 2000
	l.e = New(l.e.rules, Config{MemoryBytes: memory, MaxFlows: flows, Midstream: true}, func(*Alert) {})
	for i := range 100_000 {
		c := l.tcp(uint16(1 + i%60_000))
		c.cSeq = uint32(i / 60_000 * 100)
		for k := range uint32(3) {
			c.seg(true, c.cSeq+1+k*7, 0x10, "a")
		}
		if n, held := l.e.Flows(); n > flows || held > memory {
			t.Fatalf("%d flows, %d bytes", n, held)
		}
	}
	if l.e.Flush(); l.e.budget.Used() != 0 {
		t.Errorf("%d bytes are counted without flows", l.e.budget.Used())
	}
}

// TestBodiesAreDecodedUpToTheirBound has a small body that becomes 50 MB.
func TestBodiesAreDecodedUpToTheirBound(t *testing.T) {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	for range 50 {
		w.Write(make([]byte, 1<<20))
	}
	w.Close()
	l := newLab(t, `alert http any any -> any any (file.data; bsize:102400; sid:1;)
alert http any any -> any any (file.data; bsize:>102400; sid:2;)`)
	c := l.tcp(80).open().send(true, "GET / HTTP/1.1\r\n\r\n", 1000)
	c.send(false, fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%s", b.Len(), b.String()), 1400)
	c.close()
	l.want("decoded", "1")
}

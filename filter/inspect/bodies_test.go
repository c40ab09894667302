package inspect

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"github.com/millrace/millrace/filter/signature"
)

const bodyRules = `drop http any any -> any any (flow:to_client; file.data; content:"evil"; sid:1;)
drop http any any -> any any (flow:to_client; http.response_body; content:"start"; startswith; content:"finish"; endswith; sid:2;)`

// response begins an exchange whose response has content.
func (h *handed) response(c *Conn, x *Exchange, length int) {
	c.Begin(x)
	x.Head(1, signature.ToServer, &Head{Raw: []byte("GET / HTTP/1.1\r\nHost: a\r\n\r\n"), Ends: true})
	x.Head(1, signature.ToClient, &Head{Raw: fmt.Appendf(nil, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", length)})
}

// Buffers of bodies are used again for others, and no body has bytes of another one: exchanges in any order, in pieces of any size.
func TestBodiesOfExchangesDoNotMix(t *testing.T) {
	h := newHanded(t, Config{}, bodyRules)
	rnd := rand.New(rand.NewPCG(1, 2))
	c := h.connect()
	type open struct {
		x       Exchange
		rest    string
		alerts  string
		started bool
	}
	var list []*open
	var want []string
	for range 3000 {
		if len(list) < 8 && rnd.IntN(2) == 0 {
			text := strings.Repeat("x", rnd.IntN(6000))
			o := &open{rest: text}
			switch rnd.IntN(4) {
			case 0:
				o.rest, o.alerts = text+"evil"+text, "1"
			case 1:
				o.rest, o.alerts = "start"+text+"finish", "2"
			case 2:
				o.rest = "tart" + text + "finis"
			}
			h.response(c, &o.x, len(o.rest))
			list = append(list, o)
			continue
		}
		if len(list) == 0 {
			continue
		}
		i := rnd.IntN(len(list))
		o := list[i]
		if n := rnd.IntN(3000); len(o.rest) > 0 {
			n = min(n, len(o.rest))
			piece := []byte(o.rest[:n])
			o.rest = o.rest[n:]
			o.x.Body(1, signature.ToClient, piece)
			clear(piece) // it was borrowed
			continue
		}
		o.x.End(1, signature.ToClient)
		o.x.Close(1)
		list[i] = list[len(list)-1]
		if list = list[:len(list)-1]; o.alerts != "" {
			want = append(want, o.alerts)
		}
	}
	for _, o := range list {
		o.x.Body(1, signature.ToClient, []byte(o.rest))
		o.x.End(1, signature.ToClient)
		if o.x.Close(1); o.alerts != "" {
			want = append(want, o.alerts)
		}
	}
	if got := len(strings.Fields(h.take())); got != len(want) || got < 100 {
		t.Errorf("%d alerts, want %d", got, len(want))
	}
	if b := &h.bodies; b.bytes > maxFreeBytes || len(b.free) > maxFree || b.bytes == 0 {
		t.Errorf("%d buffers of %d bytes are free", len(b.free), b.bytes)
	}
	c.Close()
	h.empty()
}

// Inspected bodies are no garbage.
func TestBodiesOfExchangesAllocateNothing(t *testing.T) {
	h := newHanded(t, Config{}, bodyRules)
	c := h.connect()
	body := []byte(strings.Repeat("some content ", 1300))
	one := func() {
		var x Exchange
		h.response(c, &x, len(body))
		x.Body(1, signature.ToClient, body)
		x.End(1, signature.ToClient)
		x.Close(1)
	}
	one()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 100 {
		one()
	}
	runtime.ReadMemStats(&after)
	if n := (after.TotalAlloc - before.TotalAlloc) / 100; n > uint64(len(body))/4 {
		t.Errorf("%d bytes for a body of %d", n, len(body))
	}
	c.Close()
	h.empty()
}

// Free buffers are bounded, in number and bytes, and none is given for a much smaller body.
func TestFreeBuffersOfBodiesAreBounded(t *testing.T) {
	var l bodyBuffers
	for i := range 1000 {
		l.put(make([]byte, 100, 100+i*300))
		sum := 0
		for _, b := range l.free {
			sum += cap(b)
		}
		if sum != l.bytes || sum > maxFreeBytes || len(l.free) > maxFree {
			t.Fatalf("%d buffers of %d bytes, counted %d", len(l.free), sum, l.bytes)
		}
	}
	l = bodyBuffers{}
	l.put(nil)
	l.put(make([]byte, 0, 16<<10))
	for n, want := range map[int]bool{0: false, 100: false, 16<<10 + 1: false} {
		if got := l.get(n) != nil; got != want {
			t.Errorf("a buffer for %d bytes: %v", n, got)
		}
	}
	if b := l.get(8 << 10); cap(b) != 16<<10 || len(b) != 0 || l.bytes != 0 || l.get(8<<10) != nil {
		t.Errorf("%d of %d bytes, %d left", len(b), cap(b), l.bytes)
	}
}

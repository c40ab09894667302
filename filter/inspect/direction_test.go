package inspect

import (
	"testing"

	"github.com/millrace/millrace/filter/signature"
)

// A buffer that requests alone have is not absent in a response: the rule is about requests. So it is while a body grows.
func TestWhatResponsesNeverHaveIsNotAbsentThere(t *testing.T) {
	const rules = `alert http any any -> any any (http.referer; absent; sid:1;)
alert http any any -> any any (file.data; content:"evil"; http.referer; absent; sid:2;)
alert http any any -> any any (http.user_agent; content:"agent"; sid:3;)`
	for _, inline := range []bool{false, true} {
		l := newLab(t, rules)
		l.e.cfg.Inline = inline
		c := l.tcp(80).open()
		c.send(true, "GET / HTTP/1.1\r\nHost: a\r\nUser-Agent: agent\r\nReferer: b\r\n\r\n", 1400)
		c.send(false, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nevil", 1400)
		c.send(false, "evil.", 1400)
		c.close()
		l.want("of a request with the field", "3")
	}
}

// A direction keeps none of the rules of the other one that have nothing to search for.
func TestDirectionsKeepTheirOwnRules(t *testing.T) {
	l := newLab(t, `alert tcp any any -> any any (flow:to_client,established; pcre:"/never/"; sid:1;)
alert tcp any any -> any any (flow:to_client,established; pcre:"/neither/"; sid:2;)`)
	l.tcp(80).open().send(true, "of the client", 1400).send(false, "of the server", 1400)
	f := l.e.oldest
	if h := f.sides[signature.SideOf(signature.ToServer)].unsearched[inStreams]; h.gen == 0 || h.list != nil {
		t.Errorf("the client's direction has %+v", h)
	}
	if h := f.sides[signature.SideOf(signature.ToClient)].unsearched[inStreams]; h.list == nil || len(h.list.rules) != 2 {
		t.Errorf("the server's direction has %+v", h)
	}
}

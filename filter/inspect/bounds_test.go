package inspect

import (
	"fmt"
	"strings"
	"testing"
)

// TestLimitsCountInTheirTime has matches at the ends of a threshold's time, and time that goes back, as that of captures may.
func TestLimitsCountInTheirTime(t *testing.T) {
	const second = int64(1e9)
	frame := ether(0x0800, udpPacket(4000, 9, []byte("abc")))
	for _, c := range []struct {
		then int64
		want string
	}{{10 * second, "1"}, {10*second + 1, "1 1"}, {1, "1"}, {-second, "1 1"}} {
		l := newLab(t, `alert udp any any -> any any (content:"abc"; threshold:type limit, track by_src, count 1, seconds 10; sid:1;)`)
		l.e.Packet(100*second, frame)
		l.e.Packet(100*second+c.then, frame)
		l.want(fmt.Sprintf("%d ns later", c.then), c.want)
	}
}

// maxBanner is the inspected part of a banner of SSH (RFC 4253 4.2).
const maxBanner = 256

// TestBannersAreBounded has banners without an end, in one segment and in many.
func TestBannersAreBounded(t *testing.T) {
	for _, text := range []string{"SSH-2.0-" + strings.Repeat("x", 1000), "SSH-2.0-" + strings.Repeat("x", 1000) + "\r\n", "SSH-2.0-" + strings.Repeat("x", 248)} {
		for _, mss := range []int{1, 100, 1400} {
			l := newLab(t, fmt.Sprintf(`alert ssh any any -> any any (ssh.software; bsize:%d; content:"xxx"; sid:1;)
alert ssh any any -> any any (ssh.software; bsize:>%d; content:"xxx"; sid:2;)`, maxBanner-8, maxBanner-8))
			l.tcp(22).open().send(true, text[:maxBanner-1], mss)
			l.want("before the bound", "")
			l = newLab(t, `alert ssh any any -> any any (ssh.software; bsize:248; content:"xxx"; sid:1;)
alert ssh any any -> any any (ssh.software; bsize:>248; content:"xxx"; sid:2;)`)
			l.tcp(22).open().send(true, text, mss)
			l.want(fmt.Sprintf("%d bytes in segments of %d", len(text), mss), "1")
		}
	}
}

// TestFieldsOfOneNameAreJoined has few fields and many, and the head stays what came.
func TestFieldsOfOneNameAreJoined(t *testing.T) {
	const fewHeaders = 32 // that package httpmsg compares one by one
	for _, n := range []int{0, fewHeaders - 2, fewHeaders - 1, fewHeaders, 3 * fewHeaders} {
		l := newLab(t, `alert http any any -> any any (http.accept; content:"a, b, c"; bsize:7; sid:1;)
alert http any any -> any any (http.header.raw; content:"Accept|3a| a|0d 0a|Referer|3a| r|0d 0a|"; startswith; content:"|0d 0a|accept|3a| b|0d 0a|ACCEPT|3a| c|0d 0a|"; sid:2;)
alert http any any -> any any (http.referer; content:"r"; bsize:1; sid:3;)
alert http any any -> any any (http.header_names; content:"|0d 0a|Accept|0d 0a|Referer|0d 0a|"; startswith; content:!"ccept|0d 0a|"; distance:0; nocase; sid:4;)`)
		var fields strings.Builder
		for i := range n {
			fmt.Fprintf(&fields, "x%d: y\r\n", i)
		}
		l.tcp(80).open().send(true, "GET / HTTP/1.1\r\nAccept: a\r\nReferer: r\r\n"+fields.String()+"X: y\r\naccept: b\r\nACCEPT: c\r\n\r\n", 1400)
		l.want(fmt.Sprintf("%d other fields", n), "1 2 3 4")
	}
}

// TestSearchesCost wants the bytes that are searched for a content counted, found or not.
func TestSearchesCost(t *testing.T) {
	const size = 16 << 10
	for _, end := range []string{"missing", "nothing"} {
		l := newLab(t, `content:"long keyword"; content:"missing";`)
		l.udp(9, "long keyword"+strings.Repeat(".", size)+end)
		if n := l.e.Stats().Work; n < size/scanWork || n > 3*size/scanWork {
			t.Errorf("%s: %d steps for %d bytes", end, n, size)
		}
	}
}

// TestLateRulesAreThoseOfTheirDirection has a content that was found in a segment before a bit was set. The answer, which has the
// same content and shows the protocol, does not make the rule one of the request again.
func TestLateRulesAreThoseOfTheirDirection(t *testing.T) {
	l := newLab(t, `alert tcp any any -> any any (flow:to_server; content:"word"; flowbits:isset,b; sid:1;)
alert tcp any any -> any any (flow:to_server; content:"sets"; flowbits:set,b; sid:2;)
alert http any any -> any any (flow:to_client; http.stat_code; content:"200"; sid:3;)`)
	l.tcp(80).open().send(true, "a word, ", 100).send(true, "it sets", 100).send(false, "HTTP/1.1 200 word\r\nContent-Length: 0\r\n\r\n", 100)
	l.want("the answer", "2 3")
}

// TestBodiesThatCostTooMuchWait has a body in single bytes, of which many rules wait for more.
func TestBodiesThatCostTooMuchWait(t *testing.T) {
	const n = 1000
	var rules, body strings.Builder
	for i := range n {
		fmt.Fprintf(&rules, "alert http any any -> any any (http.request_body; content:\"long key%04d\"; content:\"never%04d\"; sid:%d;)\n", i, i, i+1)
		fmt.Fprintf(&body, "long key%04d", i)
	}
	l := newLab(t, rules.String())
	l.e.Swap(l.e.rules, Config{Inline: true, BodyBytes: 20 << 10})
	rest := strings.Repeat("x", 3000) + "never0500"
	c := l.tcp(80).open().send(true, fmt.Sprintf("POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n%s", body.Len()+len(rest), body.String()), 1400)
	c.send(true, rest[:len(rest)-1], 1)
	s := l.e.Stats()
	bytes := body.Len() + len(rest)
	if most := uint64(workAtFirst + bytes*workPerByte + (len(rest)+20)*workPerSegment + 2*n*bytes/scanWork); s.Postponed == 0 || s.Work > most {
		t.Errorf("%d steps, want at most %d; %d times postponed", s.Work, most, s.Postponed)
	}
	c.send(true, rest[len(rest)-1:], 1)
	l.want("at the end of the body", "501")
}

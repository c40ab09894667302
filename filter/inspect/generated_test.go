package inspect

import (
	"fmt"
	"strings"
	"testing"

	"github.com/millrace/millrace/tls/clienthello"
	"github.com/millrace/millrace/wire"
)

// TestHTTPAsSuricata has requests on which comparisons with Suricata once differed.
func TestHTTPAsSuricata(t *testing.T) {
	many := "GET /many HTTP/1.1\r\n"
	for i := range 40 {
		many += fmt.Sprintf("X-%d: v\r\nx-%d: w\r\n", i, i)
	}
	for _, c := range []struct {
		options, request string
		want             bool
	}{
		// no headers: no names, and no empty line in http.start
		{`http.header_names; content:!"Referer";`, "GET / HTTP/1.1\r\n\r\n", false},
		{`http.start; content:"GET / HTTP/1.1|0d 0a|"; startswith; endswith;`, "GET / HTTP/1.1\r\n\r\n", true},
		{`http.start; content:"A|3a| b|0d 0a 0d 0a|"; endswith;`, "GET / HTTP/1.1\r\nA:b\r\n\r\n", true},
		// a name that occurs twice is one header; of Content-Length the first counts
		{`http.header_names; content:"|0d 0a|A|0d 0a|B|0d 0a 0d 0a|"; startswith; endswith;`, "GET / HTTP/1.1\r\nA: 1\r\nB: 2\r\na: 3\r\n\r\n", true},
		{`http.header; content:"A: 1, 3|0d 0a|B: 2|0d 0a|"; startswith; endswith;`, "GET / HTTP/1.1\r\nA: 1\r\nB: 2\r\na: 3\r\n\r\n", true},
		{`http.content_len; content:"1"; bsize:1;`, "POST / HTTP/1.1\r\nContent-Length: 1\r\ncontent-length: 2\r\n\r\nx", true},
		{`http.header; content:"X-39: v, w|0d 0a|"; endswith;`, many + "\r\n", true},
		{`http.header; content:"X-0: v, w|0d 0a|X-1: v, w|0d 0a|"; startswith;`, many + "\r\n", true},
		{`http.header; content:"A: 1 2 3|0d 0a|B: 4|0d 0a|"; startswith; endswith;`, "GET / HTTP/1.1\r\nA: 1\r\n 2\r\n\t3\r\nB: 4\r\n\r\n", true},
		{`http.header; content:"A: 1, 3 4|0d 0a|B: 2|0d 0a|"; startswith; endswith;`, "GET / HTTP/1.1\r\nA: 1\r\nB: 2\r\nA: 3\r\n 4\r\n\r\n", true},
		// the target of a request ends at its first blank
		{`http.uri; content:"/a"; bsize:2;`, "GET /a b HTTP/1.1\r\n\r\n", true},
		{`http.protocol; content:"b HTTP/1.1"; startswith; endswith;`, "GET /a  b HTTP/1.1\r\n\r\n", true},
		{`http.host; content:!"x";`, "GET / HTTP/1.1\r\nHost:\r\n\r\n", false},
		// bytes beyond ASCII keep their values where case does not count
		{`http.user_agent; content:"|a1 a1|http"; nocase; bsize:6;`, "GET / HTTP/1.1\r\nUser-Agent: \xa1\xa1HTTP\r\n\r\n", true},
		{`http.user_agent; content:"|a1 a1|http"; nocase;`, "GET / HTTP/1.1\r\nUser-Agent: \xa2\xa2HTTP\r\n\r\n", false},
		// what ends with the connection is inspected as far as it came
		{`http.method; content:"GET"; http.uri; content:"/cut"; bsize:4;`, "GET /cut", true},
		{`http.header; content:"A: 1|0d 0a|"; bsize:6;`, "GET / HTTP/1.1\r\nA: 1\r\n", true},
	} {
		l := newLab(t, "alert http any any -> any any (flow:to_server; "+c.options+" sid:1;)")
		l.tcp(80).open().send(true, c.request, 1000).close()
		if got := len(l.alerts) == 1; got != c.want || len(l.alerts) > 1 {
			t.Errorf("%s on %.60q: %d alerts, want %v", c.options, c.request, len(l.alerts), c.want)
		}
	}
}

// TestContentsBeyondASCIIAreApart has two contents that would be one if bytes that are not UTF-8 were replaced.
func TestContentsBeyondASCIIAreApart(t *testing.T) {
	l := newLab(t, `content:"|a1 a1|abc"; nocase;
content:"|a2 a2|abc"; nocase;`)
	l.udp(9, "..\xa2\xa2ABC")
	l.want("the second", "2")
	l.udp(9, "..\xa1\xa1aBc")
	l.want("both", "1 2")
}

// helloFor returns a ClientHello for a name.
func helloFor(name string) string {
	ext := fmt.Sprintf("\x00\x00%s%s\x00%s%s", u16(len(name)+5), u16(len(name)+3), u16(len(name)), name)
	body := "\x03\x03" + strings.Repeat("r", 32) + "\x00\x00\x02\x13\x01\x01\x00" + u16(len(ext)) + ext
	hs := "\x01\x00" + u16(len(body)) + body
	return "\x16\x03\x01" + u16(len(hs)) + hs
}

func u16(n int) string { return string([]byte{byte(n >> 8), byte(n)}) }

// TestServerNamesAreThoseOnTheWire has names that no DNS name is: rules are about the bytes.
func TestServerNamesAreThoseOnTheWire(t *testing.T) {
	for _, c := range []struct{ name, options string }{
		{"Mixed.Example", `content:"Mixed.Example"; startswith; endswith;`},
		{"dot.at.end.", `content:"dot.at.end."; startswith; endswith;`},
		{"a b", `content:"a b"; bsize:3;`},
		{"zero\x00behind", `content:"zero"; bsize:4;`},
		{"\xff\xfe", `content:"|ff fe|"; bsize:2;`},
	} {
		l := newLab(t, "alert tls any any -> any any (tls.sni; "+c.options+" sid:1;)")
		l.tcp(443).open().send(true, helloFor(c.name), 1000).close()
		l.want(c.name, "1")
	}
	l := newLab(t, `alert tls any any -> any any (tls.sni; content:!"q"; sid:1;)`)
	hello := helloFor("name")
	for cut := 6; cut < len(hello); cut++ { // lengths that say more than there is
		b := []byte(hello[:cut])
		clienthello.SentServerName(b[min(len(b), 9):])
	}
	c := l.tcp(443).open()
	c.send(true, helloFor(""), 1000).close()
	l.want("no name", "")
}

// TestTLSBehindCONNECTIsInspected: a proxy's tunnel has the hello of its client, however it is cut.
func TestTLSBehindCONNECTIsInspected(t *testing.T) {
	for _, mss := range []int{1, 5, 1000} {
		l := newLab(t, `alert tls any any -> any any (tls.sni; content:"inner.test"; bsize:10; sid:1;)
alert http any any -> any any (http.method; content:"CONNECT"; sid:2;)`)
		c := l.tcp(8080).open()
		c.send(true, "CONNECT inner.test:443 HTTP/1.1\r\n\r\n", mss).send(false, "HTTP/1.1 200 Connected\r\n\r\n", mss)
		c.send(true, helloFor("inner.test"), mss).close()
		l.want(fmt.Sprint("segments of ", mss), "1 2")
	}
	l := newLab(t, `alert tls any any -> any any (tls.sni; content:"inner.test"; sid:1;)`)
	c := l.tcp(8080).open().send(true, "CONNECT a:443 HTTP/1.1\r\n\r\n", 99).send(false, "HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n", 99)
	c.send(true, helloFor("inner.test"), 1000).close()
	l.want("refused", "")
}

// TestEveryCountsWithinItsTime: matches 5 and 10 of a time are alerts, and what comes behind it begins a new one.
func TestEveryCountsWithinItsTime(t *testing.T) {
	l := newLab(t, `content:"x"; threshold:type threshold,track by_dst,count 5,seconds 60;`)
	var at []int
	for i := 1; i <= 16; i++ {
		before := len(l.alerts)
		if i == 13 { // the time that began with match 1 is over; that of an alert would not be
			l.now += 59e9
		}
		l.udp(9, "x")
		if i == 12 {
			l.now += 2e9
		}
		if len(l.alerts) > before {
			at = append(at, i)
		}
	}
	if fmt.Sprint(at) != "[5 10]" {
		t.Errorf("alerts at matches %v, want 5 and 10", at)
	}
	l.udp(9, "x")
	if len(l.alerts) != 3 {
		t.Errorf("%d alerts after the fifth match of the second time, want 3", len(l.alerts))
	}
}

// TestStreamSizeCountsTheSYN: it compares sequence numbers.
func TestStreamSizeCountsTheSYN(t *testing.T) {
	l := newLab(t, `alert tcp any any -> any any (flow:to_server; stream_size:client,=,4; dsize:3; sid:1;)
alert tcp any any -> any any (flow:to_server; stream_size:client,=,3; dsize:3; sid:2;)
alert tcp any any -> any any (flags:S; stream_size:client,>,0; sid:3;)`)
	c := l.tcp(80)
	c.seg(true, c.cSeq, wire.FlagACK, "") // no connection: no size
	l.want("no connection", "")
	c.open().send(true, "abc", 10)
	l.want("three bytes and the SYN", "1 3")
}

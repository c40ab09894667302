package inspect

import (
	"bytes"
	"compress/gzip"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/filter/signature"
	"github.com/millrace/millrace/wire"
)

func gzipped(s string) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	w.Write([]byte(s))
	w.Close()
	return b.String()
}

// TestHTTPBuffers has a request and a response, and what a buffer of theirs has.
func TestHTTPBuffers(t *testing.T) {
	const request = "POST /a%41/./b//c/../d?q=%2e+x HTTP/1.1\r\nHost: WWW.Example.com:8080\r\nUser-Agent:  agent/1 \r\nCookie: k=v\r\n" +
		"Accept: */*\r\nAccept: text/html\r\nReferer: http://r/\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n\r\nhello"
	response := "HTTP/1.1 200 Very OK\r\nServer: s/1\r\nSet-Cookie: a=b\r\nContent-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n"
	body := gzipped("<html>unpacked</html>")
	response += fmt.Sprintf("%x\r\n%s\r\n%x;ext\r\n%s\r\n0\r\nTrailer: x\r\n\r\n", 10, body[:10], len(body)-10, body[10:])
	for _, c := range []struct {
		buffer, content string
		want            bool
	}{
		{"http.method", "POST", true},
		{"http.method", "GET", false},
		{"http.uri", "/aA/b/d?q=.+x", true},
		{"http.uri.raw", "/a%41/./b//c/../d?q=%2e+x", true},
		{"http.host", "www.example.com", true},
		{"http.host.raw", "WWW.Example.com|3a|8080", true},
		{"http.user_agent", "agent/1", true},
		{"http.cookie", "k=v", true},
		{"http.accept", "*/*, text/html", true},
		{"http.referer", "http|3a|//r/", true},
		{"http.content_type", "text/plain", true},
		{"http.content_len", "5", true},
		{"flow:to_server; http.protocol", "HTTP/1.1", true},
		{"http.request_line", "POST /a%41/./b//c/../d?q=%2e+x HTTP/1.1", true},
		{"http.request_body", "hello", true},
		{"http.accept_enc", "", false},
		{"http.header_names", "|0d 0a|Host|0d 0a|User-Agent|0d 0a|Cookie|0d 0a|Accept|0d 0a|Referer|0d 0a|Content-Type|0d 0a|Content-Length|0d 0a 0d 0a|", true},
		{"flow:to_server; http.header", "Host|3a| WWW.Example.com|3a|8080|0d 0a|User-Agent|3a| agent/1|0d 0a|Accept|3a| */*, text/html|0d 0a|Referer|3a| http|3a|//r/|0d 0a|Content-Type|3a| text/plain|0d 0a|Content-Length|3a| 5|0d 0a|", true},
		{"http.stat_code", "200", true},
		{"http.stat_msg", "Very OK", true},
		{"http.response_line", "HTTP/1.1 200 Very OK", true},
		{"http.server", "s/1", true},
		{"flow:to_client; http.cookie", "a=b", true},
		{"http.response_body", "<html>unpacked</html>", true},
		{"flow:to_client; file.data", "<html>unpacked</html>", true},
		{"flow:to_server; file.data", "hello", true},
		{"http.location", "", false},
	} {
		content := fmt.Sprintf("content:%q; startswith; endswith;", c.content)
		if c.content == "" {
			content = `content:!"nothing";`
		}
		l := newLab(t, "alert http any any -> any any ("+c.buffer+"; "+content+" sid:1;)")
		for _, mss := range []int{1, 7, 10000} {
			l.alerts = nil
			conn := l.tcp(80)
			conn.port += uint16(mss)
			conn.open().send(true, request, mss).send(false, response, mss)
			if got := len(l.alerts); got > 1 || (got == 1) != c.want {
				t.Errorf("%s %q in segments of %d: %d alerts, want %v", c.buffer, c.content, mss, got, c.want)
			}
		}
	}
}

// A request that SOCKS carries (RFC 1928) is no request of the flow: its line begins with bytes that no method has.
func TestRequestInSOCKSIsNoRequest(t *testing.T) {
	const greeting, connect = "\x05\x02\x00\x01", "\x05\x01\x00\x01\xc0\x00\x02\x01\x00\x50"
	const request = "GET / HTTP/1.1\r\nHost: a\r\n\r\n"
	for text, want := range map[string]int{greeting + connect + request: 0, "FETCH" + request[3:]: 1} {
		l := newLab(t, `alert http any any -> any any (http.host; content:"a"; sid:1;)`)
		l.tcp(1080).open().send(true, text, 1400)
		if got := len(l.alerts); got != want {
			t.Errorf("%q: %d alerts, want %d", text, got, want)
		}
	}
}

// TestHTTPMessagesAreApart has pipelined requests, answers without a body, and bodies that look like messages.
func TestHTTPMessagesAreApart(t *testing.T) {
	l := newLab(t, `alert http any any -> any any (http.uri; content:"/two"; sid:1;)
alert http any any -> any any (http.stat_code; content:"404"; sid:2;)
alert http any any -> any any (http.method; content:"EVIL"; sid:3;)
alert http any any -> any any (http.response_body; content:"late"; sid:4;)`)
	c := l.tcp(80).open()
	c.send(true, "HEAD /one HTTP/1.1\r\n\r\nPOST /three HTTP/1.1\r\nContent-Length: 20\r\n\r\nEVIL /two HTTP/1.1\r\nGET /two HTTP/1.1\r\n\r\n", 9)
	c.send(false, "HTTP/1.1 200 OK\r\nContent-Length: 400\r\n\r\nHTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\nHTTP/1.0 200 OK\r\n\r\nlate", 11)
	l.want("before the end", "1 2")
	c.close()
	l.want("at the end of the connection", "1 2 4")
}

// TestLostBytesStopParsers wants no message made of bytes from both sides of a gap.
func TestLostBytesStopParsers(t *testing.T) {
	l := newLab(t, `alert http any any -> any any (http.uri; content:"/a"; sid:1;)`)
	c := l.tcp(80).open().send(true, "POST /b HTTP/1.1\r\nContent-Length: 9\r\n\r\n", 100)
	c.cSeq += 9 // not captured
	c.send(true, "GET /a HTTP/1.1\r\n\r\n", 100)
	c.seg(false, c.sSeq, wire.FlagACK, "")
	if s := l.e.Stats(); s.Gaps != 1 {
		t.Errorf("%d gaps", s.Gaps)
	}
	l.want("behind a gap", "")
}

// TestProtocolIsKnownLate has payload rules of a protocol that only the answer shows.
func TestProtocolIsKnownLate(t *testing.T) {
	const rules = `alert http any any -> any any (flow:to_server; content:"GET "; content:"Host|3a|"; distance:0; sid:1;)
alert http any any -> any any (flow:to_server; content:"zz"; sid:2;)
alert ssh any any -> any any (flow:to_server; content:"Host|3a|"; sid:3;)
alert http any any -> any any (flow:to_client; http.stat_code; content:"200"; sid:4;)
alert tcp any any -> any any (flow:to_server; content:"Host|3a|"; sid:5;)`
	for _, mss := range []int{3, 1000} {
		l := newLab(t, rules)
		c := l.tcp(80).open().send(true, "xGET /\r\nHost: zz\r\n\r\n", mss)
		l.want("before the answer", "5")
		c.send(false, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", mss)
		l.want("behind it", "1 2 4 5")
		c.close()
		l.want("at the end", "1 2 4 5")

		l = newLab(t, rules)
		c = l.tcp(80).open().send(true, strings.Repeat("x", 3000)+"GET Host: zz", 1000)
		c.send(false, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", mss)
		l.want("behind many bytes that tell nothing", "1 2 4 5")
	}
	l := newLab(t, `alert http any any -> any any (http.uri; content:"/a"; sid:1;)`)
	l.tcp(80).open().send(true, "gEt /a HTTP/1.1\r\n\r\n", 100)
	l.want("a method in other letters", "1")
	l = newLab(t, `alert ftp any any -> any any (flow:to_server; content:"USER "; depth:5; sid:1;)`)
	l.tcp(2100).open().send(true, "USER ACC\r\n", 100)
	l.want("USER on any port", "")
	l.tcp(21).open().send(true, "USER ACC\r\n", 100)
	l.want("USER on the port of FTP", "1")
}

// TestFieldsAsTheyCame has names and lines that are none.
func TestFieldsAsTheyCame(t *testing.T) {
	for request, want := range map[string]string{
		"GET / HTTP/1.1\r\nName \t: x\r\n\r\n":   "1",   // blanks before the colon (RFC 9112 5.1)
		"GET / HTTP/1.1\r\nName\r: x\r\n\r\n":    "2",   // another byte is one of the name
		"GET / HTTP/1.1\r\nA: b\r\nName\r\n\r\n": "3",   // no colon: a value without a name
		"GET / HTTP/1.1\r\nName: x\r\n\r\n":      "1",   //
		" \tGET /a HTTP/1.1\r\nName: x\r\n\r\n":  "1 4", // blanks before the method
	} {
		l := newLab(t, `alert http any any -> any any (http.header_names; content:"|0d 0a|Name|0d 0a|"; sid:1;)
alert http any any -> any any (http.header_names; content:"|0d 0a|Name|0d 0d 0a|"; sid:2;)
alert http any any -> any any (http.header; content:"A|3a| b|0d 0a 3a| Name|0d 0a|"; bsize:14; sid:3;)
alert http any any -> any any (http.method; content:"GET"; bsize:3; http.uri; content:"/a"; bsize:2; sid:4;)`)
		l.tcp(80).open().send(true, request, 100).send(false, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 100)
		l.want(fmt.Sprintf("%q", request), want)
	}
}

func TestDNSNames(t *testing.T) {
	const query = "\x00\x01\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x03www\x07example\x03com\x00\x00\x01\x00\x01"
	l := newLab(t, `alert dns any any -> any any (dns.query; content:"www.example.com"; bsize:15; sid:1;)
alert dns any any -> any any (dns.query; dotprefix; content:".example.com"; endswith; sid:2;)
alert dns any any -> any any (dns.query; content:!"example"; sid:3;)
alert udp any any -> any any (dns.query; content:"EXAMPLE"; nocase; sid:4;)`)
	l.udp(53, query)
	l.want("a query", "1 2 4")
	l.udp(54, query)
	l.want("another port", "1 2 4")
	answer := []byte(query)
	answer[2] |= 0x80
	l.alerts = nil
	l.frame(ether(wire.EtherTypeIPv4, ipPacket(server, client, wire.ProtoUDP, append(wire.AppendUDP(nil, 53, 4000, len(answer)), answer...))))
	l.want("the answer", "")
	l.tcp(53).open().send(true, "\x00\x21"+query+"\x00\x21"+query, 5)
	l.want("over TCP", "1 1 2 2")
}

func TestSSHBanner(t *testing.T) {
	l := newLab(t, `alert ssh any any -> any any (flow:to_server; ssh.proto; content:"2.0"; bsize:3; sid:1;)
alert ssh any any -> any any (flow:to_client; ssh.software; content:"dropbear_1"; startswith; endswith; sid:2;)`)
	l.tcp(22).open().send(true, "SSH-2.0-x comment\r\n", 3).send(false, "SSH-2.0-dropbear_1\r\n", 3)
	l.want("banners", "1 2")
}

// record runs a handshake of crypto/tls and returns what each side has sent.
func record(t *testing.T, version uint16) (fromClient, fromServer string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	name := pkix.Name{CommonName: "www.example.com", Organization: []string{"Example"}, Country: []string{"NL"}}
	template := &x509.Certificate{SerialNumber: big.NewInt(0x0102ff), Subject: name, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	a, b := net.Pipe()
	ca, cb := &recorder{Conn: a}, &recorder{Conn: b}
	done := make(chan error, 1)
	go func() {
		s := tls.Server(cb, &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, MaxVersion: version})
		err := s.Handshake()
		cb.Close()
		done <- err
	}()
	c := tls.Client(ca, &tls.Config{ServerName: "www.example.com", InsecureSkipVerify: true, MaxVersion: version})
	if err := c.Handshake(); err != nil {
		t.Fatal(err)
	}
	a.Close()
	if err := <-done; err != nil {
		t.Log(err) // tickets of TLS 1.3 that nobody reads
	}
	return ca.sent.String(), cb.sent.String()
}

type recorder struct {
	net.Conn
	sent bytes.Buffer
}

func (r *recorder) Write(b []byte) (int, error) {
	r.sent.Write(b)
	return r.Conn.Write(b)
}

func TestTLSBuffers(t *testing.T) {
	rules := `alert tls any any -> any any (tls.sni; content:"www.example.com"; startswith; endswith; sid:1;)
alert tls any any -> any any (tls.cert_subject; content:"C=NL, O=Example, CN=www.example.com"; startswith; endswith; sid:2;)
alert tls any any -> any any (tls.cert_issuer; content:"CN=www.example.com"; endswith; sid:3;)
alert tls any any -> any any (tls.cert_serial; content:"01|3a|02|3a|FF"; startswith; endswith; sid:4;)
alert tls any any -> any any (tls.certs; content:"|30 82|"; startswith; content:"www.example.com"; sid:5;)
alert tls any any -> any any (ja3.hash; bsize:32; content:!"x"; sid:6;)
alert tls any any -> any any (ja3s.hash; bsize:32; content:!"x"; sid:7;)
alert tls any any -> any any (ja4.hash; content:"t1"; startswith; bsize:36; sid:8;)
alert tls any any -> any any (tls.cert_fingerprint; bsize:59; sid:9;)
alert tls any any -> any any (tls.sni; content:!"example"; sid:10;)
alert tls any any -> any any (ja3.string; content:"771,"; startswith; pcre:"/^\d+(,[\d-]*){4}$/"; sid:11;)
alert tls any any -> any any (ja3_string; content:"772"; startswith; sid:12;)`
	for version, want := range map[uint16]string{tls.VersionTLS12: "1 11 2 3 4 5 6 7 8 9", tls.VersionTLS13: "1 11 6 7 8"} {
		c, s := record(t, version)
		for _, mss := range []int{3, 1400} {
			l := newLab(t, rules)
			l.tcp(443).open().send(true, c, mss).send(false, s, mss)
			l.want(fmt.Sprintf("%s in segments of %d", tls.VersionName(version), mss), want)
			if a := l.alerts[0].App; a != signature.AppTLS {
				t.Errorf("the flow is %v", a)
			}
		}
	}
}

func TestBits(t *testing.T) {
	l := newLab(t, `alert tcp any any -> any any (flow:to_server; content:"login"; flowbits:set,in; flowbits:noalert; sid:1;)
alert tcp any any -> any any (flow:to_client; flowbits:isset,in; content:"welcome"; sid:2;)
alert tcp any any -> any any (flow:to_client; flowbits:isnotset,in; content:"welcome"; sid:3;)
alert tcp any any -> any any (flow:to_client; flowbits:isset,none|in; content:"welcome"; sid:4;)
alert tcp any any -> any any (flow:to_client; content:"bye"; flowbits:unset,in; sid:5;)
alert udp any any -> any any (content:"mark"; xbits:set,m,track ip_src,expire 10; sid:6;)
alert udp any any -> any any (content:"check"; xbits:isset,m,track ip_src; sid:7;)`)
	l.tcp(1).open().send(false, "welcome", 100)
	l.want("without the bit", "3")
	l.alerts = nil
	c := l.tcp(2).open().send(true, "login", 100).send(false, "welcome", 100)
	l.want("with it", "2 4")
	l.alerts = nil
	c.send(false, "bye", 100).send(false, "welcome", 100)
	l.want("after it was taken back", "3 5")
	l.alerts = nil
	l.udp(9, "check")
	l.udp(9, "mark")
	l.udp(9, "check")
	l.now += 11e9
	l.udp(9, "check")
	l.want("a bit of an address, until it expires", "6 7")
}

func TestThresholds(t *testing.T) {
	for limit, want := range map[string]string{
		"threshold:type limit,track by_src,count 2,seconds 60;":     "2 packets, then 2",
		"threshold:type threshold,track by_src,count 3,seconds 60;": "3 packets, then 3",
		"threshold:type both,track by_src,count 3,seconds 60;":      "1 packets, then 1",
		"detection_filter:track by_src,count 4,seconds 60;":         "6 packets, then 6",
	} {
		l := newLab(t, "alert udp any any -> any any (content:\"hit\"; "+limit+")")
		for range 10 {
			l.udp(9, "hit")
		}
		first := len(l.alerts)
		l.now += 61e9
		for range 10 {
			l.udp(9, "hit")
		}
		if got := fmt.Sprintf("%d packets, then %d", first, len(l.alerts)-first); got != want {
			t.Errorf("%s: %s, want %s", limit, got, want)
		}
	}
}

// TestPassExemptsFlows wants no alerts for a flow that a pass rule has matched.
func TestPassExemptsFlows(t *testing.T) {
	l := newLab(t, `alert udp any any -> any any (content:"hit"; sid:1;)
pass udp any any -> any 9 (content:"hit"; sid:2;)`)
	l.udp(9, "hit")
	l.udp(10, "hit")
	l.want("one of two", "1")
}

// TestAddressesMatchOncePerDirection has rules that say nothing but addresses.
func TestAddressesMatchOncePerDirection(t *testing.T) {
	l := newLab(t, `alert ip 192.0.2.1 any -> any any (sid:1;)
alert ip any any -> [203.0.113.0/24,198.18.0.0/24] any (sid:2;)
alert ip 192.0.2.2 any -> any any (sid:3;)
alert udp 192.0.2.1 any <> 198.18.0.1 any (sid:4;)`)
	for range 5 {
		l.udp(9, "x")
	}
	l.want("one flow", "1 2 4")
	if a := l.alerts[0]; a.Src != addrOf(client) || a.Dst != addrOf(server) || a.Dir != signature.ToServer || a.Packet != 1 || a.Flow != 1 {
		t.Errorf("%+v", a)
	}
}

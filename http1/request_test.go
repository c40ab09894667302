package http1

import (
	"fmt"
	"strings"
	"testing"
)

// Requests that are accepted, and what is read of them.
var accepted = []struct{ name, in, want string }{
	{
		"origin-form", "GET /a?b=c HTTP/1.1\r\nHost: example.org\r\n\r\n",
		"request 1.1 GET http example.org /a?b=c body=none []\nend\n",
	},
	{
		"names are lower case, values are trimmed", "GET / HTTP/1.1\r\nHOST: a\r\nX-A:  b \t\r\nX-Empty:\r\n\r\n",
		`request 1.1 GET http a / body=none [x-a="b" x-empty=""]` + "\nend\n",
	},
	{
		"absolute-form (RFC 9112 3.2.2)", "GET http://a:80/x HTTP/1.1\r\nHost: a:80\r\n\r\n",
		"request 1.1 GET http a:80 /x body=none []\nend\n",
	},
	{
		"absolute-form without a path", "GET HTTPS://a HTTP/1.1\r\nHost: A\r\n\r\n",
		"request 1.1 GET https a / body=none []\nend\n",
	},
	{
		"absolute-form with a query and no path", "GET http://a?x=/y HTTP/1.1\r\nHost: a\r\n\r\n",
		"request 1.1 GET http a /?x=/y body=none []\nend\n",
	},
	{
		"authority-form (RFC 9112 3.2.3)", "CONNECT a:443 HTTP/1.1\r\nHost: a\r\n\r\n",
		"request 1.1 CONNECT  a:443  body=none []\nend\n",
	},
	{
		"asterisk-form (RFC 9112 3.2.4)", "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n",
		"request 1.1 OPTIONS http a * body=none []\nend\n",
	},
	{
		"asterisk-form from absolute-form", "OPTIONS http://a HTTP/1.1\r\nHost: a\r\n\r\n",
		"request 1.1 OPTIONS http a * body=none []\nend\n",
	},
	{
		"an empty line before (RFC 9112 2.2)", "\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
		"request 1.1 GET http a / body=none []\nend\n",
	},
	{"HTTP/1.0 without Host", "GET / HTTP/1.0\r\n\r\n", "request 1.0 GET http  / body=none close []\nend\n"},
	{"HTTP/1.0 that is kept", "GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", "request 1.0 GET http  / body=none []\nend\n"},
	{
		"a length", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc",
		"request 1.1 POST http a / length=3 body=length []\ndata \"abc\"\nend\n",
	},
	{
		"length zero", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n",
		"request 1.1 POST http a / length=0 body=none []\nend\n",
	},
	{
		"chunks (RFC 9112 7.1)", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\r\n\r\n3\r\nabc\r\n0A\r\n0123456789\r\n0\r\n\r\n",
		"request 1.1 POST http a / body=chunked []\ndata \"abc0123456789\"\nend\n",
	},
	{
		"chunk extensions (RFC 9112 7.1.1)", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1;a=\"b;\\\"c\" ; d\t= e ;f\r\nx\r\n0;e\r\n\r\n",
		"request 1.1 POST http a / body=chunked []\ndata \"x\"\nend\n",
	},
	{
		"trailers (RFC 9112 7.1.2)", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nGrpc-Status: 0\r\nB: c\r\n\r\n",
		"request 1.1 POST http a / body=chunked []\ndata \"x\"\n" + `trailers [grpc-status="0" b="c"]` + "\nend\n",
	},
	{
		"trailers that a header decides are dropped (RFC 9110 6.5.1)", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nContent-Type: a/b\r\nAuthorization: c\r\n\r\n",
		"request 1.1 POST http a / body=chunked []\nend\n",
	},
	{
		"fields of the connection (RFC 9110 7.6.1)", "GET / HTTP/1.1\r\nHost: a\r\nX-Hop: 1\r\nConnection: x-hop, , Keep-Alive\r\nKeep-Alive: timeout=5\r\n" +
			"Proxy-Connection: keep-alive\r\nTE: gzip\r\nX-End: 2\r\nConnection: x-other\r\nX-Other: 3\r\n\r\n",
		`request 1.1 GET http a / body=none [x-end="2"]` + "\nend\n",
	},
	{
		"HTTP2-Settings goes with the Upgrade that is not seen (RFC 9113 3.1)", "GET / HTTP/1.1\r\nHost: a\r\nHTTP2-Settings: AAMAAABk\r\nB: c\r\n\r\n",
		`request 1.1 GET http a / body=none [b="c"]` + "\nend\n",
	},
	{
		"TE: trailers stays", "GET / HTTP/1.1\r\nHost: a\r\nTE: Trailers\r\nConnection: TE\r\n\r\n",
		`request 1.1 GET http a / body=none [te="Trailers"]` + "\nend\n",
	},
	{"close", "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", "request 1.1 GET http a / body=none close []\nend\n"},
	{
		"an upgrade (RFC 9110 7.8)", "GET / HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\r\n",
		"request 1.1 GET http a / protocol=websocket body=none []\nend\n",
	},
	{
		"an upgrade that Connection does not name", "GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\n\r\n",
		"request 1.1 GET http a / body=none []\nend\n",
	},
	{
		"an upgrade to h2c is not seen", "GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade, http2-settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n\r\n",
		"request 1.1 GET http a / body=none []\nend\n",
	},
	{"HTTP/1.0 has no upgrade", "GET / HTTP/1.0\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n", "request 1.0 GET http  / body=none close []\nend\n"},
	{
		"HTTP/1.0 has no 100-continue", "PUT / HTTP/1.0\r\nContent-Length: 1\r\nExpect: 100-continue\r\n\r\nx",
		"request 1.0 PUT http  / length=1 body=length close []\ndata \"x\"\nend\n",
	},
	{
		"100-continue (RFC 9110 10.1.1)", "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nExpect: 100-Continue\r\n\r\nx",
		"request 1.1 PUT http a / length=1 body=length expect []\ndata \"x\"\nend\n",
	},
	{
		"two requests at once", "GET /1 HTTP/1.1\r\nHost: a\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\n\r\n",
		"request 1.1 GET http a /1 body=none []\nend\nrequest 1.1 GET http a /2 body=none []\nend\n",
	},
	{
		"content, then a request", "POST /1 HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nabGET /2 HTTP/1.1\r\nHost: a\r\n\r\n",
		"request 1.1 POST http a /1 length=2 body=length []\ndata \"ab\"\nend\nrequest 1.1 GET http a /2 body=none []\nend\n",
	},
	{"a method of one's own", "M-SEARCH / HTTP/1.1\r\nHost: a\r\n\r\n", "request 1.1 M-SEARCH http a / body=none []\nend\n"},
	{
		"bytes above ASCII in a value", "GET / HTTP/1.1\r\nHost: a\r\nX: \xc3\xa9\r\n\r\n",
		"request 1.1 GET http a / body=none [x=\"é\"]\nend\n",
	},
}

func TestRequests(t *testing.T) {
	for _, test := range accepted {
		t.Run(test.name, func(t *testing.T) {
			if got := traceAll(t, server, test.in, true); got != test.want {
				t.Errorf("input %q\ngot:\n%swant:\n%s", test.in, got, test.want)
			}
		})
	}
}

// Requests that are refused, and the status. Most are known shapes of request smuggling.
var refused = []struct {
	name   string
	in     string
	status int
}{
	{"bare LF after the request line", "GET / HTTP/1.1\nHost: a\r\n\r\n", 400},
	{"bare LF after a field", "GET / HTTP/1.1\r\nHost: a\nX: y\r\n\r\n", 400},
	{"bare LF between two fields", "GET / HTTP/1.1\r\nHost: a\r\nX: yy\nZ: w\r\n\r\n", 400},
	{"bare LF as the empty line", "GET / HTTP/1.1\r\nHost: a\r\n\n", 400},
	{"bare CR in a value", "GET / HTTP/1.1\r\nHost: a\r\nX: y\rZ: w\r\n\r\n", 400},
	{"bare CR in the request line", "GET /\rx HTTP/1.1\r\nHost: a\r\n\r\n", 400},
	{"CR CR LF", "GET / HTTP/1.1\r\r\nHost: a\r\n\r\n", 400},
	{"NUL in a value", "GET / HTTP/1.1\r\nHost: a\r\nX: y\x00z\r\n\r\n", 400},
	{"NUL in the target", "GET /\x00 HTTP/1.1\r\nHost: a\r\n\r\n", 400},
	{"two empty lines before", "\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", 400},
	{"nothing but an empty line", "\r\n\r\n", 400},
	{"two spaces after the method", "GET  / HTTP/1.1\r\nHost: a\r\n\r\n", 400},
	{"two spaces before the version", "GET /  HTTP/1.1\r\nHost: a\r\n\r\n", 400},
	{"a tab for a space", "GET\t/ HTTP/1.1\r\nHost: a\r\n\r\n", 400},
	{"a space after the version", "GET / HTTP/1.1 \r\nHost: a\r\n\r\n", 400},
	{"a space in the target", "GET /a b HTTP/1.1\r\nHost: a\r\n\r\n", 400},
	{"a space before the method", " GET / HTTP/1.1\r\nHost: a\r\n\r\n", 400},
	{"no version (HTTP/0.9)", "GET /\r\n\r\n", 400},
	{"no method", "/ HTTP/1.1\r\nHost: a\r\n\r\n", 400},
	{"a method that is no token", "G@T / HTTP/1.1\r\nHost: a\r\n\r\n", 400},
	{"HTTP/2.0", "GET / HTTP/2.0\r\nHost: a\r\n\r\n", 505},
	{"the preface of HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505},
	{"HTTP/1.2", "GET / HTTP/1.2\r\nHost: a\r\n\r\n", 505},
	{"HTTP/0.9", "GET / HTTP/0.9\r\nHost: a\r\n\r\n", 505},
	{"a version in lower case", "GET / http/1.1\r\nHost: a\r\n\r\n", 400},
	{"a version of two digits", "GET / HTTP/1.10\r\nHost: a\r\n\r\n", 400},
	{"another protocol", "GET / ICE/1.0\r\nHost: a\r\n\r\n", 400},
	{"a fragment in the target", "GET /#a HTTP/1.1\r\nHost: a\r\n\r\n", 400},
	{"a byte above ASCII in the target", "GET /\xe9 HTTP/1.1\r\nHost: a\r\n\r\n", 400},
	{"a target without a slash", "GET a HTTP/1.1\r\nHost: a\r\n\r\n", 400},
	{"an asterisk without OPTIONS", "GET * HTTP/1.1\r\nHost: a\r\n\r\n", 400},
	{"CONNECT without a port", "CONNECT a HTTP/1.1\r\nHost: a\r\n\r\n", 400},
	{"CONNECT to a path", "CONNECT /a HTTP/1.1\r\nHost: a\r\n\r\n", 400},
	{"CONNECT with another Host", "CONNECT a:1 HTTP/1.1\r\nHost: b\r\n\r\n", 400},
	{"CONNECT with a length", "CONNECT a:1 HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n", 400},
	{"absolute-form of another scheme", "GET ftp://a/ HTTP/1.1\r\nHost: a\r\n\r\n", 400},
	{"absolute-form against Host", "GET http://a/ HTTP/1.1\r\nHost: b\r\n\r\n", 400},
	{"absolute-form against the port of Host", "GET http://a/ HTTP/1.1\r\nHost: a:81\r\n\r\n", 400},
	{"absolute-form with a user", "GET http://u@a/ HTTP/1.1\r\nHost: u@a\r\n\r\n", 400},
	{"absolute-form without a host", "GET http:///x HTTP/1.1\r\nHost: \r\n\r\n", 400},
	{"no Host", "GET / HTTP/1.1\r\n\r\n", 400},
	{"no Host in absolute-form", "GET http://a/ HTTP/1.1\r\n\r\n", 400},
	{"an empty Host", "GET / HTTP/1.1\r\nHost:\r\n\r\n", 400},
	{"Host twice", "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", 400},
	{"a list in Host", "GET / HTTP/1.1\r\nHost: a b\r\n\r\n", 400},
	{"a path in Host", "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", 400},
	{"a user in Host", "GET / HTTP/1.1\r\nHost: u@a\r\n\r\n", 400},
	{"a space before the colon", "GET / HTTP/1.1\r\nHost: a\r\nContent-Length : 3\r\n\r\nabc", 400},
	{"a tab before the colon", "GET / HTTP/1.1\r\nHost\t: a\r\n\r\n", 400},
	{"a field that begins with a colon", "GET / HTTP/1.1\r\nHost: a\r\n: b\r\n\r\n", 400},
	{"a field without a colon", "GET / HTTP/1.1\r\nHost: a\r\nabc\r\n\r\n", 400},
	{"a name that is no token", "GET / HTTP/1.1\r\nHost: a\r\nX(Y): z\r\n\r\n", 400},
	{"a name above ASCII", "GET / HTTP/1.1\r\nHost: a\r\nTransfer\xadEncoding: chunked\r\n\r\n", 400},
	{"a folded line (obs-fold)", "GET / HTTP/1.1\r\nHost: a\r\nX: y\r\n z\r\n\r\n", 400},
	{"a folded line with a tab", "GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding:\r\n\tchunked\r\n\r\n", 400},
	{"a folded first line", "GET / HTTP/1.1\r\n Host: a\r\n\r\n", 400},
	{"Content-Length and Transfer-Encoding", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
	{"Transfer-Encoding and Content-Length", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n", 400},
	{"two lengths", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd", 400},
	{"two equal lengths", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc", 400},
	{"a list of lengths", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3, 3\r\n\r\nabc", 400},
	{"a length with a sign", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +3\r\n\r\nabc", 400},
	{"a negative length", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -3\r\n\r\nabc", 400},
	{"a hexadecimal length", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0x3\r\n\r\nabc", 400},
	{"a length with a blank", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1 2\r\n\r\n", 400},
	{"an empty length", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length:\r\n\r\n", 400},
	{"a length beyond 63 bits", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 18446744073709551616\r\n\r\n", 400},
	{"a coding that is unknown", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", 501},
	{"gzip before chunked", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501},
	{"chunked before identity", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n", 501},
	{"chunked twice", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 501},
	{"chunked, then identity in a line of its own", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n", 501},
	{"an empty coding", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding:\r\n\r\n", 501},
	{"chunked in quotes", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: \"chunked\"\r\n\r\n", 501},
	{"chunked with a vertical tab", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: \x0bchunked\r\n\r\n", 400},
	{"chunked with a parameter", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked;a=b\r\n\r\n", 501},
	{"a coding in HTTP/1.0", "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
	{"an upgrade with content", "GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\nContent-Length: 1\r\n\r\nx", 400},
	{"an unknown expectation", "GET / HTTP/1.1\r\nHost: a\r\nExpect: 200-ok\r\n\r\n", 417},
	{"the connection ends within the header", "GET / HTTP/1.1\r\nHost: a\r\n", 400},
}

func TestRefusedRequests(t *testing.T) {
	for _, test := range refused {
		t.Run(test.name, func(t *testing.T) {
			got := traceAll(t, server, test.in, true)
			if want := fmt.Sprintf("error %d ", test.status); !strings.HasPrefix(got, want) {
				t.Errorf("input %q\ngot:\n%swant %s", test.in, got, want)
			}
		})
	}
}

// Content that is refused, after a header that is not.
func TestRefusedContent(t *testing.T) {
	const head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
	for _, test := range []struct{ name, in string }{
		{"no size", "\r\nabc"},
		{"no size, and an empty trailer section", "\r\n\r\n"},
		{"extensions without a size", ";a\r\n\r\n"},
		{"a size with a sign", "+1\r\nx\r\n0\r\n\r\n"},
		{"a negative size", "-1\r\nx\r\n0\r\n\r\n"},
		{"a size with 0x", "0x1\r\nx\r\n0\r\n\r\n"},
		{"a size after a blank", " 1\r\nx\r\n0\r\n\r\n"},
		{"a size before a blank", "1 \r\nx\r\n0\r\n\r\n"},
		{"a size before a tab and an extension", "1\t;a\r\nx\r\n0\r\n\r\n"},
		{"a size of 16 digits", "0000000000000001\r\nx\r\n0\r\n\r\n"},
		{"a size beyond 64 bits", "10000000000000001\r\nx\r\n0\r\n\r\n"},
		{"a size with an underscore", "1_0\r\n0123456789abcdef\r\n0\r\n\r\n"},
		{"bare LF after the size", "1\nx\r\n0\r\n\r\n"},
		{"bare CR after the size", "1\rx\r\n0\r\n\r\n"},
		{"bare LF in an extension", "1;a\nx\r\n0\r\n\r\n"},
		{"bare CR in an extension", "1;a\rb\r\nx\r\n0\r\n\r\n"},
		{"NUL in an extension", "1;a\x00\r\nx\r\n0\r\n\r\n"},
		{"bare LF after a chunk", "1\r\nx\n0\r\n\r\n"},
		{"bare CR after a chunk", "1\r\nx\r0\r\n\r\n"},
		{"a chunk that is longer than its size", "1\r\nxy\r\n0\r\n\r\n"},
		{"a chunk that is shorter than its size", "3\r\nx\r\n0\r\n\r\n"},
		{"bare LF after the last chunk", "0\n\r\n"},
		{"bare LF after the trailers", "0\r\na: b\r\n\n"},
		{"a trailer that is folded", "0\r\na: b\r\n c\r\n\r\n"},
		{"a trailer without a colon", "0\r\nabc\r\n\r\n"},
		{"a request for a trailer", "0\r\nGET / HTTP/1.1\r\n\r\n"},
		{"Content-Length as a trailer", "0\r\nContent-Length: 3\r\n\r\n"},
		{"Transfer-Encoding as a trailer", "0\r\nTransfer-Encoding: chunked\r\n\r\n"},
		{"Host as a trailer", "0\r\nHost: b\r\n\r\n"},
		{"an extension without a name", "1;\r\nx\r\n0\r\n\r\n"},
		{"an extension with an empty name", "1;=a\r\nx\r\n0\r\n\r\n"},
		{"an extension with two names", "1;a b\r\nx\r\n0\r\n\r\n"},
		{"an extension with an empty value", "1;a=\r\nx\r\n0\r\n\r\n"},
		{"an extension with two values", "1;a=b=c\r\nx\r\n0\r\n\r\n"},
		{"an extension in open quotes", "1;a=\"b\r\nx\r\n0\r\n\r\n"},
		{"an extension that goes on after quotes", "1;a=\"b\"c\r\nx\r\n0\r\n\r\n"},
		{"an extension with an escaped line end", "1;a=\"\\\r\n\"\r\nx\r\n0\r\n\r\n"},
		{"too many extensions", "1;" + strings.Repeat("a", DefaultMaxExtensions) + "\r\nx\r\n0\r\n\r\n"},
		{"many chunks with extensions", strings.Repeat("1;aaa\r\nx\r\n", DefaultMaxExtensions/4+1) + "0\r\n\r\n"},
		{"trailers without end", "0\r\n" + strings.Repeat("a: b\r\n", DefaultMaxFields+3)},
		{"one trailer more than the limit", "0\r\n" + strings.Repeat("a: b\r\n", DefaultMaxFields+1) + "\r\n"},
		{"a trailer without end", "0\r\na: " + strings.Repeat("b", DefaultMaxTrailers)},
		{"the connection ends within a size", "1"},
		{"the connection ends within a chunk", "2\r\nx"},
		{"the connection ends after the last chunk", "0\r\n"},
		{"the connection ends within the trailers", "0\r\na: b\r\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := traceAll(t, server, head+test.in, true)
			if !strings.Contains(got, "\nerror 400 ") || strings.Contains(got, "end\n") {
				t.Errorf("input %q: got\n%s", test.in, got)
			}
		})
	}
}

func TestLimitsOfARequest(t *testing.T) {
	for _, test := range []struct {
		name, in string
		want     string
	}{
		{"a target at the limit", "GET /" + strings.Repeat("a", DefaultMaxTarget-len("GET / HTTP/1.1")) + " HTTP/1.1\r\nHost: a\r\n\r\n", "request"},
		{"a target above", "GET /" + strings.Repeat("a", DefaultMaxTarget-len("GET / HTTP/1.1")+1) + " HTTP/1.1\r\nHost: a\r\n\r\n", "error 414"},
		{"a target without end", "GET /" + strings.Repeat("a", 3*DefaultMaxTarget), "error 414"},
		{"as many fields as permitted", "GET / HTTP/1.1\r\nHost: a\r\n" + strings.Repeat("a: b\r\n", DefaultMaxFields-1) + "\r\n", "request"},
		{"one more", "GET / HTTP/1.1\r\nHost: a\r\n" + strings.Repeat("a: b\r\n", DefaultMaxFields) + "\r\n", "error 431"},
		{"fields without end", "GET / HTTP/1.1\r\nHost: a\r\n" + strings.Repeat("a: b\r\n", 10000), "error 431"},
		{"a field without end", "GET / HTTP/1.1\r\nHost: a\r\nb: " + strings.Repeat("c", 2*DefaultMaxHead), "error 431"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := traceAll(t, server, test.in, false); !strings.HasPrefix(got, test.want) {
				t.Errorf("got %.200s, want %s", got, test.want)
			}
		})
	}
}

// Trailers are those of the message, also where the one before on the connection had some.
func TestTrailersBelongToTheirMessage(t *testing.T) {
	m := server()
	in := []byte("POST /1 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX-Sum: 1\r\n\r\nPOST /2 HTTP/1.1\r\nHost: a\r\n\r\n" +
		"POST /3 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")
	var got []int
	for len(got) < 3 {
		ev, n, err := m.Input(in, false)
		if in = in[n:]; err != nil || ev.Kind == NeedInput {
			t.Fatal(ev.Kind, err)
		}
		if ev.Kind == End {
			got = append(got, len(m.Trailers()))
			respond(m)
		}
	}
	if got[0] != 1 || got[1] != 0 || got[2] != 0 {
		t.Errorf("%d trailers", got)
	}
}

package wrongcases

import (
	"fmt"
	"strings"
)

// targets are cases of method and request target (RFC 9112 3, RFC 9110 9.1).
func targets() []Case {
	g := &group{name: "request line"}
	for _, l := range []struct{ origin, line string }{
		{"9112 3", "GET  /case HTTP/1.1"},
		{"9112 3", "GET\t/case HTTP/1.1"},
		{"9112 3", "GET /case\tHTTP/1.1"},
		{"9112 3", "GET\v/case HTTP/1.1"},
		{"9112 3", "GET /case\fHTTP/1.1"},
		{"9112 3", "GET /a b HTTP/1.1"},
		{"9112 3", "GET HTTP/1.1"},
		{"9112 3", "/case HTTP/1.1"},
		{"9112 3", "GET"},
		{"9112 3", "GET  HTTP/1.1"},
		{"http-garden: URI", "GET ! HTTP/1.1"},
		{"9112 3.2", "GET case HTTP/1.1"},
		{"9112 3.2", "GET ../case HTTP/1.1"},
		{"PortSwigger: collab-at", "GET @b/case HTTP/1.1"},
		{"9112 3.2", "GET ?x HTTP/1.1"},
		{"9112 3.2", "GET * HTTP/1.1"},
		{"9112 3.2.4", "POST * HTTP/1.1"},
		{"9112 3.2.3", "GET a:80 HTTP/1.1"},
		{"9112 3.2.1", "GET /case#fragment HTTP/1.1"},
		{"9112 3.2.1", "GET /case\x00 HTTP/1.1"},
		{"9112 3.2.1", "GET /case\x7f HTTP/1.1"},
		{"9112 3.2.1", "GET /case\x01 HTTP/1.1"},
		{"9112 3.2.1", "GET /\xc3\xa9 HTTP/1.1"},
		{"9112 3.2.1", "GET /case\r HTTP/1.1"},
		{"9110 9.1", "G(T /case HTTP/1.1"},
		{"http-garden: method", "G=\":<>(e),[T];?\" /case HTTP/1.1"},
		{"9110 9.1", "GET\x00 /case HTTP/1.1"},
		{"9110 9.1", "G\xc3\x89T /case HTTP/1.1"},
		{"9110 9.1", "GET/case HTTP/1.1"},
		{"9110 9.1", "GET: /case HTTP/1.1"},
		{"9110 9.1", "\"GET\" /case HTTP/1.1"},
		{"9112 3.2.2", "GET ftp://a/case HTTP/1.1"},
		{"9112 3.2.2", "GET file:///etc/passwd HTTP/1.1"},
		{"9112 3.2.2", "GET http:/case HTTP/1.1"},
		{"9112 3.2.2", "GET http:///case HTTP/1.1"},
		{"9112 3.2.2", "GET http:a/case HTTP/1.1"},
		{"9112 3.2.2", "GET ://a/case HTTP/1.1"},
		{"9112 3.2.2", "GET http://user@a/case HTTP/1.1"},
		{"9112 3.2.2", "GET http://user:secret@a/case HTTP/1.1"},
		{"9112 3.2.2", "GET http://a#b/case HTTP/1.1"},
		{"9112 3.2.2", "GET http://a\\b/case HTTP/1.1"},
		{"9112 3.2.2", "GET javascript:alert(1) HTTP/1.1"},
		{"9112 3.2.2, host differs", "GET http://b/case HTTP/1.1"},
		{"9112 3.2.2, host differs", "GET http://a:81/case HTTP/1.1"},
		{"9112 3.2.2, host differs", "GET http://a.b/case HTTP/1.1"},
		{"9112 3.2.3", "CONNECT a HTTP/1.1"},
		{"9112 3.2.3", "CONNECT /case HTTP/1.1"},
		{"9112 3.2.3", "CONNECT http://a/ HTTP/1.1"},
		{"9112 3.2.3", "CONNECT a: HTTP/1.1"},
		{"9112 3.2.3", "CONNECT :80 HTTP/1.1"},
		{"9112 3.2.3", "CONNECT a:80x HTTP/1.1"},
		{"9112 3.2.3", "CONNECT u@a:80 HTTP/1.1"},
		{"9110 9.3.6, open proxy", "CONNECT 192.0.2.1:25 HTTP/1.1"},
		{"9110 9.3.6, open proxy", "CONNECT a:80 HTTP/1.1"},
	} {
		g.refused(l.origin, fmt.Sprintf("%q", l.line), l.line+"\r\nHost: a\r\n\r\n")
	}
	g.refused("9110 9.3.6", "CONNECT with content", "CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\nContent-Length: 5\r\n\r\nhello")
	for _, m := range []string{"BREW", "get", "GETX", "M-SEARCH", "PROPFIND", "0"} {
		g.passed("9110 9.1", "method "+m, m+" /case HTTP/1.1\r\nHost: a\r\n\r\n", 1).Stricter = "RFC 9110 9.1: methods are an open set of tokens"
	}
	c := g.passed("9110 9.3.8", "TRACE", "TRACE /case HTTP/1.1\r\nHost: a\r\nCookie: secret\r\n\r\n", Either)
	c.Stricter = "RFC 9110 9.3.8: TRACE goes to the origin server; a proxy may refuse it"
	g.passed("9112 3.2.2", "absolute form in capital letters", "GET HTTP://A/case HTTP/1.1\r\nHost: a\r\n\r\n", 1)
	g.passed("9112 3.2.2", "absolute form without a path", "GET http://a HTTP/1.1\r\nHost: a\r\n\r\n", 1)
	g.passed("9112 3.2.2", "absolute form with a query alone", "GET http://a?x HTTP/1.1\r\nHost: a\r\n\r\n", 1).Stricter = "RFC 9110 4.2.3: an empty path is /"
	for _, p := range []string{"/a|b", "/a\"b", "/<case>", "/a^b", "/{case}", "/a`b"} {
		g.passed("3986 2.2", fmt.Sprintf("character outside of the grammar in %q", p), "GET "+p+" HTTP/1.1\r\nHost: a\r\n\r\n", 1).Stricter = "RFC 3986 2.2 excludes them and browsers send some; none ends a target in any parser"
	}
	return g.gateway(func(c *Case) bool { return strings.Contains(c.Origin, "open proxy") })
}

// hosts are cases of Host (RFC 9112 3.2, RFC 9110 7.2): what routes by one host must not reach the back end with another.
func hosts() []Case {
	g := &group{name: "Host"}
	line := "GET /case HTTP/1.1\r\n"
	g.refused("9112 3.2", "missing", line+"\r\n")
	g.refused("9112 3.2", "twice", line+"Host: a\r\nHost: b\r\n\r\n")
	g.refused("9112 3.2", "twice the same", line+"Host: a\r\nHost: a\r\n\r\n")
	g.refused("9112 3.2", "twice, other letters", line+"Host: a\r\nX: y\r\nhOST: b\r\n\r\n")
	g.refused("9112 3.2", "twice, one empty", line+"Host:\r\nHost: a\r\n\r\n")
	g.refused("host of troubles", "folded second", line+"Host: a\r\n Host: b\r\n\r\n")
	g.refused("host of troubles", "blank before the first", line+" Host: b\r\nHost: a\r\n\r\n")
	g.refused("host of troubles", "blank before the colon", line+"Host : b\r\nHost: a\r\n\r\n")
	for _, v := range []struct{ origin, value string }{
		{"9110 4.2.4", "user@a"},
		{"9110 4.2.4", "user:secret@a"},
		{"9110 7.2", "a/b"},
		{"9110 7.2", "a/../b"},
		{"9110 7.2", "a?b"},
		{"9110 7.2", "a#b"},
		{"9110 7.2", "a b"},
		{"9110 7.2", "a\tb"},
		{"9110 7.2", "a\\b"},
		{"9110 7.2", "http://a"},
		{"9110 7.2", "<a>"},
		{"9110 7.2", "a\"b"},
		{"http-garden: NUL", "a\x00.b"},
		{"http-garden: bytes above ASCII", "\xffa\xff"},
		{"9110 7.2", "a\x7f"},
		{"9110 7.2", "a\rb"},
		{"9110 7.2", "{a}"},
		{"9110 7.2", "a|b"},
		{"9110 7.2", "a^b"},
		{"3986 3.2.2", "[::1"},
		{"3986 3.2.2", "::1]"},
		{"3986 3.2.2", "[::1]x"},
		{"3986 3.2.3", "a:80:80"},
		{"3986 3.2.3", "a:x"},
		{"3986 3.2.3", "a:-1"},
		{"3986 3.2.3", ":80"},
		{"3986 3.2.2", "[a"},
		{"3986 3.2.2", "a]"},
	} {
		g.refused(v.origin, fmt.Sprintf("value %q", v.value), line+"Host: "+v.value+"\r\n\r\n")
	}
	g.passed("9110 7.2", "empty", line+"Host:\r\n\r\n", Either)
	g.passed("3986 3.2.2", "a comma, which names may have", line+"Host: a,b\r\n\r\n", Either)
	g.passed("3986 3.2.3", "a port that cannot be", line+"Host: a:99999\r\n\r\n", Either)
	g.passed("9110 7.2", "with a port", line+"Host: a:80\r\n\r\n", 1)
	g.passed("3986 3.2.2", "address of IPv6", line+"Host: [2001:db8::1]:80\r\n\r\n", 1)
	g.passed("9110 7.2", "capital letters", line+"HOST: A\r\n\r\n", 1)
	g.passed("9110 7.2", "fields that are taken for Host", get+"X-Forwarded-Host: b\r\nX-Host: b\r\nForwarded: host=b\r\n"+end, 1)
	return g.cases
}

// hops are cases of fields that belong to a connection (RFC 9110 7.6.1), and of changes of the protocol (RFC 9110 7.8).
func hops() []Case {
	g := &group{name: "hop by hop"}
	absent := func(origin, name, fields string, absent ...string) *Case {
		c := g.passed(origin, name, get+fields+end, 1)
		c.Absent = absent
		return c
	}
	absent("9113 3.1", "Upgrade: h2c", "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA\r\n", "h2c", "http2-settings")
	absent("h2csmuggler", "Upgrade: h2c, HTTP2-Settings not named", "Connection: Upgrade\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA\r\n", "h2c", "http2-settings")
	absent("h2csmuggler", "Upgrade: h2c without Connection", "Upgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA\r\n", "h2c", "http2-settings")
	absent("h2csmuggler", "Upgrade: H2C", "Connection: upgrade\r\nUpgrade: H2C\r\n", "h2c")
	const handshake = "Sec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\nSec-WebSocket-Version: 13\r\nConnection: upgrade\r\n"
	absent("h2csmuggler", "h2c in a list", handshake+"Upgrade: websocket, h2c\r\n", "h2c").Passed = Either
	absent("h2csmuggler", "h2c in a second field", handshake+"Upgrade: websocket\r\nUpgrade: h2c\r\n", "h2c").Passed = Either
	for _, h := range []struct{ name, bytes string }{
		{"without a key", get},
		{"with an empty key", get + "Sec-WebSocket-Key:\r\n"},
		{"with a key that is too short", get + "Sec-WebSocket-Key: YQ==\r\n"},
		{"with two keys", get + handshake + handshake},
		{"by POST", post + handshake},
	} {
		g.refused("6455 4.2.1", "a handshake of WebSocket "+h.name, h.bytes+"Sec-WebSocket-Version: 13\r\nConnection: upgrade\r\nUpgrade: websocket\r\n"+end)
		g.cases[len(g.cases)-1].Gateway = true
	}
	absent("9110 7.8", "Upgrade: TLS/1.0", "Connection: upgrade\r\nUpgrade: TLS/1.0\r\n").Passed = Either
	absent("9113 3.1", "Upgrade: h2", "Connection: upgrade\r\nUpgrade: h2\r\n", "upgrade: h2")
	absent("9113 3.1", "Upgrade: HTTP/2.0", "Connection: upgrade\r\nUpgrade: HTTP/2.0\r\n").Passed = Either
	g.refused("9110 7.8", "Upgrade with content", post+"Connection: upgrade\r\nUpgrade: websocket\r\nContent-Length: 36\r\n"+end+smuggled)
	absent("9110 7.6.1", "fields that Connection names", "Connection: x-a, X-B\r\nX-A: y\r\nx-b: z\r\n", "x-a", "x-b")
	absent("9110 7.6.1", "Keep-Alive, Proxy-Connection", "Keep-Alive: timeout=5\r\nProxy-Connection: keep-alive\r\n", "keep-alive", "proxy-connection")
	absent("9110 10.1.4", "TE", "Connection: TE\r\nTE: gzip, trailers;q=0.5\r\n", "gzip")
	absent("9110 7.6.1", "close and TE", "Connection: close, TE\r\nTE: trailers\r\n", "close, te")
	for _, n := range []struct{ name, value string }{
		{"Authorization", "Basic c2VjcmV0"},
		{"Cookie", "a=b"},
		{"X-Forwarded-For", "192.0.2.66"},
		{"X-Real-IP", "192.0.2.66"},
		{"X-Forwarded-Proto", "https"},
		{"Forwarded", "for=192.0.2.66"},
		{"Content-Type", "text/plain"},
		{"Accept-Encoding", "gzip"},
	} {
		g.passed("9110 7.6.1, stripping", "Connection names "+n.name, get+"Connection: close, "+n.name+"\r\n"+n.name+": "+n.value+"\r\n"+end, Either)
	}
	for _, n := range []string{"Host", "Content-Length", "Transfer-Encoding"} {
		c := g.passed("9110 7.6.1, stripping", "Connection names "+n, withLength("Connection: "+n+"\r\n", "hello"), Either)
		c.Present = []string{"host: "}
	}
	g.passed("9110 7.6.1, stripping", "Connection names Transfer-Encoding, chunked", post+"Connection: transfer-encoding\r\n"+chunked+end+"5\r\nhello\r\n0\r\n\r\n", Either)
	for _, v := range []string{"\"close\"", "close;", "@", "a b", ",,,", "\x80"} {
		g.passed("9110 7.6.1", fmt.Sprintf("Connection: %q", v), get+"Connection: "+v+"\r\n"+end, Either)
	}
	g.refused("6585 5", "Connection with 10000 names", get+"Connection: "+many(10000, "x%d, ")+"y\r\n"+end)
	return g.cases
}

// paths are cases of paths that back ends resolve to others (RFC 3986 6.2). With a rule for /private, none may pass that a back
// end could take for a path below it. The proxies of the comparison have no such rule.
func paths() []Case {
	g := &group{name: "paths"}
	for _, p := range []string{
		"/public/../private", "/public/./case", "/public/%2e%2e/private", "/public/.%2e/private", "/public/%2E%2E/private", "//private", "/public//case", "/./private",
		"/%70rivate", "/private%2fcase", "/public%2f..%2fprivate", "/public/..%2fprivate", "/public/..;/private", "/public/;x=y/../private", "/public\\..\\private",
		"/public/..%5cprivate", "/public/%252e%252e/private", "/public/%c0%ae%c0%ae/private", "/private;x", "/private/.", "/PRIVATE", "/public/...//private", "/public/%2e/", "/private?",
	} {
		g.passed("3986 6.2", fmt.Sprintf("%q", p), "GET "+p+" HTTP/1.1\r\nHost: a\r\n\r\n", Either)
	}
	for _, p := range []string{"/..", "/../private", "/public/../../private", "/%2e%2e/private", "/public/%00", "/private%00.jpg", "/%", "/%4", "/%zz", "/public/..%00/private"} {
		g.refused("3986 6.2", fmt.Sprintf("%q", p), "GET "+p+" HTTP/1.1\r\nHost: a\r\n\r\n")
	}
	return g.gateway(func(*Case) bool { return true })
}

package wrongcases

import (
	"fmt"
	"strings"
)

// Response is what a back end answers to one request on one connection, and what the client may get of it.
type Response struct {
	Name   string
	Origin string
	Method string // of the request; "" is GET
	Bytes  string
	Close  bool // the back end closes the connection behind it
	// Outcome is what the client gets.
	Outcome Outcome
	// Stricter says why a proxy may pass it on although another proxy does not, with the section of an RFC.
	Stricter string
}

// Outcome is what a client may get of a response.
type Outcome uint8

// Values of Outcome.
const (
	// Refusal is an error of the proxy.
	Refusal Outcome = iota
	// Broken is a response that the client can tell is not whole, or an error of the proxy.
	Broken
	// Whole is the response, and nothing of what the back end has sent behind it. The connection carries no other request.
	Whole
	// Reusable is the response. The connection may carry another request.
	Reusable
	// Any is one of the others.
	Any
)

const ok = "HTTP/1.1 200 OK\r\n"

// poison is a response that nobody has asked for.
const poison = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison"

// Responses returns all cases of back ends that answer in a wrong way. A client that gets the word "poison" has got the response
// to a request that nobody has sent.
func Responses() (all []Response) {
	add := func(o Outcome, origin, name, bytes string) *Response {
		all = append(all, Response{Name: name, Origin: origin, Bytes: bytes, Outcome: o})
		return &all[len(all)-1]
	}
	add(Reusable, "9112 4", "a good response", ok+"Content-Length: 2\r\n\r\nok")
	add(Reusable, "9112 7.1", "a good response in chunks", ok+"Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n")
	add(Whole, "9112 6.3", "a good response up to the end", ok+"\r\nok").Close = true
	add(Reusable, "9110 8.6", "the same length twice", ok+"Content-Length: 2\r\nContent-Length: 2\r\n\r\nok").Stricter = "one length is meant (RFC 9110 8.6)"
	const partial = "HTTP/1.1 206 Partial Content\r\nContent-Length: 2\r\nContent-Range: bytes 0-1/9\r\n"
	add(Reusable, "9110 14.4", "the same Content-Range twice", partial+"Content-Range: bytes 0-1/9\r\n\r\nok").Stricter = "one range is meant (RFC 9110 5.3)"
	add(Refusal, "9110 14.4", "two different Content-Range", partial+"Content-Range: bytes 1-2/9\r\n\r\nok")
	add(Reusable, "9110 15.2", "an interim response before it", "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"+ok+"Content-Length: 2\r\n\r\nok")
	for _, line := range []string{
		"garbage", "", "HTTP/1.1", "HTTP/1.1 ", "HTTP/1.1 20", "HTTP/1.1 2000 OK", "HTTP/1.1 2x0 OK", "HTTP/1.1 099 OK", "HTTP/1.1 -20 OK", "HTTP/1.1  200 OK", "HTTP/1.1\t200 OK",
		"http/1.1 200 OK", "HTTP/2.0 200 OK", "HTTP/0.9 200 OK", "HTTP/1.10 200 OK", "ICY 200 OK", "RTSP/1.0 200 OK", " HTTP/1.1 200 OK", "HTTP/1.1 200 O\x00K", "HTTP/1.1 200 O\rK", "200 OK",
		"GET / HTTP/1.1", "<html>hello</html>", "\x16\x03\x03\x00\x02\x02\x28", "\x00\x00\x12\x04\x00\x00\x00\x00\x00", "SSH-2.0-x",
	} {
		add(Refusal, "9112 4", fmt.Sprintf("status line %q", line), line+"\r\nContent-Length: 2\r\n\r\nok").Close = true
	}
	framed(add)
	surplus(add)
	interim(add)
	cutOff(add)
	return all
}

type adder = func(o Outcome, origin, name, bytes string) *Response

// framed are responses whose framing or fields are against the grammar.
func framed(add adder) {
	const body = "2\r\nok\r\n0\r\n\r\n"
	for _, f := range []struct{ fields, body string }{
		{"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n", body},
		{"Transfer-Encoding: chunked\r\nContent-Length: 2\r\n", body},
		{"Content-Length: 2\r\nContent-Length: 3\r\n", "ok"},
		{"Content-Length: 2, 2\r\n", "ok"},
		{"Content-Length: +2\r\n", "ok"},
		{"Content-Length: 0x2\r\n", "ok"},
		{"Content-Length: -2\r\n", "ok"},
		{"Content-Length: 2a\r\n", "ok"},
		{"Content-Length:\r\n", "ok"},
		{"Content-Length: 18446744073709551618\r\n", "ok"},
		{"Content-Length : 2\r\n", "ok"},
		{" Content-Length: 2\r\n", "ok"},
		{"Transfer-Encoding: gzip\r\n", body},
		{"Transfer-Encoding: identity\r\n", "ok"},
		{"Transfer-Encoding: chunked, gzip\r\n", body},
		{"Transfer-Encoding: gzip, chunked\r\n", body},
		{"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", body},
		{"Transfer-Encoding: xchunked\r\n", body},
		{"Transfer-Encoding:\vchunked\r\n", body},
		{"Transfer-Encoding : chunked\r\n", body},
		{"Transfer-Encoding: ,chunked\r\n", body},
		{"Transfer-Encoding:\r\n", body},
		{"X: a\r\n b\r\nContent-Length: 2\r\n", "ok"},
		{"X: a\x00b\r\nContent-Length: 2\r\n", "ok"},
		{"X: a\rb\r\nContent-Length: 2\r\n", "ok"},
		{"X: a\nContent-Length: 2\r\n", "ok"},
		{": a\r\nContent-Length: 2\r\n", "ok"},
		{"X\r\nContent-Length: 2\r\n", "ok"},
		{"X y: a\r\nContent-Length: 2\r\n", "ok"},
		{"X\xff: a\r\nContent-Length: 2\r\n", "ok"},
		{"X: " + strings.Repeat("y", 200<<10) + "\r\nContent-Length: 2\r\n", "ok"},
		{many(5000, "X-%d: y\r\n") + "Content-Length: 2\r\n", "ok"},
	} {
		add(Refusal, "9112 6.3", fmt.Sprintf("fields %q", shorten(f.fields)), ok+f.fields+"\r\n"+f.body).Close = true
	}
	add(Refusal, "9112 2.2", "bare LF", strings.ReplaceAll(ok+"Content-Length: 2\r\n\r\nok", "\r\n", "\n")).Close = true
	add(Refusal, "9112 6.1", "chunks in HTTP/1.0", "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"+body).Close = true
	add(Refusal, "6585 5", "a header without an end", ok+strings.Repeat("X: y\r\n", 100000))
	add(Refusal, "9112 4", "a status line without an end", "HTTP/1.1 200 "+strings.Repeat("x", 1<<20))
	for _, chunks := range []string{
		"x\r\nok\r\n0\r\n\r\n", "2\r\nok0\r\n\r\n", "2\r\nokk\r\n0\r\n\r\n", "0x2\r\nok\r\n0\r\n\r\n", "+2\r\nok\r\n0\r\n\r\n", "2\nok\r\n0\r\n\r\n", "2 \r\nok\r\n0\r\n\r\n",
		"10000000000000002\r\nok\r\n0\r\n\r\n", "\r\n\r\n", "2\r\nok\r\n\r\n0\r\n\r\n", "2;a=\nok\r\n0\r\n\r\n", "2\r\nok\r\n0\r\nX : y\r\n\r\n",
		"2\r\nok\r\n0\r\nX: \x00\r\n\r\n", "-1\r\nok\r\n0\r\n\r\n", "2\r\nok\r\n0\r\n" + strings.Repeat("X: y\r\n", 50000), "2;" + strings.Repeat("x", 1<<20),
	} {
		add(Broken, "9112 7.1", fmt.Sprintf("chunks %q", shorten(chunks)), ok+"Transfer-Encoding: chunked\r\n\r\n"+chunks).Close = true
	}
}

// surplus are responses with bytes behind them (response queue poisoning): whose they are is not known.
func surplus(add adder) {
	add(Whole, "9110 6.5.1", "a trailer that frames", ok+"Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nContent-Length: 5\r\n\r\n"+poison)
	add(Whole, "9112 9.2", "another response behind it", ok+"Content-Length: 2\r\n\r\nok"+poison)
	add(Whole, "9112 9.2", "another response behind chunks", ok+"Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"+poison)
	add(Whole, "9112 9.2", "a byte behind it", ok+"Content-Length: 2\r\n\r\nok!")
	add(Whole, "9112 9.2", "CRLF behind it", ok+"Content-Length: 2\r\n\r\nok\r\n")
	add(Whole, "9110 15.3.5", "204 with a length", "HTTP/1.1 204 No Content\r\nContent-Length: 45\r\n\r\n"+poison)
	add(Whole, "9110 15.3.5", "204 with a response behind it", "HTTP/1.1 204 No Content\r\n\r\n"+poison)
	add(Whole, "9110 15.3.5", "204 with chunks", "HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n")
	add(Whole, "9110 15.4.5", "304 with content", "HTTP/1.1 304 Not Modified\r\nContent-Length: 45\r\n\r\n"+poison)
	add(Whole, "9110 15.3.6", "205 with a response behind it", "HTTP/1.1 205 Reset Content\r\nContent-Length: 0\r\n\r\n"+poison)
	add(Whole, "9110 9.3.2", "HEAD with content", ok+"Content-Length: 45\r\n\r\n"+poison).Method = "HEAD"
	add(Whole, "9110 9.3.2", "HEAD with chunks", ok+"Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n").Method = "HEAD"
	add(Reusable, "9110 9.3.2", "HEAD with a length", ok+"Content-Length: 45\r\n\r\n").Method = "HEAD"
	add(Whole, "9112 6.3", "Content-Length: 0 with content", ok+"Content-Length: 0\r\n\r\n"+poison)
	add(Whole, "9112 9.3", "HTTP/1.0 with a response behind it", "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok"+poison)
	add(Whole, "9112 9.6", "Connection: close on a connection that stays open", ok+"Connection: close\r\nContent-Length: 2\r\n\r\nok")
	add(Whole, "9112 9.3", "HTTP/1.0 on a connection that stays open", "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok")
	add(Whole, "9112 9.6", "Connection: close with a response behind it", ok+"Connection: close\r\nContent-Length: 2\r\n\r\nok"+poison)
}

// interim are responses with a status below 200.
func interim(add adder) {
	const good = ok + "Content-Length: 2\r\n\r\nok"
	add(Reusable, "9110 15.2.1", "100 that nobody waits for", "HTTP/1.1 100 Continue\r\n\r\n"+good)
	add(Reusable, "9110 15.2", "an unknown 1xx", "HTTP/1.1 199 What\r\n\r\n"+good).Stricter = "RFC 9110 15.2: a proxy forwards 1xx responses"
	add(Refusal, "9110 15.2", "an endless flood of 103", strings.Repeat("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n", 20000)).Close = true
	add(Refusal, "9110 15.2", "an endless flood of 100", strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", 50000)).Close = true
	add(Refusal, "9110 15.2", "100 with chunks", "HTTP/1.1 100 Continue\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"+poison)
	add(Refusal, "9110 15.2", "103 with a length", "HTTP/1.1 103 Early Hints\r\nContent-Length: 45\r\n\r\n"+poison)
	add(Refusal, "9110 15.2.2", "101 that nobody asked for", "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n"+poison)
	add(Refusal, "9110 15.2.2", "101 without a protocol", "HTTP/1.1 101 Switching Protocols\r\n\r\n"+poison)
	add(Refusal, "9113 3.1", "101 to h2c", "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n"+poison)
}

// cutOff are connections that end too early.
func cutOff(add adder) {
	for _, s := range []string{"", "HTTP/1.1 2", ok, ok + "Content-Length: 2\r\n", "HTTP/1.1 100 Continue\r\n\r\n", "HTTP/1.1 103 Early Hints\r\n\r\nHTTP"} {
		add(Refusal, "9112 8", fmt.Sprintf("cut after %q", s), s).Close = true
	}
	for _, s := range []string{
		"Content-Length: 10\r\n\r\nok", "Content-Length: 10\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n2\r\nok", "Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n",
		"Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n", "Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX: y\r\n",
	} {
		add(Broken, "9112 8", fmt.Sprintf("cut after %q", s), ok+s).Close = true
	}
}

// Package h3cases has test cases for implementations of HTTP/3: what a peer sends, byte for byte, and how an
// implementation must react. They come from the MUSTs of RFC 9114, 9204, 9218, 9220 and 9297, each with
// its section. The package has its own encoding of frames and fields, and shares nothing with
// package http3 but the QUIC connections below.
package h3cases

import "slices"

// Case is one exchange.
type Case struct {
	Section string // of the RFC
	Name    string
	// Dynamic says that the case uses the dynamic table, which an implementation need not have.
	Dynamic bool
	// Datagrams says that the case sends QUIC datagrams, which an implementation need not have.
	Datagrams bool

	control    string // of the control stream, type included; "" is SETTINGS without parameters
	controlEnd ending
	uni        []uni
	message    string // of the stream of a request; "" is none
	end        ending
	chop       int // bytes of each write of the message, 0 for all at once
	late       uni // is sent some time after the message
	datagram   *string
	want       want
}

// uni is a further unidirectional stream.
type uni struct {
	bytes string
	end   ending
}

// ending is what comes after the bytes of a stream.
type ending uint8

const (
	open ending = iota
	fin
	reset
)

// want is the reaction that the RFC demands.
type want struct {
	conn   []uint64 // the connection is closed with one of these codes
	stream []uint64 // the stream is reset with one of these codes
	status []int    // or the response has one of these
	ok     bool     // a client reports success
}

// Codes of RFC 9114 8.1, RFC 9204 6 and RFC 9297 5.2.
const (
	datagramError        = 0x33
	noError              = 0x100
	generalProtocolError = 0x101
	streamCreationError  = 0x103
	closedCriticalStream = 0x104
	frameUnexpected      = 0x105
	frameError           = 0x106
	excessiveLoad        = 0x107
	idError              = 0x108
	settingsError        = 0x109
	missingSettings      = 0x10a
	requestRejected      = 0x10b
	requestIncomplete    = 0x10d
	messageError         = 0x10e
	decompressionFailed  = 0x200
	encoderStreamError   = 0x201
	decoderStreamError   = 0x202
)

func closes(codes ...uint64) want { return want{conn: codes} }
func answers(codes ...int) want   { return want{status: codes} }

// malformed is a message that must be treated as a stream error; a server may answer 400 before
// (RFC 9114 4.1.2).
var malformed = want{stream: []uint64{messageError}, status: []int{400}}

// add appends a case.
func add(cs []Case, section, name, message string, end ending, w want) []Case {
	return append(cs, Case{Section: section, Name: name, message: message, end: end, want: w})
}

// ServerCases returns the cases in which the implementation is a server.
func ServerCases() []Case {
	good := Case{message: request("GET", "/"), end: fin, want: answers(200)}
	return slices.Concat(requestFrames(), requestFields(), requestTargets(), connects(), shared(good, true), serverControl(good), datagramCases())
}

// ClientCases returns the cases in which the implementation is a client that sends a GET.
func ClientCases() []Case {
	good := Case{message: headers(":status", "200", "content-length", "2") + frame(data, "ok"), end: fin, want: want{ok: true}}
	return slices.Concat(responseFrames(), responseFields(), shared(good, false), clientControl(good))
}

var get = request("GET", "/")

// requestFrames is RFC 9114 4.1, 7 and 9: which frames a request consists of.
func requestFrames() (cs []Case) {
	ok, unexpected := answers(200), closes(frameUnexpected)
	post := request("POST", "/")
	body := frame(data, "hello")
	trailer := headers("x-trailer", "1")
	unknown := frame(grease, "anything")
	cs = add(cs, "9114 4.1", "a request without content", get, fin, ok)
	cs = add(cs, "9114 4.1", "a request with content", post+body, fin, ok)
	cs = add(cs, "9114 4.1", "content in several frames", post+body+body+frame(data, ""), fin, ok)
	cs = add(cs, "9114 4.1", "trailers", post+body+trailer, fin, ok)
	cs = add(cs, "9114 4.1", "trailers without content", post+trailer, fin, ok)
	cs = add(cs, "9114 4.1", "DATA before HEADERS", body+get, fin, unexpected)
	cs = add(cs, "9114 4.1", "empty DATA before HEADERS", frame(data, "")+get, fin, unexpected)
	cs = add(cs, "9114 4.1", "HEADERS after trailers", post+body+trailer+trailer, fin, unexpected)
	cs = add(cs, "9114 4.1", "DATA after trailers", post+trailer+body, fin, unexpected)
	cs = add(cs, "9114 4.1", "no frame at all", "", fin, want{stream: []uint64{requestIncomplete}, status: []int{400}})
	cs = add(cs, "9114 4.1", "unknown frames and no HEADERS", unknown, fin, want{stream: []uint64{requestIncomplete}, status: []int{400}})
	for _, chop := range []int{1, 3} {
		cs = append(cs, Case{Section: "9114 7.1", Name: "frames cut anywhere", message: post + unknown + body + trailer, end: fin, chop: chop, want: ok})
	}
	cs = add(cs, "9114 9", "unknown frame before HEADERS", unknown+get, fin, ok)
	cs = add(cs, "9114 9", "unknown frame after HEADERS", get+unknown, fin, ok)
	cs = add(cs, "9114 9", "unknown frames around content", post+unknown+body+unknown+body+frame(grease, ""), fin, ok)
	cs = add(cs, "9114 9", "unknown frame after trailers", post+body+trailer+unknown, fin, ok)
	cs = add(cs, "9114 9", "unknown frame of 20000 bytes", frame(grease, string(make([]byte, 20000)))+get, fin, ok)
	cs = add(cs, "9114 7.2.3", "CANCEL_PUSH in a request", get+frame(cancelPush, "\x00"), open, unexpected)
	cs = add(cs, "9114 7.2.4", "SETTINGS in a request", get+settings(), open, unexpected)
	cs = add(cs, "9114 7.2.5", "PUSH_PROMISE in a request", get+frame(pushPromise, "\x00"+section(":method", "GET")), open, unexpected)
	cs = add(cs, "9114 7.2.6", "GOAWAY in a request", get+frame(goAway, "\x00"), open, unexpected)
	cs = add(cs, "9114 7.2.7", "MAX_PUSH_ID in a request", get+frame(maxPushID, "\x00"), open, unexpected)
	cs = add(cs, "9114 7.2.4", "SETTINGS before HEADERS", settings()+get, open, unexpected)
	cs = add(cs, "9218 7.2", "PRIORITY_UPDATE in a request", get+frame(priority, "\x00u=1"), open, unexpected)
	cs = slices.Concat(cs, cutFrames("", get), reservedFrames(get))
	return cs
}

// cutFrames is RFC 9114 7.1: a stream that ends within a frame.
func cutFrames(before, message string) (cs []Case) {
	bad := closes(frameError)
	cs = add(cs, "9114 7.1", "the end within a frame's type", before+"\x40", fin, bad)
	cs = add(cs, "9114 7.1", "the end before a frame's length", before+"\x01", fin, bad)
	cs = add(cs, "9114 7.1", "the end within a frame's length", before+"\x01\x40", fin, bad)
	cs = add(cs, "9114 7.1", "the end within HEADERS", before+message[:len(message)-1], fin, bad)
	cs = add(cs, "9114 7.1", "the end within DATA", before+message+"\x00\x05hell", fin, bad)
	cs = add(cs, "9114 7.1", "the end within an unknown frame", before+message+varint(grease)+"\x05hell", fin, bad)
	return cs
}

// reservedFrames is RFC 9114 7.2.8: frames of HTTP/2 on the stream of a request.
func reservedFrames(message string) (cs []Case) {
	for name, kind := range map[string]uint64{"PRIORITY": 0x2, "PING": 0x6, "WINDOW_UPDATE": 0x8, "CONTINUATION": 0x9} {
		cs = add(cs, "9114 7.2.8", name+" of HTTP/2 after HEADERS", message+frame(kind, "\x00\x00\x00\x00"), open, closes(frameUnexpected))
	}
	return cs
}

// badFields are fields that no message may have, by RFC 9114 section.
var badFields = []struct{ section, name, field, value string }{
	{"9114 4.2", "upper case in a name", "X-Upper", "1"},
	{"9114 4.2", "one letter of upper case in a name", "x-uppeR", "1"},
	{"9114 4.2", "an empty name", "", "1"},
	{"9114 4.2", "a space in a name", "x y", "1"},
	{"9114 10.3", "a colon in a name", "x:y", "1"},
	{"9114 10.3", "a control character in a name", "x\x01", "1"},
	{"9114 10.3", "a byte above ASCII in a name", "x\xe9", "1"},
	{"9114 10.3", "NUL in a value", "x", "a\x00b"},
	{"9114 10.3", "CR in a value", "x", "a\rb"},
	{"9114 10.3", "LF in a value", "x", "a\nb"},
	{"9114 10.3", "CR LF and a field in a value", "x", "a\r\nhost: evil"},
	{"9114 4.2", "Connection", "connection", "close"},
	{"9114 4.2", "Connection: keep-alive", "connection", "keep-alive"},
	{"9114 4.2", "Keep-Alive", "keep-alive", "timeout=5"},
	{"9114 4.2", "Proxy-Connection", "proxy-connection", "keep-alive"},
	{"9114 4.2", "Transfer-Encoding", "transfer-encoding", "chunked"},
	{"9114 4.2", "Upgrade", "upgrade", "websocket"},
	{"9114 4.3", "an unknown pseudo-header", ":unknown", "1"},
	{"9114 4.3", "a pseudo-header without a name", ":", "1"},
	{"9114 4.1.2", "Content-Length without a number", "content-length", "five"},
	{"9114 4.1.2", "Content-Length below zero", "content-length", "-5"},
	{"9114 4.1.2", "Content-Length with a sign", "content-length", "+5"},
	{"9114 4.1.2", "an empty Content-Length", "content-length", ""},
	{"9114 4.1.2", "Content-Length beyond 64 bits", "content-length", "99999999999999999999"},
	{"9114 4.1.2", "Content-Length without the content", "content-length", "5"},
}

// requestFields is RFC 9114 4.2 and 4.1.2: fields and the length of the content.
func requestFields() (cs []Case) {
	for _, f := range badFields {
		cs = add(cs, f.section, f.name, request("POST", "/", f.field, f.value), fin, malformed)
	}
	cs = add(cs, "9114 4.2", "TE other than trailers", request("GET", "/", "te", "gzip"), fin, malformed)
	cs = add(cs, "9114 4.2", "TE: trailers", request("GET", "/", "te", "trailers"), fin, answers(200))
	cs = add(cs, "9114 4.2.1", "a cookie in parts", request("GET", "/cookie", "cookie", "a=1", "cookie", "b=2"), fin, answers(200))
	cs = add(cs, "9114 4.1.2", "content as long as Content-Length", request("POST", "/", "content-length", "5")+frame(data, "hello"), fin, answers(200))
	cs = add(cs, "9114 4.1.2", "content longer than Content-Length", request("POST", "/", "content-length", "4")+frame(data, "hello"), fin, malformed)
	cs = add(cs, "9114 4.1.2", "content longer in a second frame", request("POST", "/", "content-length", "5")+frame(data, "hello")+frame(data, "!"), fin, malformed)
	cs = add(cs, "9114 4.1.2", "content shorter than Content-Length", request("POST", "/", "content-length", "6")+frame(data, "hello"), fin, malformed)
	cs = add(cs, "9114 4.1.2", "content shorter before trailers", request("POST", "/", "content-length", "6")+frame(data, "hello")+headers("x", "1"), fin, malformed)
	cs = add(cs, "9114 4.1.2", "two different Content-Length", request("POST", "/", "content-length", "5", "content-length", "6")+frame(data, "hello"), fin, malformed)
	cs = add(cs, "9114 4.1.2", "two different Content-Length, the second right", request("POST", "/", "content-length", "6", "content-length", "5")+frame(data, "hello"), fin, malformed)
	cs = add(cs, "9114 4.1.2", "content longer than Content-Length, without an end", request("POST", "/", "content-length", "4")+frame(data, "hello"), open, malformed)
	cs = add(cs, "9114 4.3", "a pseudo-header in trailers", request("POST", "/")+headers(":path", "/"), fin, malformed)
	cs = add(cs, "9114 4.2", "upper case in trailers", request("POST", "/")+headers("X-Upper", "1"), fin, malformed)
	cs = add(cs, "9114 4.2", "Connection in trailers", request("POST", "/")+headers("connection", "close"), fin, malformed)
	large := want{status: []int{431}, stream: []uint64{excessiveLoad, noError, messageError, requestRejected, frameError}, conn: []uint64{excessiveLoad, frameError}}
	cs = add(cs, "9114 4.2.2", "a field section of 4 MiB", request("GET", "/", "x", string(make([]byte, 4<<20))), open, large)
	return cs
}

// requestTargets is RFC 9114 4.3.1: pseudo-headers of requests.
func requestTargets() (cs []Case) {
	const m, s, a, p = ":method", ":scheme", ":authority", ":path"
	bad := func(name string, fields ...string) {
		cs = add(cs, "9114 4.3.1", name, headers(fields...), fin, malformed)
	}
	good := func(name string, fields ...string) {
		cs = add(cs, "9114 4.3.1", name, headers(fields...), fin, answers(200))
	}
	bad("no :method", s, "https", a, "h", p, "/")
	bad("no :scheme", m, "GET", a, "h", p, "/")
	bad("no :path", m, "GET", s, "https", a, "h")
	bad("no pseudo-headers", "x", "1")
	bad("no fields at all")
	bad("an empty :path", m, "GET", s, "https", a, "h", p, "")
	bad("a :path without a slash", m, "GET", s, "https", a, "h", p, "index.html")
	bad("a space in :path", m, "GET", s, "https", a, "h", p, "/a b")
	bad("a control character in :path", m, "GET", s, "https", a, "h", p, "/a\x01")
	bad("an empty :method", m, "", s, "https", a, "h", p, "/")
	bad("a space in :method", m, "GE T", s, "https", a, "h", p, "/")
	bad("no authority and no Host", m, "GET", s, "https", p, "/")
	bad("an empty :authority", m, "GET", s, "https", a, "", p, "/")
	bad("Host that differs from :authority", m, "GET", s, "https", a, "h", p, "/", "host", "other")
	bad("an empty Host", m, "GET", s, "https", p, "/", "host", "")
	bad("user information in :authority", m, "GET", s, "https", a, "user@h", p, "/")
	good("Host without :authority", m, "GET", s, "https", p, "/", "host", "h")
	good("Host as :authority", m, "GET", s, "https", a, "h", p, "/", "host", "h")
	good("OPTIONS of *", m, "OPTIONS", s, "https", a, "h", p, "*")
	for _, name := range []string{m, s, a, p} {
		value := map[string]string{m: "GET", s: "https", a: "h3.example", p: "/"}[name]
		cs = add(cs, "9114 4.3", name+" twice", headers(name, value, m, "GET", s, "https", a, "h3.example", p, "/"), fin, malformed)
		cs = add(cs, "9114 4.3", name+" after a field", headers(slices.Concat(without(name), []string{"x", "1", name, value})...), fin, malformed)
	}
	cs = add(cs, "9114 4.3", ":status in a request", headers(m, "GET", s, "https", a, "h", p, "/", ":status", "200"), fin, malformed)
	return cs
}

// without returns the pseudo-headers of a request but for one.
func without(name string) (fields []string) {
	for _, f := range [][]string{{":method", "GET"}, {":scheme", "https"}, {":authority", "h3.example"}, {":path", "/"}} {
		if f[0] != name {
			fields = append(fields, f...)
		}
	}
	return fields
}

// connects is RFC 9114 4.4 and RFC 9220.
func connects() (cs []Case) {
	const m, s, a, p, proto = ":method", ":scheme", ":authority", ":path", ":protocol"
	connect := headers(m, "CONNECT", a, "h3.example:443")
	cs = add(cs, "9114 4.4", "CONNECT", connect, open, answers(200))
	cs = add(cs, "9114 4.4", "CONNECT with content", connect+frame(data, "hello"), fin, answers(200))
	cs = add(cs, "9114 4.4", "CONNECT with :scheme", headers(m, "CONNECT", s, "https", a, "h3.example:443"), open, malformed)
	cs = add(cs, "9114 4.4", "CONNECT with :path", headers(m, "CONNECT", a, "h3.example:443", p, "/"), open, malformed)
	cs = add(cs, "9114 4.4", "CONNECT without :authority", headers(m, "CONNECT"), open, malformed)
	cs = add(cs, "9114 4.4", "HEADERS in a tunnel", connect+headers("x", "1"), open, closes(frameUnexpected))
	ext := []string{m, "CONNECT", s, "https", a, "h3.example", p, "/", proto, "test"}
	cs = add(cs, "9220 3", "extended CONNECT", headers(ext...), open, answers(200))
	cs = add(cs, "9220 3", "extended CONNECT without :path", headers(m, "CONNECT", s, "https", a, "h3.example", proto, "test"), open, malformed)
	cs = add(cs, "9220 3", "extended CONNECT without :scheme", headers(m, "CONNECT", a, "h3.example", p, "/", proto, "test"), open, malformed)
	cs = add(cs, "9220 3", "extended CONNECT without :authority", headers(m, "CONNECT", s, "https", p, "/", proto, "test"), open, malformed)
	cs = add(cs, "9220 3", ":protocol twice", headers(append(ext, proto, "test")...), open, malformed)
	cs = add(cs, "9220 3", ":protocol with GET", headers(m, "GET", s, "https", a, "h3.example", p, "/", proto, "test"), open, malformed)
	cs = add(cs, "9220 3", "an empty :protocol", headers(m, "CONNECT", s, "https", a, "h3.example", p, "/", proto, ""), open, malformed)
	return cs
}

// serverControl has cases of control streams that only clients send.
func serverControl(good Case) (cs []Case) {
	control := func(section, name, frames string, w want) {
		c := good
		c.Section, c.Name, c.control, c.want = section, name, controlStream+settings()+frames, w
		cs = append(cs, c)
	}
	ok, bad := answers(200), closes(idError)
	control("9114 7.2.7", "MAX_PUSH_ID", frame(maxPushID, "\x08"), ok)
	control("9114 7.2.7", "MAX_PUSH_ID that grows", frame(maxPushID, "\x08")+frame(maxPushID, "\x08")+frame(maxPushID, "\x09"), ok)
	control("9114 7.2.7", "MAX_PUSH_ID that becomes smaller", frame(maxPushID, "\x08")+frame(maxPushID, "\x07"), bad)
	control("9114 7.1", "MAX_PUSH_ID without an ID", frame(maxPushID, ""), closes(frameError))
	control("9114 7.1", "MAX_PUSH_ID with more than an ID", frame(maxPushID, "\x08\x00"), closes(frameError))
	control("9114 7.2.3", "CANCEL_PUSH of what was not promised", frame(maxPushID, "\x08")+frame(cancelPush, "\x08"), bad)
	control("9114 7.2.6", "GOAWAY with a push", frame(goAway, "\x08"), ok)
	control("9218 7.2", "PRIORITY_UPDATE", frame(priority, "\x00u=1, i"), ok)
	control("9218 7.2", "PRIORITY_UPDATE without parameters", frame(priority, "\x00"), ok)
	control("9218 7.2", "PRIORITY_UPDATE with unknown parameters", frame(priority, "\x00u=9, x=\"a,b\";c=1, i=?0"), ok)
	control("9218 7.2", "PRIORITY_UPDATE of a unidirectional stream", frame(priority, "\x02u=1"), bad)
	control("9218 7.2", "PRIORITY_UPDATE of a server's stream", frame(priority, "\x01u=1"), bad)
	control("9218 7.2", "PRIORITY_UPDATE of a push that was not promised", frame(priorityOfPush, "\x00u=1"), bad)
	control("9114 7.1", "PRIORITY_UPDATE without an ID", frame(priority, ""), closes(frameError))
	c := good
	c.Section, c.Name, c.uni, c.want = "9114 6.2.2", "a push stream", []uni{{pushStreamType + "\x00", open}}, closes(streamCreationError)
	cs = append(cs, c)
	return cs
}

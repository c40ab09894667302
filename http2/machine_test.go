package http2

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/millrace/millrace/http2/hpack"
	"github.com/millrace/millrace/internal/testkit/cut"
	"github.com/millrace/millrace/semantics"
)

func TestRequests(t *testing.T) {
	post := []string{":method: POST", ":scheme: https", ":authority: a", ":path: /p"}
	for _, test := range []struct {
		name string
		in   []byte
		want string
	}{
		{"a request", start(request(1, "x: y")), "1 headers GET a / length=-1 [{x y false}]\n1 end \"\"\n"},
		{
			"content", start(frame(frameHeaders, flagEndHeaders, 1, block(post...)...), frame(frameData, 0, 1, []byte("ab")...), frame(frameData, flagEndStream, 1, []byte("c")...)),
			"1 headers POST a /p length=-1 []\n1 end \"abc\"\n",
		},
		{
			"an empty frame ends it", start(frame(frameHeaders, flagEndHeaders, 1, block(post...)...), frame(frameData, flagEndStream, 1)),
			"1 headers POST a /p length=-1 []\n1 end \"\"\n",
		},
		{
			"padding (RFC 9113 6.1, 6.2)", start(frame(frameHeaders, flagEndHeaders|flagPadded, 1, append(append([]byte{3}, block(post...)...), 0, 0, 0)...),
				frame(frameData, flagPadded, 1, 2, 'a', 0, 0), frame(frameData, flagPadded, 1, 1, 0), frame(frameData, flagPadded|flagEndStream, 1, 0)),
			"1 headers POST a /p length=-1 []\n1 end \"a\"\n",
		},
		{"a priority is ignored", start(frame(frameHeaders, flagEndHeaders|flagEndStream|flagPriority, 1, append([]byte{0, 0, 0, 3, 9}, block(get...)...)...),
			frame(framePriority, 0, 5, 0, 0, 0, 3, 9)), "1 headers GET a / length=-1 []\n1 end \"\"\n"},
		{"a field block in three frames (RFC 9113 6.10)", start(frame(frameHeaders, flagEndStream, 1, block(get[:2]...)...), frame(frameContinuation, 0, 1, block(get[2])...),
			frame(frameContinuation, flagEndHeaders, 1, block(get[3])...)), "1 headers GET a / length=-1 []\n1 end \"\"\n"},
		{
			"trailers (RFC 9113 8.1)", start(frame(frameHeaders, flagEndHeaders, 1, block(post...)...), frame(frameData, 0, 1, 'x'),
				frame(frameHeaders, flagEndHeaders|flagEndStream, 1, block("grpc-status: 0")...)),
			"1 headers POST a /p length=-1 []\n1 trailers [{grpc-status 0 false}]\n1 end \"x\"\n",
		},
		{
			"two at a time", start(frame(frameHeaders, flagEndHeaders, 1, block(post...)...), frame(frameHeaders, flagEndHeaders, 3, block(post...)...),
				frame(frameData, 0, 3, 'b'), frame(frameData, flagEndStream, 1, 'a'), frame(frameData, flagEndStream, 3, 'b')),
			"1 headers POST a /p length=-1 []\n3 headers POST a /p length=-1 []\n1 end \"a\"\n3 end \"bb\"\n",
		},
		{"an unknown frame is ignored (RFC 9113 5.5)", start(frame(0xbe, 0xff, 7, 1, 2, 3), request(1)), "1 headers GET a / length=-1 []\n1 end \"\"\n"},
		{
			"the client resets", start(frame(frameHeaders, flagEndHeaders, 1, block(post...)...), frame(frameReset, 0, 1, 0, 0, 0, 8)),
			"1 headers POST a /p length=-1 []\n1 failed CANCEL <nil>\n",
		},
		{"goaway", start(frame(frameGoAway, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0)), "goaway 5 NO_ERROR\n"},
		{
			"a section above the limit", start(request(1, "x: "+strings.Repeat("v", 200), "y: "+strings.Repeat("w", 200)), request(3)),
			"1 too large\n3 headers GET a / length=-1 []\n3 end \"\"\n",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			machine := server
			if strings.Contains(test.name, "limit") {
				machine = func() *Machine { return NewMachine(RoleServer, Options{MaxFieldSection: 500}) }
			}
			if got := traceAll(t, machine, test.in); got != test.want {
				t.Errorf("got\n%swant\n%s", got, test.want)
			}
		})
	}
}

// What ends one stream, and only that.
func TestStreamErrors(t *testing.T) {
	post := frame(frameHeaders, flagEndHeaders, 1, block(":method: POST", ":scheme: https", ":authority: a", ":path: /p", "content-length: 2")...)
	for _, test := range []struct {
		name string
		in   [][]byte
		code ErrorCode
	}{
		{"more content than Content-Length", [][]byte{post, frame(frameData, 0, 1, 1, 2, 3)}, ProtocolError},
		{"less content than Content-Length", [][]byte{post, frame(frameData, flagEndStream, 1, 1)}, ProtocolError},
		{"no content", [][]byte{frame(frameHeaders, flagEndHeaders|flagEndStream, 1, block(append(get[:4:4], "content-length: 2")...)...)}, ProtocolError},
		{"trailers that do not end", [][]byte{post, frame(frameHeaders, flagEndHeaders, 1, block("a: b")...)}, ProtocolError},
		{"trailers of a request without a length that do not end", [][]byte{
			frame(frameHeaders, flagEndHeaders, 1, block(append([]string{":method: PUT"}, get[1:]...)...)...),
			frame(frameHeaders, flagEndHeaders, 1, block("a: b")...),
		}, ProtocolError},
		{"a pseudo-header in trailers", [][]byte{post, frame(frameData, 0, 1, 1, 2), frame(frameHeaders, flagEndHeaders|flagEndStream, 1, block(":path: b")...)}, ProtocolError},
		{"content after the end", [][]byte{request(1), frame(frameData, 0, 1, 1)}, StreamClosed},
		{"a header after the end", [][]byte{request(1), request(1)}, StreamClosed},
		{"a window that is too large", [][]byte{post, frame(frameWindowUpdate, 0, 1, 0x7f, 0xff, 0xff, 0xff)}, FlowControlError},
		{"a window update of 0", [][]byte{post, frame(frameWindowUpdate, 0, 1, 0, 0, 0, 0)}, ProtocolError},
		{"a connection field", [][]byte{request(1, "connection: close")}, ProtocolError},
		{"transfer-encoding", [][]byte{request(1, "transfer-encoding: chunked")}, ProtocolError},
		{"upper case", [][]byte{request(1, "X: y")}, ProtocolError},
		{"a line end in a value", [][]byte{request(1, "x: y\r\nz: w")}, ProtocolError},
		{"a line end in a name", [][]byte{request(1, "x\r\nz: w")}, ProtocolError},
		{"a space in :path", [][]byte{frame(frameHeaders, flagEndHeaders|flagEndStream, 1, block(":method: GET", ":scheme: https", ":authority: a", ":path: / HTTP/1.1")...)}, ProtocolError},
		{":authority against Host", [][]byte{request(1, "host: b")}, ProtocolError},
		{"a stream that depends on itself", [][]byte{frame(frameHeaders, flagEndHeaders|flagPriority, 1, append([]byte{0, 0, 0, 1, 9}, block(get...)...)...)}, ProtocolError},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := server()
			got := trace(m, start(append(test.in, request(3))...), cut.Whole)
			if !strings.HasSuffix(got, "3 headers GET a / length=-1 []\n3 end \"\"\n") {
				t.Errorf("the next stream does not pass:\n%s", got)
			}
			control := m.AppendControl(nil)
			if !bytes.Contains(control, frame(frameReset, 0, 1, 0, 0, 0, byte(test.code))) {
				t.Errorf("no RST_STREAM with %s in % x", test.code, control)
			}
			traceAll(t, server, start(append(test.in, request(3))...))
		})
	}
}

// What ends the connection.
func TestConnectionErrors(t *testing.T) {
	post := frame(frameHeaders, flagEndHeaders, 1, block(":method: POST", ":scheme: https", ":authority: a", ":path: /p")...)
	large := bytes.Repeat([]byte{0}, minFrame+1)
	for _, test := range []struct {
		name string
		in   []byte
		code ErrorCode
	}{
		{"another preface", []byte("GET / HTTP/1.1\r\nHost: a\r\n\r\n"), ProtocolError},
		{"no SETTINGS first", append([]byte(Preface), request(1)...), ProtocolError},
		{"an acknowledgment first", append([]byte(Preface), frame(frameSettings, flagAck, 0)...), ProtocolError},
		{"a frame above the limit", start(post, frame(frameData, 0, 1, large...)), FrameSizeError},
		{"a frame within a field block", start(frame(frameHeaders, 0, 1, block(get...)...), frame(framePing, 0, 0, make([]byte, 8)...)), ProtocolError},
		{"CONTINUATION of another stream", start(frame(frameHeaders, 0, 1, block(get...)...), frame(frameContinuation, flagEndHeaders, 3)), ProtocolError},
		{"CONTINUATION alone", start(frame(frameContinuation, flagEndHeaders, 1, block(get...)...)), ProtocolError},
		{"DATA on stream 0", start(frame(frameData, 0, 0, 1)), ProtocolError},
		{"HEADERS on stream 0", start(frame(frameHeaders, flagEndHeaders, 0, block(get...)...)), ProtocolError},
		{"SETTINGS on a stream", start(frame(frameSettings, 0, 1)), ProtocolError},
		{"PING on a stream", start(frame(framePing, 0, 1, make([]byte, 8)...)), ProtocolError},
		{"PING of 7 bytes", start(frame(framePing, 0, 0, make([]byte, 7)...)), FrameSizeError},
		{"SETTINGS of 5 bytes", start(frame(frameSettings, 0, 0, make([]byte, 5)...)), FrameSizeError},
		{"an acknowledgment with settings", start(frame(frameSettings, flagAck, 0, make([]byte, 6)...)), FrameSizeError},
		{"a window above 2^31-1", start(frame(frameSettings, 0, 0, 0, settingWindow, 0x80, 0, 0, 0)), FlowControlError},
		{"frames below 16384", start(frame(frameSettings, 0, 0, 0, settingMaxFrame, 0, 0, 0x3f, 0xff)), ProtocolError},
		{"push of 2", start(frame(frameSettings, 0, 0, 0, settingPush, 0, 0, 0, 2)), ProtocolError},
		{"windows that settings make too large", start(post, frame(frameWindowUpdate, 0, 1, 0x7f, 0xff, 0, 0), frame(frameSettings, 0, 0, 0, settingWindow, 0x7f, 0xff, 0xff, 0xff)), FlowControlError},
		{"an even stream of a client", start(request(2)), ProtocolError},
		{"a smaller stream", start(request(5), request(3)), StreamClosed},
		{"DATA on an idle stream", start(frame(frameData, 0, 1, 1)), ProtocolError},
		{"RST_STREAM on an idle stream", start(frame(frameReset, 0, 1, 0, 0, 0, 8)), ProtocolError},
		{"RST_STREAM of 3 bytes", start(post, frame(frameReset, 0, 1, 0, 0, 0)), FrameSizeError},
		{"WINDOW_UPDATE on an idle stream", start(frame(frameWindowUpdate, 0, 1, 0, 0, 0, 1)), ProtocolError},
		{"WINDOW_UPDATE of 0", start(frame(frameWindowUpdate, 0, 0, 0, 0, 0, 0)), ProtocolError},
		{"a window of the connection that is too large", start(frame(frameWindowUpdate, 0, 0, 0x7f, 0xff, 0xff, 0xff)), FlowControlError},
		{"PUSH_PROMISE", start(frame(framePushPromise, flagEndHeaders, 1, 0, 0, 0, 2)), ProtocolError},
		{"GOAWAY of 7 bytes", start(frame(frameGoAway, 0, 0, make([]byte, 7)...)), FrameSizeError},
		{"padding beyond the frame", start(post, frame(frameData, flagPadded, 1, 2, 0)), ProtocolError},
		{"padding without its length", start(post, frame(frameData, flagPadded, 1)), ProtocolError},
		{"padding of HEADERS", start(frame(frameHeaders, flagEndHeaders|flagPadded, 1, 2, 0)), ProtocolError},
		{"a field block that is damaged", start(frame(frameHeaders, flagEndHeaders, 1, 0xff)), CompressionError},
		{"a field block of a stream that is reset", start(request(1, "X: y"), frame(frameHeaders, flagEndHeaders, 1, 0xff)), CompressionError},
		{"a header of a stream that has ended", start(frame(frameHeaders, flagEndHeaders, 1, block(get...)...), frame(frameReset, 0, 1, 0, 0, 0, 8), request(1)), StreamClosed},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := traceAll(t, server, test.in); !strings.Contains(got, "connection error "+test.code.String()+": ") {
				t.Errorf("got %s, want %s", got, test.code)
			}
			m := server()
			trace(m, test.in, cut.Whole)
			control := m.AppendControl(nil)
			if last := control[len(control)-17:]; last[3] != frameGoAway || last[16] != byte(test.code) {
				t.Errorf("the last frame is % x", last)
			}
		})
	}
}

// The attacks of RFC 9113 10.5, and those that have names: each is met by a bound, and harms its connection only.
func TestAttacks(t *testing.T) {
	forever := func(first []byte, frames func(i int) []byte) func(t *testing.T) (frames int, sent int, m *Machine) {
		return func(t *testing.T) (int, int, *Machine) {
			m := server()
			if got := trace(m, start(first), cut.Whole); strings.Contains(got, "error") {
				t.Fatal(got)
			}
			sent := 0
			for i := range 1 << 20 {
				f := frames(i)
				sent += len(f)
				if strings.Contains(trace(m, f, cut.Whole), "connection error ENHANCE_YOUR_CALM") {
					return i, sent, m
				}
				if i%3 == 0 && !bytes.Equal(f, frame(framePing, 0, 0, make([]byte, 8)...)) {
					m.AppendControl(nil)
				}
			}
			return 1 << 20, sent, m
		}
	}
	open := frame(frameHeaders, 0, 1, block(get...)...)
	post := frame(frameHeaders, flagEndHeaders, 1, block(":method: POST", ":scheme: https", ":authority: a", ":path: /p")...)
	for _, test := range []struct {
		name   string
		attack func(t *testing.T) (int, int, *Machine)
		most   int // frames
	}{
		{"rapid reset", forever(nil, func(i int) []byte {
			id := uint32(2*i + 1)
			return append(request(id), frame(frameReset, 0, id, 0, 0, 0, 8)...)
		}), DefaultMaxResets + 1},
		{"CONTINUATION without end", forever(open, func(int) []byte { return frame(frameContinuation, 0, 1, block("a: b")...) }), DefaultMaxIdleFrames + 20},
		{"large CONTINUATION without end", forever(open, func(int) []byte { return frame(frameContinuation, 0, 1, make([]byte, minFrame)...) }), 6},
		{"empty CONTINUATION", forever(open, func(int) []byte { return frame(frameContinuation, 0, 1) }), DefaultMaxIdleFrames + 20},
		{"SETTINGS", forever(nil, func(int) []byte { return frame(frameSettings, 0, 0) }), DefaultMaxIdleFrames + 20},
		{"PING whose answers are not read", forever(nil, func(int) []byte { return frame(framePing, 0, 0, make([]byte, 8)...) }), maxUnread/17 + 20},
		{"empty DATA", forever(post, func(int) []byte { return frame(frameData, 0, 1) }), DefaultMaxIdleFrames + 20},
		{"DATA that is padding only", forever(post, func(int) []byte { return frame(frameData, flagPadded, 1, 1, 0) }), DefaultMaxIdleFrames + 20},
		{"PRIORITY", forever(nil, func(int) []byte { return frame(framePriority, 0, 9, 0, 0, 0, 3, 1) }), DefaultMaxIdleFrames + 20},
		{"WINDOW_UPDATE of 1", forever(nil, func(int) []byte { return frame(frameWindowUpdate, 0, 0, 0, 0, 0, 1) }), DefaultMaxIdleFrames + 20},
		{"malformed requests", forever(nil, func(i int) []byte { return request(uint32(2*i+1), "connection: x") }), DefaultMaxIdleFrames + 20},
		{"unknown frames", forever(nil, func(int) []byte { return frame(99, 0, 0, 1) }), DefaultMaxIdleFrames + 20},
	} {
		t.Run(test.name, func(t *testing.T) {
			frames, sent, m := test.attack(t)
			if frames > test.most {
				t.Errorf("%d frames pass, %d bytes", frames, sent)
			}
			if kept := cap(m.block) + cap(m.control) + cap(m.buf) + len(m.streams)*1024; kept > 512<<10 {
				t.Errorf("%d bytes are kept", kept)
			}
		})
	}
}

// A block that refers to one large entry again and again decodes to much more than it has (HPACK bomb).
func TestHPACKBomb(t *testing.T) {
	big := strings.Repeat("v", 4000)
	b := hpack.AppendString(hpack.AppendString(append(block(get...), 0x40), "x"), big)
	b = append(b, bytes.Repeat([]byte{0xbe}, 10000)...)
	if got := traceAll(t, server, start(frame(frameHeaders, flagEndHeaders|flagEndStream, 1, b...), request(3))); got != "1 too large\n3 headers GET a / length=-1 []\n3 end \"\"\n" {
		t.Errorf("got %.500s", got)
	}
}

// Streams beyond the limit are refused, and can be sent again (RFC 9113 5.1.2, 8.7).
func TestMaxStreams(t *testing.T) {
	m := NewMachine(RoleServer, Options{MaxStreams: 2})
	got := trace(m, start(request(1), request(3), request(5), request(7)), cut.Whole)
	if strings.Count(got, "headers") != 2 || m.Streams() != 2 {
		t.Errorf("got\n%s", got)
	}
	control := m.AppendControl(nil)
	for _, id := range []byte{5, 7} {
		if !bytes.Contains(control, frame(frameReset, 0, uint32(id), 0, 0, 0, byte(RefusedStream))) {
			t.Errorf("stream %d is not refused: % x", id, control)
		}
	}
	for _, s := range m.streams {
		must(t)(m.AppendResponse(nil, s, &semantics.Message{Status: 200, ContentLength: -1}, true))
	}
	if got := trace(m, request(9), cut.Whole); !strings.Contains(got, "9 headers") {
		t.Errorf("after two have ended: %s", got)
	}
}

func TestGoAwayOfAServer(t *testing.T) {
	m := server()
	trace(m, start(request(1)), cut.Whole)
	m.Shutdown()
	if got := trace(m, request(3), cut.Whole); !strings.Contains(got, "3 headers") {
		t.Errorf("after Shutdown: %s", got)
	}
	m.AppendControl(nil)
	m.GoAway(NoError)
	if got := m.AppendControl(nil); !bytes.Equal(got, frame(frameGoAway, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0)) {
		t.Errorf("% x", got)
	}
	if got := trace(m, append(request(5), frame(framePing, flagAck, 0, make([]byte, 8)...)...), cut.Whole); got != "pong 0000000000000000\n" {
		t.Errorf("after GoAway: %s", got)
	}
	if m.Streams() != 2 {
		t.Errorf("%d streams are open", m.Streams())
	}
}

// Content goes out by the windows of stream and connection, and in frames of the peer's size (RFC 9113 6.9).
func TestWindows(t *testing.T) {
	m := server()
	set := frame(frameSettings, 0, 0, 0, settingWindow, 0, 0, 0, 10)
	trace(m, append(append([]byte(Preface), set...), request(1)...), cut.Whole)
	s := m.streams[1]
	must(t)(m.AppendResponse(nil, s, &semantics.Message{Status: 200, ContentLength: 30}, false))
	send := func(p string, end bool, want string) {
		t.Helper()
		out, n, err := m.AppendData(nil, s, []byte(p), end)
		if string(out) != want || err != nil {
			t.Errorf("%q: %q, %d bytes, %v; want %q", p, out, n, err, want)
		}
	}
	send("0123456789abcdef", false, string(frame(frameData, 0, 1, []byte("0123456789")...)))
	send("abcdef", false, "")
	trace(m, frame(frameWindowUpdate, 0, 1, 0, 0, 0, 4), cut.Whole)
	send("abcdef", true, string(frame(frameData, 0, 1, []byte("abcd")...)))
	trace(m, frame(frameSettings, 0, 0, 0, settingWindow, 0, 0, 0, 7), cut.Whole) // 3 less: the window is negative
	if w := m.Window(s); w != 0 || s.sendWindow != -3 {
		t.Errorf("window %d, %d", w, s.sendWindow)
	}
	trace(m, frame(frameWindowUpdate, 0, 1, 0, 0, 0, 5), cut.Whole)
	send("ef", true, string(frame(frameData, flagEndStream, 1, []byte("ef")...)))
	if !s.gone || m.Streams() != 0 {
		t.Error("the stream is open")
	}
	if _, _, err := m.AppendData(nil, s, []byte("x"), true); !errors.Is(err, ErrStreamEnded) {
		t.Errorf("after the end: %v", err)
	}
	m.sendWindow = 3
	trace(m, request(3), cut.Whole)
	if out, n, _ := m.AppendData(nil, m.streams[3], []byte("abcd"), true); n != 3 || len(out) != 12 {
		t.Errorf("%d bytes beyond the window of the connection", n)
	}
}

// What arrives must fit the windows, which grow as content is consumed.
func TestReceiveWindows(t *testing.T) {
	post := frame(frameHeaders, flagEndHeaders, 1, block(":method: POST", ":scheme: https", ":authority: a", ":path: /p")...)
	m := NewMachine(RoleServer, Options{Window: 1 << 16, ConnWindow: 1 << 17})
	trace(m, start(post), cut.Whole)
	m.AppendControl(nil)
	s := m.streams[1]
	data := frame(frameData, 0, 1, make([]byte, minFrame)...)
	feed := func() (ev Event, err error) {
		for in := data; ; {
			e, n, err := m.Input(in)
			if in = in[n:]; err != nil || e.Kind == NeedInput {
				return ev, err
			}
			ev = e
		}
	}
	for range 4 {
		if ev, err := feed(); err != nil || ev.Kind != Data {
			t.Fatal(ev, err)
		}
	}
	if m.Pending() {
		t.Error("a window grows without Consumed")
	}
	m.Consumed(s, 1<<15)
	if got, want := m.AppendControl(nil), frame(frameWindowUpdate, 0, 1, 0, 0, 0x80, 0); !bytes.Equal(got, want) {
		t.Errorf("% x, want % x", got, want)
	}
	for range 2 {
		feed()
	}
	if ev, err := feed(); err != nil || ev.Kind != Failed || ev.Code != FlowControlError {
		t.Errorf("beyond the window: %+v %v", ev, err)
	}
	before := m.recvWindow + m.credit
	m.Release(s)
	if after := m.recvWindow + m.credit; after-before != 4*minFrame {
		t.Errorf("%d bytes go back to the connection's window", after-before)
	}
}

// The window of the connection bounds all streams together, and content of streams that are reset goes back to it at once.
func TestWindowOfTheConnection(t *testing.T) {
	post := func(id uint32) []byte {
		return frame(frameHeaders, flagEndHeaders, id, block(":method: POST", ":scheme: https", ":authority: a", ":path: /p")...)
	}
	data := func(id uint32) []byte { return frame(frameData, 0, id, make([]byte, minFrame)...) }
	unread := func(m *Machine, in []byte) error { // without Consumed
		for {
			ev, n, err := m.Input(in)
			if in = in[n:]; err != nil || ev.Kind == NeedInput {
				return err
			}
		}
	}
	m := NewMachine(RoleServer, Options{ConnWindow: 1 << 16})
	if err := unread(m, start(post(1), post(3), data(1), data(3), data(1), data(3))); err != nil {
		t.Fatal(err)
	}
	var ce *ConnError
	if err := unread(m, frame(frameData, 0, 1, 1)); !errors.As(err, &ce) || ce.Code != FlowControlError {
		t.Errorf("beyond the window: %v", err)
	}
	m = NewMachine(RoleServer, Options{ConnWindow: 1 << 16})
	trace(m, start(post(1)), cut.Whole)
	m.Reset(m.streams[1], Cancel)
	for range 100 {
		if err := unread(m, data(1)); err != nil {
			t.Fatalf("content of a stream that is reset: %v", err)
		}
	}
	if m.recvWindow+m.credit != 1<<16 {
		t.Errorf("%d of the window are left", m.recvWindow+m.credit)
	}
}

// A field block that is larger than a frame goes out in several (RFC 9113 6.10).
func TestLargeFieldBlocks(t *testing.T) {
	c := NewMachine(RoleClient, Options{})
	stream, _ := c.Open()
	msg := &semantics.Message{
		Method: "GET", Scheme: "https", Authority: "a", Path: "/", ContentLength: -1,
		Fields: []semantics.Field{{Name: "x", Value: strings.Repeat("\xff", 20000)}},
	}
	out := c.AppendControl(nil)
	out = must(t)(c.AppendRequest(out, stream, msg, true))
	if got := trace(server(), out, cut.Whole); !strings.Contains(got, "1 headers GET a / length=-1 [{x ") || !strings.HasSuffix(got, "1 end \"\"\n") {
		t.Errorf("got %.200s", got)
	}
}

func TestClient(t *testing.T) {
	m := NewMachine(RoleClient, Options{})
	first := m.AppendControl(nil)
	if !bytes.HasPrefix(first, append([]byte(Preface), 0, 0)) {
		t.Errorf("begins with %q", first)
	}
	s, err := m.Open()
	if err != nil {
		t.Fatal(err)
	}
	out := must(t)(m.AppendRequest(nil, s, &semantics.Message{Method: "HEAD", Scheme: "https", Authority: "a", Path: "/", ContentLength: -1}, true))
	if got := trace(server(), append(first, out...), cut.Whole); got != "0 window\n1 headers HEAD a / length=-1 []\n1 end \"\"\n" {
		t.Errorf("a server reads %s", got)
	}
	in := frame(frameSettings, 0, 0)
	in = append(in, frame(frameHeaders, flagEndHeaders, 1, block(":status: 103", "link: </a>")...)...)
	in = append(in, frame(frameHeaders, flagEndHeaders|flagEndStream, 1, block(":status: 200", "content-length: 7")...)...)
	if got := trace(m, in, cut.Whole); got != "1 headers 103   length=-1 [{link </a> false}]\n1 headers 200   length=7 [{content-length 7 false}]\n1 end \"\"\n" {
		t.Errorf("got\n%s", got)
	}
	m.Release(s)
	for i, test := range []struct{ frames, want string }{
		{string(frame(frameData, 0, 3, 1)), "3 failed PROTOCOL_ERROR"},
		{string(frame(frameHeaders, flagEndHeaders|flagEndStream, 5, block(":status: 100")...)), "5 failed PROTOCOL_ERROR"},
		{string(frame(frameHeaders, flagEndHeaders, 7, block(":status: 101")...)), "7 failed PROTOCOL_ERROR"},
		{string(frame(frameReset, 0, 9, 0, 0, 0, byte(RefusedStream))), "9 failed REFUSED_STREAM"},
	} {
		s, err := m.Open()
		if err != nil || s.ID() != uint32(2*i+3) {
			t.Fatal(s, err)
		}
		must(t)(m.AppendRequest(nil, s, &semantics.Message{Method: "GET", Scheme: "https", Authority: "a", Path: "/", ContentLength: -1}, true))
		if got := trace(m, []byte(test.frames), cut.Whole); !strings.HasPrefix(got, test.want) {
			t.Errorf("got %s, want %s", got, test.want)
		}
	}
	trace(m, frame(frameSettings, 0, 0, 0, settingMaxStreams, 0, 0, 0, 1), cut.Whole)
	if _, err := m.Open(); err != nil {
		t.Error(err)
	}
	if _, err := m.Open(); !errors.Is(err, ErrTooManyStreams) {
		t.Errorf("a second stream of one: %v", err)
	}
	if got := trace(m, frame(frameGoAway, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0), cut.Whole); got != "goaway 9 NO_ERROR\n" {
		t.Error(got)
	}
	if _, err := m.Open(); !errors.Is(err, ErrGoingAway) {
		t.Errorf("after GOAWAY: %v", err)
	}
	if got := trace(m, request(2), cut.Whole); !strings.Contains(got, "connection error") {
		t.Errorf("a stream of the server: %s", got)
	}
}

// Streams are used again, and nothing is allocated for a request, its response and their content.
func TestNothingIsAllocated(t *testing.T) {
	c, s := NewMachine(RoleClient, Options{}), server()
	msg := &semantics.Message{
		Method: "POST", Scheme: "https", Authority: "shop.example.org", Path: "/path?query", ContentLength: 7,
		Fields: []semantics.Field{{Name: "user-agent", Value: "test/1.0"}, {Name: "x-custom", Value: "value"}},
	}
	answer := &semantics.Message{Status: 200, ContentLength: -1, Fields: msg.Fields}
	var buf []byte
	pass := func(from, to *Machine, handle func(ev Event)) {
		buf = append(from.AppendControl(buf[:0]), buf[len(buf):]...)
		for in := buf; ; {
			ev, n, err := to.Input(in)
			if err != nil {
				t.Fatal(err)
			}
			if in = in[n:]; ev.Kind == NeedInput {
				return
			}
			handle(ev)
		}
	}
	var out []byte
	serve := func(ev Event) {
		switch ev.Kind {
		case Data:
			s.Consumed(ev.Stream, len(ev.Payload))
		case End:
			out, _ = s.AppendResponse(out[:0], ev.Stream, answer, false)
			out, _, _ = s.AppendData(out, ev.Stream, []byte("content"), true)
			s.Release(ev.Stream)
		}
	}
	receive := func(ev Event) {
		switch ev.Kind {
		case Data:
			c.Consumed(ev.Stream, len(ev.Payload))
		case End:
			c.Release(ev.Stream)
		}
	}
	feed := func(to *Machine, p []byte, handle func(ev Event)) {
		for {
			ev, n, err := to.Input(p)
			if err != nil {
				t.Fatal(err)
			}
			if p = p[n:]; ev.Kind == NeedInput {
				return
			}
			handle(ev)
		}
	}
	req := []byte(nil)
	exchange := func() {
		pass(c, s, serve)
		pass(s, c, receive)
		stream, err := c.Open()
		if err != nil {
			t.Fatal(err)
		}
		req, _ = c.AppendRequest(req[:0], stream, msg, false)
		req, _, _ = c.AppendData(req, stream, []byte("content"), true)
		feed(s, req, serve)
		feed(c, out, receive)
	}
	for range 10 {
		exchange()
	}
	if allocs := testing.AllocsPerRun(1000, exchange); allocs > 0 {
		t.Errorf("%v allocations for a request", allocs)
	}
	if c.Streams() != 0 || s.Streams() != 0 {
		t.Errorf("%d and %d streams are open", c.Streams(), s.Streams())
	}
}

// A stream that was opened for a request that is not sent is unknown to the peer.
func TestReleaseBeforeRequest(t *testing.T) {
	m := NewMachine(RoleClient, Options{})
	m.AppendControl(nil)
	s, err := m.Open()
	if err != nil {
		t.Fatal(err)
	}
	m.Release(s)
	if out := m.AppendControl(nil); len(out) > 0 {
		t.Errorf("sent %x", out)
	}
	if s, err = m.Open(); err != nil || s.ID() != 3 {
		t.Errorf("stream %d, %v", s.ID(), err)
	}
}

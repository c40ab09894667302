package http2

import (
	"bytes"
	"testing"

	"github.com/millrace/millrace/internal/testkit/cut"
	"github.com/millrace/millrace/semantics"
)

// FuzzServer feeds a server at different cuts: it reports the same, whatever the cuts, and its memory is bounded.
func FuzzServer(f *testing.F) {
	f.Add(start(request(1)), uint64(1))
	f.Add(start(frame(frameHeaders, flagEndHeaders|flagPadded, 1, append(append([]byte{3}, block(get...)...), 0, 0, 0)...), frame(frameData, flagPadded|flagEndStream, 1, 2, 'a', 0, 0)), uint64(2))
	f.Add(start(frame(frameHeaders, flagEndStream, 1, block(get[:2]...)...), frame(frameContinuation, flagEndHeaders, 1, block(get[2:]...)...)), uint64(3))
	f.Add(start(frame(frameSettings, 0, 0, 0, settingWindow, 0, 0, 0, 9), request(1), frame(frameWindowUpdate, 0, 1, 0, 0, 0, 1), frame(frameReset, 0, 1, 0, 0, 0, 8)), uint64(4))
	f.Fuzz(func(t *testing.T, in []byte, seed uint64) {
		m := server()
		want := trace(m, in, cut.Whole)
		if got := trace(server(), in, cut.Random(seed)); got != want {
			t.Fatalf("whole:\n%s\ncut at random:\n%s", want, got)
		}
		if len(m.streams) > DefaultMaxStreams || m.err == nil && cap(m.block) > DefaultFieldSection+2*minFrame {
			t.Fatalf("%d streams, %d bytes of a block", len(m.streams), cap(m.block))
		}
	})
}

// FuzzClient does the same with a client that has three requests under way.
func FuzzClient(f *testing.F) {
	f.Add(append(frame(frameSettings, 0, 0), frame(frameHeaders, flagEndHeaders|flagEndStream, 1, block(":status: 200")...)...), uint64(1))
	f.Add(append(frame(frameSettings, 0, 0), frame(frameGoAway, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0)...), uint64(2))
	f.Fuzz(func(t *testing.T, in []byte, seed uint64) {
		client := func() *Machine {
			m := NewMachine(RoleClient, Options{})
			for range 3 {
				s, err := m.Open()
				if err != nil {
					t.Fatal(err)
				}
				m.AppendRequest(nil, s, &semantics.Message{Method: "GET", Scheme: "https", Authority: "a", Path: "/", ContentLength: -1}, true) //nolint:errcheck // it is new
			}
			return m
		}
		want := trace(client(), in, cut.Whole)
		if got := trace(client(), in, cut.Random(seed)); got != want {
			t.Fatalf("whole:\n%s\ncut at random:\n%s", want, got)
		}
	})
}

// FuzzCalls calls a server's methods in any order, between input in any pieces. Nothing panics, the windows add up, and what it
// sends a client understands.
func FuzzCalls(f *testing.F) {
	f.Add(start(request(1), request(3)), []byte{0, 0x10, 1, 2, 3, 4, 5, 6, 7, 8})
	f.Fuzz(func(t *testing.T, in, calls []byte) {
		m := server()
		var known []*Stream
		var out []byte
		for _, c := range calls {
			if c&7 == 0 {
				n := min(int(c>>3)*8, len(in))
				for p := in[:n]; ; {
					ev, used, err := m.Input(p)
					p = p[used:]
					if err != nil || ev.Kind == NeedInput {
						in = in[n-len(p):]
						break
					}
					if ev.Kind == Headers {
						known = append(known, ev.Stream)
					}
				}
				continue
			}
			if len(known) == 0 {
				continue
			}
			at := int(c>>3) % len(known)
			s := known[at]
			switch c & 7 {
			case 1:
				out, _ = m.AppendResponse(out, s, &semantics.Message{Status: 200, ContentLength: -1}, c&8 != 0)
			case 2:
				out, _, _ = m.AppendData(out, s, make([]byte, int(c)*100), c&16 != 0)
			case 3:
				out, _ = m.AppendTrailers(out, s, []semantics.Field{{Name: "a", Value: "b"}})
			case 4:
				m.Consumed(s, int(min(s.outstanding, int64(c))))
			case 5:
				m.Reset(s, Cancel)
			case 6:
				m.Release(s)
				known = append(known[:at], known[at+1:]...)
			case 7:
				m.GoAway(NoError)
			}
			out = m.AppendControl(out)
		}
		outstanding := int64(0)
		for _, s := range known {
			outstanding += s.outstanding
		}
		if m.err == nil && m.state == atHeader && m.recvWindow+m.credit+outstanding != int64(m.options.ConnWindow) {
			t.Fatalf("window %d, %d to be credited, %d outstanding", m.recvWindow, m.credit, outstanding)
		}
		if bytes.Count(out, []byte{frameGoAway}) == 0 && len(out) > 1<<24 {
			t.Fatal("too much")
		}
	})
}

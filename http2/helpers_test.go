package http2

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/millrace/millrace/http2/hpack"
	"github.com/millrace/millrace/internal/testkit/cut"
	"github.com/millrace/millrace/semantics"
)

// block returns a field block of lines "name: value".
func block(lines ...string) (b []byte) {
	for _, l := range lines {
		i := strings.Index(l[1:], ": ") + 1
		b = hpack.AppendField(b, &semantics.Field{Name: l[:i], Value: l[i+2:]})
	}
	return b
}

var get = []string{":method: GET", ":scheme: https", ":authority: a", ":path: /"}

// frame returns a frame.
func frame(kind, flags uint8, stream uint32, payload ...byte) []byte {
	return append(appendHeader(nil, len(payload), kind, flags, stream), payload...)
}

// request returns the HEADERS frame of a request that has ended.
func request(stream uint32, more ...string) []byte {
	return frame(frameHeaders, flagEndHeaders|flagEndStream, stream, block(append(get[:4:4], more...)...)...)
}

// start is what a client sends first.
func start(frames ...[]byte) []byte {
	b := append([]byte(Preface), frame(frameSettings, 0, 0)...)
	for _, f := range frames {
		b = append(b, f...)
	}
	return b
}

// trace feeds a machine in pieces and returns what it reports, a line each; content is joined. All streams are read, and none
// answered.
func trace(m *Machine, in []byte, size cut.Size) string {
	var out strings.Builder
	content := map[uint32]string{}
	cut.Feed(in, size, func(rest []byte, _ bool) ([]byte, bool) {
		for {
			ev, used, err := m.Input(rest)
			rest = rest[used:]
			if err != nil {
				out.WriteString(describeError(err))
				return nil, false
			}
			if ev.Kind == NeedInput {
				return rest, true
			}
			report(&out, m, ev, content)
		}
	})
	return out.String()
}

func describeError(err error) string {
	var ce *ConnError
	if !errors.As(err, &ce) {
		return "foreign error " + err.Error()
	}
	return fmt.Sprintf("connection error %s: %s\n", ce.Code, ce.Text)
}

// report writes an event.
func report(out *strings.Builder, m *Machine, ev Event, content map[uint32]string) {
	id := uint32(0)
	if ev.Stream != nil {
		id = ev.Stream.ID()
	}
	switch ev.Kind {
	case Headers:
		msg := &ev.Stream.Message
		fmt.Fprintf(out, "%d headers %s%s %s %s%s length=%d %v\n", id, msg.Method, status(msg), msg.Authority, msg.Path, msg.Protocol, msg.ContentLength, msg.Fields)
	case TooLarge:
		fmt.Fprintf(out, "%d too large\n", id)
	case Data:
		content[id] += string(ev.Payload)
		m.Consumed(ev.Stream, len(ev.Payload))
	case Trailers:
		fmt.Fprintf(out, "%d trailers %v\n", id, ev.Stream.Trailers)
	case End:
		fmt.Fprintf(out, "%d end %q\n", id, content[id])
	case Failed:
		fmt.Fprintf(out, "%d failed %s %v\n", id, ev.Code, ev.Err)
		m.Release(ev.Stream)
	case GoAway:
		fmt.Fprintf(out, "goaway %d %s\n", ev.Last, ev.Code)
	case Pong:
		fmt.Fprintf(out, "pong %x\n", ev.Payload)
	case Window:
		fmt.Fprintf(out, "%d window\n", id)
	}
}

func status(m *semantics.Message) string {
	if m.Status == 0 {
		return ""
	}
	return fmt.Sprint(m.Status)
}

// traceAll feeds input whole, byte by byte and at random cuts; all must report the same.
func traceAll(t testing.TB, machine func() *Machine, in []byte) string {
	t.Helper()
	want := trace(machine(), in, cut.Whole)
	if got := trace(machine(), in, cut.Bytewise); len(in) < 1<<16 && got != want {
		t.Fatalf("whole:\n%.3000s\nbyte by byte:\n%.3000s", want, got)
	}
	for seed := range uint64(4) {
		if got := trace(machine(), in, cut.Random(seed)); got != want {
			t.Fatalf("whole:\n%.3000s\ncut at random:\n%.3000s", want, got)
		}
	}
	return want
}

func server() *Machine { return NewMachine(RoleServer, Options{}) }

// must returns the bytes of an Append method that does not fail.
func must(t testing.TB) func(b []byte, err error) []byte {
	return func(b []byte, err error) []byte {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
}

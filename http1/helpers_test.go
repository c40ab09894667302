package http1

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/testkit/cut"
	"github.com/millrace/millrace/semantics"
)

// trace feeds a machine in pieces and returns what it reports: one line for each header, content (joined), trailers, end and
// error.
func trace(m *Machine, in string, fin bool, size cut.Size) string {
	var out strings.Builder
	content := ""
	flush := func() {
		if content != "" {
			fmt.Fprintf(&out, "data %q\n", content)
			content = ""
		}
	}
	cut.Feed([]byte(in), size, func(rest []byte, last bool) ([]byte, bool) {
		for {
			ev, used, err := m.Input(rest, fin && last)
			rest = rest[used:]
			if ev.Kind == Data {
				content += string(ev.Payload)
			} else if ev.Kind != NeedInput || err != nil {
				flush()
			}
			if err != nil {
				out.WriteString(describeError(err))
				return nil, false
			}
			switch ev.Kind {
			case Headers:
				out.WriteString(describe(m.Message()))
			case Trailers:
				fmt.Fprintf(&out, "trailers %s\n", describeFields(m.Trailers()))
			case End:
				out.WriteString("end\n")
				respond(m)
			case NeedInput:
				return rest, true
			}
		}
	})
	flush()
	return out.String()
}

func describeError(err error) string {
	var refused *Error
	if !errors.As(err, &refused) {
		return "foreign error " + err.Error()
	}
	return fmt.Sprintf("error %d %s\n", refused.Status, refused.Text)
}

// respond answers a request, so that the next is read; a client sends its next request.
func respond(m *Machine) {
	if m.role == RoleServer && m.request.open && !m.request.connect && !m.request.upgrade {
		if _, err := m.AppendResponse(nil, &semantics.Message{Status: 200, ContentLength: 0}, true); err != nil {
			panic(err)
		}
	}
}

func describe(m *Message) string {
	var b strings.Builder
	if m.Status != 0 {
		fmt.Fprintf(&b, "response 1.%d %d %q", m.Minor, m.Status, m.Reason)
	} else {
		fmt.Fprintf(&b, "request 1.%d %s %s %s %s", m.Minor, m.Method, m.Scheme, m.Authority, m.Path)
	}
	if m.Protocol != "" {
		fmt.Fprintf(&b, " protocol=%s", m.Protocol)
	}
	if m.ContentLength >= 0 {
		fmt.Fprintf(&b, " length=%d", m.ContentLength)
	}
	fmt.Fprintf(&b, " body=%s", m.Body)
	if m.Close {
		b.WriteString(" close")
	}
	if m.Expect100 {
		b.WriteString(" expect")
	}
	fmt.Fprintf(&b, " %s\n", describeFields(m.Fields))
	return b.String()
}

func describeFields(fields []semantics.Field) string {
	var b strings.Builder
	b.WriteByte('[')
	for i, f := range fields {
		if i > 0 {
			b.WriteByte(' ')
		}
		fmt.Fprintf(&b, "%s=%q", f.Name, f.Value)
	}
	return b.String() + "]"
}

// traceAll feeds input whole, byte by byte and at random cuts; all must report the same.
func traceAll(t testing.TB, machine func() *Machine, in string, fin bool) string {
	t.Helper()
	want := trace(machine(), in, fin, cut.Whole)
	if got := trace(machine(), in, fin, cut.Bytewise); got != want {
		t.Fatalf("input %q\nwhole:\n%s\nbyte by byte:\n%s", in, want, got)
	}
	for seed := range uint64(8) {
		if got := trace(machine(), in, fin, cut.Random(seed)); got != want {
			t.Fatalf("input %q\nwhole:\n%s\ncut at random:\n%s", in, want, got)
		}
	}
	return want
}

func server() *Machine { return NewMachine(RoleServer, Options{}) }

package http2

import (
	"testing"

	"github.com/millrace/millrace/http1"
	"github.com/millrace/millrace/internal/testkit/cut"
	"github.com/millrace/millrace/internal/testkit/wrongcases"
)

// downgrade is the simplest proxy from HTTP/2 to HTTP/1.1: what a server machine reads, a client machine writes. It returns what
// the back end receives of the first request.
func downgrade(in string, size cut.Size) (out []byte, err error) {
	front, back := NewMachine(RoleServer, Options{}), http1.NewMachine(http1.RoleClient, http1.Options{})
	cut.Feed([]byte(in), size, func(rest []byte, _ bool) ([]byte, bool) {
		for {
			ev, n, failure := front.Input(rest)
			if rest = rest[n:]; failure != nil {
				err = failure
				return nil, false
			}
			switch ev.Kind {
			case Headers:
				out, err = back.AppendRequest(out, &ev.Stream.Message, false)
			case Data:
				out, err = back.AppendData(out, ev.Payload)
			case End:
				out, err = back.AppendEnd(out, ev.Stream.Trailers)
				return nil, false
			case Failed, TooLarge:
				err = ev.Err
				return nil, false
			case NeedInput:
				return rest, true
			}
			if err != nil {
				return nil, false
			}
		}
	})
	return out, err
}

// What passes the machines is the requests that may pass, in a form that nobody has to repair.
func TestWrongInput(t *testing.T) {
	for _, c := range wrongcases.Downgrades() {
		if c.Gateway {
			continue
		}
		size := cut.Whole
		if len(c.Bytes) < 4096 {
			size = cut.Random(1)
		}
		out, err := downgrade(c.Bytes, size)
		if wrong := c.Check(out); wrong != nil {
			t.Errorf("%s (%s): %v\nsent %q %.200q %q\npassed on %.200q (%v)", c.Name, c.Origin, wrong, c.Fields, c.Data, c.Trailers, out, err)
		}
	}
}

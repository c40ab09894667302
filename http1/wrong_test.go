package http1

import (
	"testing"

	"github.com/millrace/millrace/internal/testkit/cut"
	"github.com/millrace/millrace/internal/testkit/wrongcases"
)

// relay is the simplest proxy: what a server machine reads, a client machine writes. It returns what the back end receives.
func relay(in string, size cut.Size) (out []byte, err error) {
	front, back := NewMachine(RoleServer, Options{}), NewMachine(RoleClient, Options{})
	cut.Feed([]byte(in), size, func(rest []byte, last bool) ([]byte, bool) {
		for {
			ev, n, failure := front.Input(rest, last)
			if rest = rest[n:]; failure != nil {
				err = failure
				return nil, false
			}
			switch ev.Kind {
			case Headers:
				msg := front.Message()
				out, err = back.AppendRequest(out, &msg.Message, msg.Body == NoBody)
			case Data:
				out, err = back.AppendData(out, ev.Payload)
			case End:
				if out, err = back.AppendEnd(out, front.Trailers()); err == nil {
					respond(front)
					back = NewMachine(RoleClient, Options{})
				}
			case NeedInput:
				return rest, true
			}
			if err != nil || !front.KeepAlive() && front.Idle() || front.Tunnel() {
				return nil, false
			}
		}
	})
	return out, err
}

// What passes the machines is the requests that may pass, in a form that nobody has to repair.
func TestWrongInput(t *testing.T) {
	for _, c := range wrongcases.All() {
		if c.Gateway {
			continue
		}
		size := cut.Whole
		if len(c.Bytes) < 4096 {
			size = cut.Bytewise
		}
		out, err := relay(c.Bytes, size)
		if wrong := c.Check(out); wrong != nil {
			t.Errorf("%s (%s): %v\nsent %.200q\npassed on %.200q (%v)", c.Name, c.Origin, wrong, c.Bytes, out, err)
		}
	}
}

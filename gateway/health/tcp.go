package health

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
)

// Step is one of a conversation: bytes that are sent, or that have to come.
type Step struct {
	Send   []byte // key "send", or "send_hex"
	Expect []byte // key "expect", or "expect_hex": has to occur in what comes next
}

// Bounds of a conversation.
const (
	maxSteps = 16
	maxHeard = 64 << 10 // bytes that may come before what a step expects
)

// tcpProbe has a conversation.
type tcpProbe struct {
	steps []Step
	conn  Conn
	dial  Dialer
}

// ask makes a connection and goes through the steps. What comes behind an expected text is for the next step.
func (p *tcpProbe) ask(ctx context.Context, t Target) error {
	conn, err := open(ctx, p.dial, p.conn.Preamble, t)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.SetDeadline(past) })()
	var heard []byte
	for i := range p.steps {
		s := &p.steps[i]
		if len(s.Send) > 0 {
			if _, err := conn.Write(s.Send); err != nil {
				return fmt.Errorf("step %d: %w", i+1, bare(err))
			}
			continue
		}
		if heard, err = s.hear(conn, heard); err != nil {
			return fmt.Errorf("step %d: %w", i+1, err)
		}
	}
	return nil
}

// hear reads until the expected text has come, and returns what is behind it.
func (s *Step) hear(conn io.Reader, heard []byte) (rest []byte, err error) {
	for buf := make([]byte, 4096); ; {
		if i := bytes.Index(heard, s.Expect); i >= 0 {
			return heard[i+len(s.Expect):], nil
		}
		if len(heard) > maxHeard {
			return nil, fmt.Errorf("%w: %d bytes lack %q", ErrAnswer, len(heard), shorten(string(s.Expect)))
		}
		n, err := conn.Read(buf)
		if heard = append(heard, buf[:n]...); n > 0 {
			continue
		}
		if errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("%w: the connection has ended, and %q lacks %q", ErrAnswer, shorten(string(heard)), shorten(string(s.Expect)))
		}
		if err != nil {
			return nil, bare(err)
		}
	}
}

// validateSteps returns what is wrong with a conversation.
func validateSteps(steps []Step) (p problems) {
	p.require(len(steps) <= maxSteps, "tcp", "", "tcp has %d steps; at most %d are allowed", len(steps), maxSteps)
	for i := range steps {
		s := &steps[i]
		p.require((len(s.Send) > 0) != (len(s.Expect) > 0), "tcp", "a step sends, or expects", "step %d of tcp has to have either send or expect", i+1)
		p.require(len(s.Send) <= maxExpect && len(s.Expect) <= maxExpect, "tcp", "", "step %d of tcp has more than %d bytes", i+1, maxExpect)
	}
	return p
}

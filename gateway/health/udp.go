package health

import (
	"bytes"
	"context"
	"errors"
	"fmt"
)

// udpProbe sends a datagram and waits for one.
type udpProbe struct {
	UDP
	dial Dialer
}

// ask sends from a socket of its own, connected to the target: the kernel then drops what others
// send, and hands ICMP errors to the next call (RFC 1122 4.1.3.3).
func (p *udpProbe) ask(ctx context.Context, t Target) error {
	conn, err := p.dial.DialContext(ctx, "udp", t.At.String())
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.SetDeadline(past) })()
	if _, err := conn.Write(p.Send); err != nil {
		return err
	}
	var answer [maxExpect]byte
	n, err := conn.Read(answer[:])
	switch {
	case err == nil && bytes.Contains(answer[:n], p.Expect):
		return nil
	case err == nil:
		return fmt.Errorf("%w: the datagram (%d bytes) lacks %q", ErrAnswer, n, shorten(string(p.Expect)))
	case p.Silence == SilenceSuccess && errors.Is(ctx.Err(), context.DeadlineExceeded):
		return nil
	}
	return err
}

package socket

import (
	"context"
	"net"
	"net/netip"
	"time"
)

// Happy Eyeballs (RFC 8305): a name has several addresses, and one that does not answer must not delay a
// connection by the time that a handshake takes to give up.

// attemptDelay is the Connection Attempt Delay (RFC 8305 5, 8).
const attemptDelay = 250 * time.Millisecond

// leastAttempt is the least time that one of several serial attempts gets, if there is so much.
const leastAttempt = 2 * time.Second

// dialFunc dials one address.
type dialFunc func(ctx context.Context, r netip.AddrPort) (net.Conn, error)

// order returns addresses in the order of attempts: those that the stack has a route and a source for come
// first (RFC 6724 6, rule 1), and after the first address its version of IP and the other one alternate (RFC
// 8305 4). Otherwise the order is the resolver's.
func (s *Stack) order(d *Dialer, list []netip.AddrPort) []netip.AddrPort {
	var usable, rest []netip.AddrPort
	for _, r := range list {
		if _, err := s.tuple(d, r); err == nil {
			usable = append(usable, r)
		} else {
			rest = append(rest, r)
		}
	}
	return append(interleave(usable), interleave(rest)...)
}

// interleave lets the versions of IP alternate, beginning with that of the first address.
func interleave(list []netip.AddrPort) []netip.AddrPort {
	var queue [2][]netip.AddrPort // of the version of the first address, of the other
	for _, r := range list {
		i := 0
		if r.Addr().Is4() != list[0].Addr().Is4() {
			i = 1
		}
		queue[i] = append(queue[i], r)
	}
	out := list[:0:0]
	for i := 0; len(out) < len(list); i ^= 1 {
		if len(queue[i]) > 0 {
			out = append(out, queue[i][0])
			queue[i] = queue[i][1:]
		}
	}
	return out
}

// dialSerial tries one address after the other. Where ctx has a deadline each attempt gets an equal part of
// the time that is left, so that the last address is tried too.
func dialSerial(ctx context.Context, list []netip.AddrPort, dial dialFunc) (net.Conn, error) {
	var first error
	for i, r := range list {
		attempt, cancel := partOf(ctx, len(list)-i)
		c, err := dial(attempt, r)
		cancel()
		if err == nil {
			return c, nil
		}
		if first == nil {
			first = err
		}
		if ctx.Err() != nil {
			break
		}
	}
	return nil, first
}

// partOf returns a context for one of several attempts that are left.
func partOf(ctx context.Context, left int) (context.Context, context.CancelFunc) {
	end, ok := ctx.Deadline()
	if !ok || left == 1 {
		return context.WithCancel(ctx)
	}
	part := time.Until(end) / time.Duration(left)
	return context.WithTimeout(ctx, max(part, leastAttempt))
}

// dialStaggered begins an attempt each delay, and at once when the one before has failed (RFC 8305 5). The
// first connection is returned, and the other attempts are canceled.
func dialStaggered(ctx context.Context, list []netip.AddrPort, delay time.Duration, dial dialFunc) (net.Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type result struct {
		i   int
		c   net.Conn
		err error
	}
	results := make(chan result, len(list)) // an attempt never blocks on it
	begun, ended := 0, 0
	begin := func() {
		i := begun
		begun++
		go func() {
			c, err := dial(ctx, list[i])
			results <- result{i, c, err}
		}()
	}
	begin()
	next := time.NewTimer(delay)
	defer next.Stop()
	errs := make([]error, len(list))
	for {
		select {
		case <-next.C:
		case r := <-results:
			ended++
			if r.err == nil {
				go func() { // attempts that succeed before the cancellation reaches them
					for range begun - ended {
						if r := <-results; r.c != nil {
							_ = r.c.Close()
						}
					}
				}()
				return r.c, nil
			}
			if errs[r.i] = r.err; ended == len(list) {
				return nil, errs[0]
			}
		}
		if begun < len(list) {
			begin()
			next.Reset(delay)
		}
	}
}

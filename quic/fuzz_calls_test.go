package quic_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/quic"
)

// calls is a connection on which the fuzzer makes calls in any order.
type calls struct {
	t       *testing.T
	ctx     context.Context
	c       *quic.Conn
	content []byte
	streams []*called
	reading sync.WaitGroup
}

// called is a stream, and what is known of it.
type called struct {
	s         *quic.Stream
	sent      []byte
	closed    bool
	cancelled bool // in one direction at least: what comes back may be cut
	got       []byte
	err       error
}

// open opens a stream, and reads what the other end returns on it.
func (k *calls) open() {
	s, err := k.c.TryOpenStream()
	if err != nil {
		return // as many as the peer permits are open
	}
	st := &called{s: s}
	k.streams = append(k.streams, st)
	k.reading.Go(func() { st.got, st.err = io.ReadAll(s) })
}

// call makes one call.
func (k *calls) call(op, arg byte) {
	if op == 0 || len(k.streams) == 0 {
		k.open()
		return
	}
	st := k.streams[int(arg)%len(k.streams)]
	switch op {
	case 1, 2:
		p := k.content[:min(len(k.content), int(arg)*16)]
		n, err := st.s.Write(p)
		st.sent = append(st.sent, p[:n]...)
		if err == nil && st.closed && len(p) > 0 {
			k.t.Error("a write after the end succeeds")
		}
	case 3:
		if err := st.s.Close(); err == nil {
			st.closed = true
		}
	case 4:
		st.cancelled = true
		st.s.CancelWrite(uint64(arg))
	case 5:
		st.cancelled = true
		st.s.CancelRead(uint64(arg))
	case 6:
		_ = k.c.SendDatagram(k.content[:min(len(k.content), int(arg)*8)])
	case 7:
		st.s.SetPriority(arg, arg&1 != 0)
	case 8:
		if u, err := k.c.TryOpenUniStream(); err == nil {
			_, _ = u.Write([]byte{arg})
			_ = u.Close()
		}
	}
}

// check compares what came back on streams that were closed and not cancelled.
func (k *calls) check() {
	for _, st := range k.streams {
		if !st.cancelled && !st.closed {
			_ = st.s.Close()
		}
	}
	k.reading.Wait()
	for i, st := range k.streams {
		if !st.cancelled && (st.err != nil || !bytes.Equal(st.got, st.sent)) {
			k.t.Errorf("stream %d: %d bytes of %d, %v", i, len(st.got), len(st.sent), st.err)
		}
	}
}

// FuzzCalls calls the methods of a connection and its streams in any order, against an end that returns what it
// gets. All that was sent comes back, and the connection ends with the code that it is closed with.
func FuzzCalls(f *testing.F) {
	server := transport(f, nil, quic.TransportConfig{})
	ended := make(chan error, 1)
	serve(f, server, serverTLS(), &quic.Config{Datagrams: true, MaxStreams: 10, MaxUniStreams: 10}, func(c *quic.Conn) {
		go func() {
			for {
				s, err := c.AcceptUniStream(context.Background())
				if err != nil {
					return
				}
				go func() { _, _ = io.Copy(io.Discard, s) }()
			}
		}()
		echo(c)
		<-c.Context().Done()
		ended <- context.Cause(c.Context())
	})
	client := transport(f, nil, quic.TransportConfig{})
	f.Add([]byte{0, 0, 1, 20, 3, 0, 0, 0, 2, 10, 4, 1, 6, 3}, []byte("content"))
	f.Add([]byte{0, 0, 3, 0, 1, 5, 5, 0, 8, 1, 7, 3}, bytes.Repeat([]byte("x"), 4000))
	f.Fuzz(func(t *testing.T, ops, content []byte) {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		c, err := client.Dial(ctx, server.LocalAddr(), clientTLS(), &quic.Config{Datagrams: true})
		if err != nil {
			t.Fatal(err)
		}
		ask(t, c, "x") // one that ends with its handshake is not accepted
		k := &calls{t: t, ctx: ctx, c: c, content: content}
		for len(ops) >= 2 && len(ops) <= 400 {
			k.call(ops[0]%9, ops[1])
			ops = ops[2:]
		}
		k.check()
		_ = c.CloseWithError(77, "end")
		select {
		case err := <-ended:
			var ae *quic.ApplicationError
			if !errors.As(err, &ae) || ae.Code != 77 || !ae.Remote {
				t.Errorf("the connection ended with %v", err)
			}
		case <-time.After(patience):
			t.Error("the other end does not see the end")
		}
	})
}

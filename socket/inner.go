package socket

import (
	"io"
	"net"

)

// Inner is a connection as what runs on its loop sees it. No method blocks: 0 bytes and no error is
// nothing now, and an event will come. It must not be used after the function that it was given to.
type Inner struct{ c *TCPConn }

// Conn returns the connection, for those that do not run on the loop.
func (in Inner) Conn() *TCPConn { return in.c }

// Read copies what has arrived to b; the end is io.EOF, or why the connection failed.
func (in Inner) Read(b []byte) (int, error) {
	n, err := in.c.read(in.c.h.Loop.Now(), b)
	return n, in.c.fault("read", err)
}

// Write copies of b what there is room for.
func (in Inner) Write(b []byte) (int, error) {
	n, err := in.c.write(in.c.h.Loop.Now(), b)
	return n, in.c.fault("write", err)
}

// Peek lends what has arrived, in two pieces in order, until the function returns or Discard is called.
func (in Inner) Peek() [2][]byte {
	if in.c.c == nil {
		return [2][]byte{}
	}
	return in.c.c.Peek()
}

// Discard drops the next n bytes, which Peek has lent.
func (in Inner) Discard(n int) {
	if in.c.c != nil {
		in.c.c.Discard(in.c.h.Loop.Now(), n)
	}
}

// WriteLent gives b itself, which must stay as it is until done is called, by the loop: when the peer has
// all of it or the connection has ended. False is that there is no room now; then done is not called.
func (in Inner) WriteLent(b []byte, done func()) (bool, error) {
	now := in.c.h.Loop.Now()
	if err := in.c.writable(now); err != nil {
		return false, in.c.fault("write", err)
	}
	return in.c.c.WriteZeroCopy(now, b, done), nil
}

// CloseWrite sends a FIN behind what was written.
func (in Inner) CloseWrite() error { return in.c.closeWrite(in.c.h.Loop.Now()) }

// Close closes the connection as TCPConn.Close does.
func (in Inner) Close() error { return in.c.close(in.c.h.Loop.Now()) }

// callback is a watcher that is a function.
type callback func(in Inner, ev Events)

func (f callback) ready(c *TCPConn, ev Events) { f(Inner{c}, ev) }

func (f callback) gone(c *TCPConn) {}

// OnReady has f called by the loop when something becomes possible, once at the end of a burst, and once
// soon for what is possible already. Nil ends it. It takes the place of a Poller. After Closed, and Close
// by the program, f is called no more.
func (c *TCPConn) OnReady(f func(in Inner, ev Events)) error {
	c.h.Enter()
	defer c.h.Exit()
	if c.c == nil {
		return c.fault("set", net.ErrClosed)
	}
	Inner{c}.OnReady(f)
	return nil
}

// OnReady is TCPConn.OnReady, for what runs on the loop.
func (in Inner) OnReady(f func(in Inner, ev Events)) {
	c := in.c
	if f == nil || c.c == nil {
		c.setWatch(nil)
		return
	}
	c.setWatch(callback(f))
	c.c.SetOwner(c) // tells what is possible already
}

// setWatch names who hears of events, beside goroutines that wait.
func (c *TCPConn) setWatch(w watcher) {
	if c.extra == nil && w == nil {
		return
	}
	x := c.extras()
	if old := x.watch; old != nil {
		x.watch = nil
		old.gone(c)
	}
	x.watch = w
}

// Do runs f as the loop would, on the calling goroutine: several operations for one Enter.
func (c *TCPConn) Do(f func(in Inner)) {
	c.h.Enter()
	defer c.h.Exit()
	f(Inner{c})
}

// Peek waits for data and calls f on the loop with all of it, in two pieces in order, lent until f
// returns. f says how much of it is done with; the rest stays.
func (c *TCPConn) Peek(f func(first, second []byte) (done int)) error {
	for {
		parked, err := c.peek(f)
		if parked != nil {
			err = parked.end()
		}
		if parked == nil || err != nil {
			return c.fault("read", err)
		}
	}
}

// peek calls f, or returns what waits for data.
func (c *TCPConn) peek(f func(first, second []byte) int) (parked *waiter, err error) {
	now := c.h.Enter()
	defer c.h.Exit()
	if _, err := c.read(now, nil); err != nil {
		return nil, err
	}
	if p := c.c.Peek(); len(p[0])+len(p[1]) > 0 {
		c.c.Discard(now, f(p[0], p[1]))
		return nil, nil
	}
	if c.c.Finished() {
		return nil, c.ending(io.EOF)
	}
	parked = newWaiter()
	c.rq.park(parked, c, c.readBy())
	return parked, nil
}

// WriteLent waits for room and gives b itself, which must stay as it is until done is called, on the
// loop: when the peer has all of it or the connection has ended. After an error done is not called.
func (c *TCPConn) WriteLent(b []byte, done func()) error {
	for {
		parked, err := c.lend(b, done)
		if parked != nil {
			err = parked.end()
		}
		if parked == nil || err != nil {
			return c.fault("write", err)
		}
	}
}

// lend gives b, or returns what waits for room.
func (c *TCPConn) lend(b []byte, done func()) (parked *waiter, err error) {
	now := c.h.Enter()
	defer c.h.Exit()
	if err := c.writable(now); err != nil {
		return nil, err
	}
	if c.wq.head == nil && c.c.WriteZeroCopy(now, b, done) {
		return nil, nil
	}
	parked = newWaiter()
	c.wq.park(parked, c, c.writeBy())
	return parked, nil
}

// end waits and gives w back.
func (w *waiter) end() error {
	w.wait()
	err := w.err
	w.free()
	return err
}

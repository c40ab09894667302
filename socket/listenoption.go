package socket

import (
	"net"
	"time"
)

// SetOptions changes the options of the connections whose handshake is not complete yet. What a SYN settles
// (timestamps, SACK, ECN) follows the options of its time. The window of SYN-ACKs and its scale, V6Only, Share
// and Keys are as Listen set them. change runs once for each loop.
func (l *Listener) SetOptions(change func(o *TCPOptions)) error {
	return l.each("setsockopt", func(e *listenerShard) error {
		o := e.t.Options()
		change(&o)
		return e.t.SetOptions(&o)
	})
}

// Options returns the options of the connections whose handshake is not complete yet.
func (l *Listener) Options() (o TCPOptions, err error) {
	err = l.each("getsockopt", func(e *listenerShard) error {
		o = e.t.Options()
		return nil
	})
	return o, err
}

// SetOption sets an option of the connections that are accepted from now on, or of the listener itself, as
// setsockopt(2) does.
func (l *Listener) SetOption(opt Option, v int) error {
	if opt == OptDeferAccept {
		return l.SetDeferAccept(time.Duration(v) * time.Second)
	}
	return l.each("setsockopt", func(e *listenerShard) error {
		o := e.t.Options()
		if err := (optionTarget{&o, &e.idle}).apply(opt, v); err != nil {
			return err
		}
		return e.t.SetOptions(&o)
	})
}

// Option returns an option, as getsockopt(2) does.
func (l *Listener) Option(opt Option) (v int, err error) {
	err = l.each("getsockopt", func(e *listenerShard) error {
		switch o := e.t.Options(); opt {
		case OptDeferAccept:
			v = int(e.t.DeferAccept() / time.Second)
		case OptError: // a listener has none
		default:
			v, err = optionTarget{&o, &e.idle}.read(opt)
		}
		return err
	})
	return v, err
}

// SetBacklog changes how many connections may wait for Accept on each loop, as a second listen(2) does. Those
// that wait already stay.
func (l *Listener) SetBacklog(n int) error {
	return l.each("listen", func(e *listenerShard) error {
		e.t.SetBacklog(n)
		return nil
	})
}

// SetDeferAccept delays Accept of a connection until its peer has sent something or closed, for at most d
// (TCP_DEFER_ACCEPT). 0 does not delay. The delayed ones count against the backlog.
func (l *Listener) SetDeferAccept(d time.Duration) error {
	return l.each("setsockopt", func(e *listenerShard) error {
		e.t.SetDeferAccept(max(d, 0))
		return nil
	})
}

// each calls f for each shard, with its loop held.
func (l *Listener) each(op string, f func(e *listenerShard) error) error {
	return l.wrapError(op, l.fan.each(func(i int) error {
		if l.shards[i].t == nil {
			return net.ErrClosed
		}
		return f(&l.shards[i])
	}))
}

package socket

import "fmt"

// linuxCases are the cases of TestLikeLinux.
var linuxCases = map[string]func(x *transcript){
	"connect": func(x *transcript) {
		l := x.listen()
		x.poll("listener", l)
		c := x.dial(l)
		x.settle()
		x.poll("listener", l)
		x.get("c", c, OptError)
		for range 3 {
			x.note("connect", c.connect())
		}
		x.poll("c", c)
		x.queues("c", c)
	},
	"refused, SO_ERROR": func(x *transcript) {
		c := x.dial(nil)
		x.settle()
		x.poll("c", c)
		x.get("c", c, OptError)
		x.get("c", c, OptError)
		x.poll("c", c)
		x.send("c", c, "x", 0)
		x.recv("c", c, 10, 0)
		x.recv("c", c, 10, 0)
	},
	"refused, read": func(x *transcript) {
		c := x.dial(nil)
		x.settle()
		x.recv("c", c, 10, 0)
		x.recv("c", c, 10, 0)
		x.get("c", c, OptError)
		x.send("c", c, "x", 0)
	},
	"refused, write": func(x *transcript) {
		c := x.dial(nil)
		x.settle()
		x.send("c", c, "x", 0)
		x.send("c", c, "x", 0)
		x.recv("c", c, 10, 0)
	},
	"refused, connect": func(x *transcript) {
		c := x.dial(nil)
		x.settle()
		x.note("connect", c.connect())
	},
	"half close": func(x *transcript) {
		c, s := x.pair()
		x.send("c", c, "hello", 0)
		x.note("shutdown", c.shutdown(false, true))
		x.settle()
		x.poll("c", c)
		x.poll("s", s)
		x.queues("s", s)
		x.recv("s", s, 3, 0)
		x.recv("s", s, 3, PeekData)
		x.recv("s", s, 9, 0)
		x.recv("s", s, 9, 0)
		x.recv("s", s, 9, 0)
		x.poll("s", s)
		x.send("s", s, "world", 0)
		x.settle()
		x.recv("c", c, 9, 0)
		x.send("c", c, "x", 0)
		x.note("shutdown", s.shutdown(false, true))
		x.settle()
		x.poll("c", c)
		x.poll("s", s)
		x.recv("c", c, 9, 0)
	},
	"shutdown of reading": func(x *transcript) {
		c, s := x.pair()
		x.send("c", c, "hello", 0)
		x.settle()
		x.note("shutdown", s.shutdown(true, false))
		x.poll("s", s)
		x.send("s", s, "back", 0)
		x.settle()
		x.recv("c", c, 9, 0)
		x.poll("c", c)
	},
	"reset, read": func(x *transcript) {
		c, s := x.pair()
		x.set("c", c, OptLinger, 0)
		x.note("close", c.close())
		x.settle()
		x.poll("s", s)
		x.recv("s", s, 9, 0)
		x.poll("s", s)
		x.recv("s", s, 9, 0)
		x.send("s", s, "x", 0)
		x.get("s", s, OptError)
	},
	"reset, write": func(x *transcript) {
		c, s := x.pair()
		x.set("c", c, OptLinger, 0)
		x.note("close", c.close())
		x.settle()
		x.send("s", s, "x", 0)
		x.send("s", s, "x", 0)
		x.recv("s", s, 9, 0)
	},
	"reset, SO_ERROR": func(x *transcript) {
		c, s := x.pair()
		x.set("c", c, OptLinger, 0)
		x.note("close", c.close())
		x.settle()
		x.get("s", s, OptError)
		x.recv("s", s, 9, 0)
		x.send("s", s, "x", 0)
	},
	"close with unread data": func(x *transcript) {
		c, s := x.pair()
		x.send("c", c, "unread", 0)
		x.settle()
		x.note("close", s.close())
		x.settle()
		x.poll("c", c)
		x.recv("c", c, 9, 0)
		x.recv("c", c, 9, 0)
	},
	"write to a closed peer": func(x *transcript) {
		c, s := x.pair()
		x.note("close", s.close())
		x.settle()
		x.poll("c", c)
		x.recv("c", c, 9, 0)
		x.send("c", c, "x", 0)
		x.settle()
		x.poll("c", c)
		x.send("c", c, "x", 0)
	},
	"reset after the end": func(x *transcript) {
		c, s := x.pair()
		x.send("s", s, "last", 0)
		x.note("close", s.close())
		x.settle()
		x.send("c", c, "x", 0)
		x.settle()
		x.recv("c", c, 2, 0)
		x.recv("c", c, 9, 0)
		x.recv("c", c, 9, 0)
		x.poll("c", c)
		x.get("c", c, OptError)
		x.recv("c", c, 9, 0)
		x.send("c", c, "x", 0)
	},
	"MSG_MORE": func(x *transcript) {
		c, s := x.pair()
		x.send("c", c, "hello ", More)
		x.settle()
		x.queues("c", c)
		x.queues("s", s)
		x.send("c", c, "world", 0)
		x.settle()
		x.queues("c", c)
		x.recv("s", s, 99, 0)
	},
	"TCP_CORK": func(x *transcript) {
		c, s := x.pair()
		x.set("c", c, OptCork, 1)
		x.send("c", c, "hello ", 0)
		x.send("c", c, "world", 0)
		x.settle()
		x.queues("c", c)
		x.queues("s", s)
		x.set("c", c, OptCork, 0)
		x.settle()
		x.queues("c", c)
		x.recv("s", s, 99, 0)
	},
	"urgent, out of band": func(x *transcript) { urgentCase(x, false) },
	"urgent, inline":      func(x *transcript) { urgentCase(x, true) },
	"urgent, alone": func(x *transcript) {
		c, s := x.pair()
		x.send("c", c, "!", SendOutOfBand)
		x.settle()
		x.poll("s", s)
		x.queues("s", s)
		x.recv("s", s, 9, 0)
		x.send("c", c, "after", 0)
		x.settle()
		x.poll("s", s)
		x.queues("s", s)
		x.recv("s", s, 9, PeekData)
		x.recv("s", s, 9, ReceiveOutOfBand|PeekData)
		x.recv("s", s, 9, 0)
		x.recv("s", s, 9, ReceiveOutOfBand)
		x.poll("s", s)
	},
	"urgent, twice": func(x *transcript) {
		c, s := x.pair()
		x.send("c", c, "ab1", SendOutOfBand)
		x.settle()
		x.send("c", c, "cd2", SendOutOfBand)
		x.settle()
		x.poll("s", s)
		x.queues("s", s)
		for range 3 {
			x.recv("s", s, 99, 0)
		}
		x.recv("s", s, 9, ReceiveOutOfBand)
	},
	"urgent, twice at the mark": func(x *transcript) {
		c, s := x.pair()
		x.send("c", c, "ab1", SendOutOfBand)
		x.settle()
		x.recv("s", s, 99, 0)
		x.queues("s", s)
		x.send("c", c, "cd2", SendOutOfBand)
		x.settle()
		x.queues("s", s)
		x.recv("s", s, 9, ReceiveOutOfBand)
		x.recv("s", s, 99, 0)
		x.recv("s", s, 99, 0)
	},
	"urgent, then the end": func(x *transcript) {
		c, s := x.pair()
		x.send("c", c, "ab!", SendOutOfBand)
		x.note("shutdown", c.shutdown(false, true))
		x.settle()
		x.poll("s", s)
		x.queues("s", s)
		x.recv("s", s, 99, 0)
		x.recv("s", s, 99, 0)
		x.recv("s", s, 9, ReceiveOutOfBand)
		x.poll("s", s)
	},
	"options": optionCase,
	"listener options": func(x *transcript) {
		l := x.listen()
		x.set("l", l, OptNoDelay, 1)
		x.set("l", l, OptTOS, 0x20)
		x.set("l", l, OptKeepIdle, 77)
		x.set("l", l, OptKeepAlive, 1)
		x.set("l", l, OptTTL, 33)
		x.set("l", l, OptUserTimeout, 5000)
		x.get("l", l, OptError)
		c := x.dial(l)
		x.settle()
		s, err := l.accept()
		x.note("accept", err)
		for _, o := range []Option{OptNoDelay, OptTOS, OptKeepIdle, OptKeepAlive, OptTTL, OptUserTimeout} {
			x.get("l", l, o)
			x.get("s", s, o)
			x.get("c", c, o)
		}
	},
	"TCP_DEFER_ACCEPT": func(x *transcript) {
		l := x.listen()
		x.set("l", l, OptDeferAccept, 10)
		c := x.dial(l)
		x.settle()
		x.poll("l", l)
		_, err := l.accept()
		x.note("accept", err)
		x.note("connect", c.connect())
		x.send("c", c, "first", 0)
		x.settle()
		x.poll("l", l)
		s, err := l.accept()
		x.note("accept", err)
		x.recv("s", s, 99, 0)
	},
	"epoll, level": func(x *transcript) {
		c, s := x.pair()
		p := x.poller()
		x.note("add", p.ctl(addInterest, s, Interest{Events: Readable}))
		x.note("add", p.ctl(addInterest, s, Interest{Events: Readable}))
		x.wait("p", p)
		x.send("c", c, "ab", 0)
		x.wait("p", p)
		x.wait("p", p)
		x.recv("s", s, 1, 0)
		x.wait("p", p)
		x.recv("s", s, 1, 0)
		x.wait("p", p)
		x.note("del", p.ctl(delInterest, s, Interest{}))
		x.note("del", p.ctl(delInterest, s, Interest{}))
		x.note("mod", p.ctl(modInterest, s, Interest{Events: Readable}))
	},
	"epoll, edge": func(x *transcript) {
		c, s := x.pair()
		p := x.poller()
		x.note("add", p.ctl(addInterest, s, Interest{Events: Readable | Writable | PeerClosed, Edge: true}))
		x.wait("p", p)
		x.wait("p", p)
		x.send("c", c, "ab", 0)
		x.wait("p", p)
		x.wait("p", p)
		x.send("c", c, "cd", 0)
		x.wait("p", p)
		x.recv("s", s, 99, 0)
		x.wait("p", p)
		x.note("mod", p.ctl(modInterest, s, Interest{Events: Writable, Edge: true}))
		x.wait("p", p)
		x.note("shutdown", c.shutdown(false, true))
		x.settle()
		x.note("mod", p.ctl(modInterest, s, Interest{Events: PeerClosed, Edge: true}))
		x.wait("p", p)
		x.wait("p", p)
	},
	"epoll, one-shot": func(x *transcript) {
		c, s := x.pair()
		p := x.poller()
		x.note("add", p.ctl(addInterest, s, Interest{Events: Readable, OneShot: true}))
		x.wait("p", p)
		x.send("c", c, "ab", 0)
		x.wait("p", p)
		x.wait("p", p)
		x.send("c", c, "cd", 0)
		x.wait("p", p)
		x.note("mod", p.ctl(modInterest, s, Interest{Events: Readable, OneShot: true}))
		x.wait("p", p)
		x.wait("p", p)
		x.note("close", c.close())
		x.settle()
		x.wait("p", p)
	},
	"epoll, one-shot and exclusive": func(x *transcript) {
		_, s := x.pair()
		p := x.poller()
		x.note("add", p.ctl(addInterest, s, Interest{Events: Readable, OneShot: true, Exclusive: true}))
		x.note("add", p.ctl(addInterest, s, Interest{Events: Readable, Exclusive: true}))
		x.note("mod", p.ctl(modInterest, s, Interest{Events: Readable}))
		x.note("mod", p.ctl(modInterest, s, Interest{Events: Readable, Exclusive: true}))
	},
	"epoll, two instances": func(x *transcript) {
		c, s := x.pair()
		p, q := x.poller(), x.poller()
		x.note("add", p.ctl(addInterest, s, Interest{Events: Readable}))
		x.note("add", q.ctl(addInterest, s, Interest{Events: Readable, Edge: true}))
		x.send("c", c, "ab", 0)
		x.settle()
		x.wait("p", p)
		x.wait("q", q)
		x.wait("p", p)
		x.wait("q", q)
		x.recv("s", s, 9, 0)
		x.wait("p", p)
	},
	"epoll, reset": func(x *transcript) {
		c, s := x.pair()
		p := x.poller()
		x.note("add", p.ctl(addInterest, s, Interest{Edge: true}))
		x.wait("p", p)
		x.set("c", c, OptLinger, 0)
		x.note("close", c.close())
		x.wait("p", p)
		x.wait("p", p)
	},
	"epoll, handshake": func(x *transcript) {
		l := x.listen()
		p, q := x.poller(), x.poller()
		x.note("add", q.ctl(addInterest, l, Interest{Events: Readable, Edge: true}))
		c := x.dial(l)
		x.settle()
		x.note("add", p.ctl(addInterest, c, Interest{Events: Readable | Writable, Edge: true}))
		x.wait("p", p)
		x.wait("p", p)
		x.wait("q", q)
		x.wait("q", q)
		_, err := l.accept()
		x.note("accept", err)
		_, err = l.accept()
		x.note("accept", err)
	},
}

// urgentCase sends an urgent byte in the middle of others.
func urgentCase(x *transcript, inline bool) {
	c, s := x.pair()
	x.set("s", s, OptOutOfBandInline, boolInt(inline))
	x.recv("s", s, 9, ReceiveOutOfBand)
	x.send("c", c, "abc!", SendOutOfBand)
	x.send("c", c, "def", 0)
	x.settle()
	x.poll("s", s)
	x.queues("s", s)
	x.recv("s", s, 9, ReceiveOutOfBand|PeekData)
	x.poll("s", s)
	x.recv("s", s, 9, ReceiveOutOfBand)
	x.recv("s", s, 9, ReceiveOutOfBand)
	x.poll("s", s)
	x.recv("s", s, 2, 0)
	x.queues("s", s)
	x.recv("s", s, 99, PeekData)
	x.recv("s", s, 99, WaitAll)
	x.queues("s", s)
	x.recv("s", s, 99, PeekData)
	x.recv("s", s, 2, 0)
	x.queues("s", s)
	x.recv("s", s, 99, 0)
	x.queues("s", s)
	x.recv("s", s, 99, 0)
	x.poll("s", s)
}

// optionCase sets each option to values in and out of its bounds.
func optionCase(x *transcript) {
	c, _ := x.pair()
	for _, o := range []Option{OptNoDelay, OptCork, OptKeepAlive, OptOutOfBandInline} {
		x.get("c", c, o)
		for _, v := range []int{1, 0, 7, -1} {
			x.set("c", c, o, v)
			x.get("c", c, o)
		}
	}
	for _, o := range []struct {
		opt  Option
		vals []int
	}{
		{OptKeepIdle, []int{0, 1, 32767, 32768, -1}},
		{OptKeepInterval, []int{0, 1, 32767, 32768, -1}},
		{OptKeepCount, []int{0, 1, 127, 128, -1}},
		{OptUserTimeout, []int{-1, 0, 1, 90000}},
		{OptSYNCount, []int{0, 1, 127, 128, -1}},
		{OptOrphanTime, []int{-2, 0, 1, 120}},
		{OptNotSentLowat, []int{0, 1, 100000}},
		{OptTOS, []int{0, 0x10, 0xb8, 0x13}},
		{OptTTL, []int{0, 1, 255, 256, -2, -1}},
		{OptMTUDiscover, []int{0, 1, 2, 3, -1, 9}},
		{OptMaxPacing, []int{1, 125_000_000, -1}},
		{OptMaxSegment, []int{1, 87, 32768}},
	} {
		if o.opt != OptKeepInterval && o.opt != OptMaxSegment { // ours begins with package net's; the path's
			x.get("c", c, o.opt)
		}
		for _, v := range o.vals {
			x.set("c", c, o.opt, v)
			if o.opt != OptMaxSegment && (o.opt != OptKeepInterval || v != 0) {
				x.get("c", c, o.opt)
			}
		}
	}
	x.set("c", c, OptMTU, 1400)
	x.set("c", c, OptError, 1)
	x.note("unknown", fmt.Sprint(c.set(numOptions, 1) != nil))
}

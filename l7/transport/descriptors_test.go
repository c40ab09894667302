package transport

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"
)

// The bounds of a process leave descriptors for backends, and some for all else.
func TestDescriptorBounds(t *testing.T) {
	for _, c := range []struct{ limit, used, usable, clients int64 }{
		{1024, 24, 936, 702},           // a sixteenth is kept
		{256, 16, 208, 156},            // at least 32
		{1 << 20, 76, 1048244, 786183}, // at most 256
		{40, 30, 16, 12},               // too low for anything: accepting pauses where the system has none left
	} {
		if u := newDescriptors(c.limit, c.used).Use(); u.Usable != c.usable || u.Most != c.clients || u.Limit != c.limit {
			t.Errorf("limit %d with %d in use: %+v", c.limit, c.used, u)
		}
	}
	d, err := NewDescriptors()
	if u := d.Use(); err != nil || u.Limit < 64 || u.Usable >= u.Limit {
		t.Errorf("of the process: %+v, %v", u, err)
	}
}

// Clients leave descriptors for backends, backends leave some for all else, and both go on once a connection has closed.
func TestClientsLeaveDescriptorsForBackends(t *testing.T) {
	l := newLoop(t)
	d := newDescriptors(100, 48) // 20 for connections, 15 of them for clients
	l.Descriptors = d
	var accepted []Conn
	li := listenLocal(t, l, func(c Conn) Handler { accepted = append(accepted, c); return nil })
	backend := listenLocal(t, newLoop(t), nil)
	for range 16 {
		dialLocal(t, li.addr)
	}
	iterateUntil(t, l, "the pause", func() bool { return d.Use().Shortages > 0 })
	if u := d.Use(); len(accepted) != 15 || u.Clients != 15 || u.Open != 15 || l.Stats().Paused != 1 {
		t.Errorf("%d clients were accepted: %+v, %+v", len(accepted), u, l.Stats())
	}
	select {
	case <-d.Short():
	default:
		t.Error("the shortage is not reported")
	}
	var dialed []Conn
	for range 5 {
		c, err := l.Dial(backend.addr, nil)
		if err != nil {
			t.Fatalf("backend %d: %v", len(dialed)+1, err)
		}
		dialed = append(dialed, c)
	}
	if _, err := l.Dial(backend.addr, nil); !errors.Is(err, unix.EMFILE) {
		t.Errorf("a connection beyond all bounds: %v", err)
	}
	accepted[0].Close()
	if _, err := l.Dial(backend.addr, nil); err != nil {
		t.Errorf("after a client has left: %v", err)
	}
	for _, c := range dialed {
		c.Close()
	}
	iterateUntil(t, l, "the client that waits", func() bool { return len(accepted) == 16 })
	if u := d.Use(); u.Clients != 15 || u.Open != 16 {
		t.Errorf("%+v", u)
	}
}

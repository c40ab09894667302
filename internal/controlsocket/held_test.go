package controlsocket

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// accepting counts what a listener accepts, until it ends with an error.
func accepting(l *Listener) (conns chan net.Conn, ended chan error) {
	conns, ended = make(chan net.Conn, 8), make(chan error, 1)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				ended <- err
				return
			}
			conns <- c
		}
	}()
	return conns, ended
}

func dial(t *testing.T, path string) {
	t.Helper()
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
}

// TestAHeldListenerGoesOn holds a listener, also one that waits in Accept: what connects waits, for this listener or for one over the
// same socket.
func TestAHeldListenerGoesOn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	old, err := Listen(path, errors.New("in use"))
	if err != nil {
		t.Fatal(err)
	}
	conns, ended := accepting(old)
	dial(t, path)
	<-conns
	old.Hold(true)
	dial(t, path)
	select {
	case <-conns:
		t.Error("accepted while it was held")
	case err := <-ended:
		t.Fatal(err)
	case <-time.After(20 * time.Millisecond):
	}
	old.Hold(false)
	<-conns

	old.Hold(true)
	inherit := func() *Listener {
		f, err := old.File()
		if err != nil {
			t.Fatal(err)
		}
		l, err := FileListener(f)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	refused, successor := inherit(), inherit()
	if err := refused.Close(); err != nil {
		t.Error(err)
	}
	dial(t, path)
	other, _ := accepting(successor)
	<-other
	if err := successor.Own(); err != nil {
		t.Error(err)
	}
	old.Leave()
	old.Hold(false) // changes nothing any more
	if err := old.Close(); err != nil {
		t.Error(err)
	}
	if err := <-ended; !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
	dial(t, path)
	<-other
	if err := successor.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the path is left: %v", err)
	}
}

// TestOnlySocketsArePassed has a listener without a descriptor.
func TestOnlySocketsArePassed(t *testing.T) {
	if _, err := NewListener(limitConns(nil, 1)); err == nil {
		t.Error("a listener without a descriptor was taken")
	}
}

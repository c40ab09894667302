package transport

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestSendFile has the kernel send a part of a file that no send buffer takes at once.
func TestSendFile(t *testing.T) {
	content := pattern(8 << 20)
	name := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(name, content, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	l := newLoop(t)
	const from, n = 1000, 8<<20 - 2000
	head := []byte("head of it ")
	var sent, waits int
	send := func(c Conn) {
		for sent < n {
			h, k, err := c.(FileSender).SendFile(head, int(f.Fd()), int64(from+sent), n-sent)
			head = head[h:]
			if sent += k; err == ErrAgain {
				waits++
				return
			}
			if err != nil || k == 0 {
				t.Error(k, err)
				break
			}
		}
		if _, k, err := c.(FileSender).SendFile(nil, int(f.Fd()), int64(len(content)), 10); k != 0 || err != nil {
			t.Errorf("behind the end: %d, %v", k, err)
		}
		if _, _, err := c.(FileSender).SendFile(nil, -1, 0, 10); err != unix.EBADF || c.Err() != nil {
			t.Errorf("no file: %v, connection %v", err, c.Err())
		}
		c.Close()
		if _, _, err := c.(FileSender).SendFile(nil, int(f.Fd()), 0, 10); err != ErrClosed {
			t.Errorf("closed: %v", err)
		}
	}
	li := listenLocal(t, l, func(c Conn) Handler {
		send(c)
		return handlerFunc(func(c Conn, ev Events) {
			if ev&Writable != 0 {
				send(c)
			}
		})
	})
	c := dialLocal(t, li.addr)
	got := make(chan []byte, 1)
	hold := make(chan struct{})
	go func() {
		<-hold
		b, _ := io.ReadAll(c)
		got <- b
	}()
	iterateUntil(t, l, "nothing was sent", func() bool { return waits > 0 })
	close(hold)
	iterateUntil(t, l, "not all was sent", func() bool { return sent == n })
	if b := <-got; !bytes.Equal(b, append([]byte("head of it "), content[from:from+n]...)) {
		t.Errorf("%d bytes of %d arrived, or others", len(b), n+11)
	}
}

// TestSendFileAfterReset: the connection fails as by a write.
func TestSendFileAfterReset(t *testing.T) {
	f, err := os.Open("sendfile_test.go")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	l := newLoop(t)
	failed := false
	li := listenLocal(t, l, func(c Conn) Handler {
		return handlerFunc(func(c Conn, ev Events) {
			if ev&Failed == 0 {
				return
			}
			failed = true
			if _, _, err := c.(FileSender).SendFile(nil, int(f.Fd()), 0, 10); !errors.Is(err, unix.ECONNRESET) {
				t.Errorf("%v, want a reset", err)
			}
		})
	})
	c := dialLocal(t, li.addr)
	_ = c.(interface{ SetLinger(int) error }).SetLinger(0)
	iterateUntil(t, l, "no connection", func() bool { return l.stats.open.Load() == 1 })
	_ = c.Close()
	iterateUntil(t, l, "no reset", func() bool { return failed })
}

package statesync

import (
	"bytes"
	"errors"
	"io"
	"net"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/l4/datapath"
)

// windowed is a record with windows.
func windowed() datapath.Record {
	r := record(1)
	r.Windows = datapath.Windows{Known: true, Loose: true, Scales: 0x72}
	for i := range r.Windows.Sides {
		n := uint32(i) << 31
		r.Windows.Sides[i] = datapath.Window{End: n + 1, Limit: n + 65536, Most: 1 << 20, Acked: ^n}
	}
	return r
}

func TestRecordsOfVersion2HaveWindows(t *testing.T) {
	want := windowed()
	b := appendRecord(nil, &want, 2)
	got, rest, err := parseRecord(b, 2)
	if err != nil || len(rest) != 0 || !reflect.DeepEqual(got, want) || len(b) > maxRecord {
		t.Errorf("%+v, %d bytes are left of %d: %v", got, len(rest), len(b), err)
	}
	for n := range b {
		if _, _, err := parseRecord(b[:n], 2); !errors.Is(err, ErrFormat) {
			t.Errorf("%d of %d bytes: %v", n, len(b), err)
		}
	}
	old := appendRecord(nil, &want, 1)
	if got, _, err := parseRecord(old, 1); err != nil || got.Windows != (datapath.Windows{}) || len(old) != len(b)-windowsLen {
		t.Errorf("version 1: %+v of %d bytes: %v", got, len(old), err)
	}
	if _, _, err := parseRecord(b, 1); !errors.Is(err, ErrFormat) {
		t.Errorf("a record of version 2 is read as one of version 1: %v", err)
	}
}

// oldSession is newSession of version 1: both sides speak at once, and hang up on any other version.
func oldSession(conn net.Conn, key []byte, dialer bool) (*session, error) {
	mine := append(append(bytes.Clone(magic[:]), 1), bytes.Repeat([]byte{7}, 32)...)
	theirs := make([]byte, helloLen)
	if _, err := conn.Write(mine); err != nil {
		return nil, err
	}
	if _, err := io.ReadFull(conn, theirs); err != nil {
		return nil, err
	}
	if theirs[4] != 1 {
		return nil, ErrVersion
	}
	first, second := mine[5:], theirs[5:]
	if !dialer {
		first, second = second, first
	}
	salt := append(bytes.Clone(first), second...)
	up, err := newAEAD(key, salt, "millrace state sync 1, to the listener")
	if err != nil {
		return nil, err
	}
	down, err := newAEAD(key, salt, "millrace state sync 1, to the dialer")
	if err != nil {
		return nil, err
	}
	s := &session{conn: conn, version: 1, send: up, recv: down, in: make([]byte, maxFrame)}
	if !dialer {
		s.send, s.recv = down, up
	}
	return s, nil
}

// oldAgree is agree of version 1.
func oldAgree(s *session, index uint8) error {
	if err := s.write([]byte{typeConfig, index, 0, 2, 4, 0, 255, 255}); err != nil {
		return err
	}
	b, err := s.read()
	if err == nil && (len(b) != 8 || b[0] != typeConfig || b[1] == index || !bytes.Equal(b[2:], []byte{0, 2, 4, 0, 255, 255})) {
		err = ErrFormat
	}
	return err
}

// A gateway of version 1 gets the connections of this one, without windows, and this one gets its.
func TestAGatewayOfVersion1IsUnderstood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, from := newNetwork(), newModel(0)
		from.conns = []datapath.Record{windowed()}
		l := n.listen(hosts[1])
		received := make(chan []byte, 16)
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				s, err := oldSession(c, testKey(1), false)
				if err == nil {
					err = oldAgree(s, 1)
				}
				for err == nil {
					var b []byte
					if b, err = s.read(); err == nil && b[0] == typeRecords {
						received <- bytes.Clone(b[1:])
					}
				}
				c.Close()
			}
		}()
		a := n.start(t, 0, from)
		select {
		case b := <-received:
			want := windowed()
			want.Windows = datapath.Windows{}
			list, err := parseRecords(nil, b, 1)
			for i := range list {
				list[i].Idle = want.Idle
			}
			if err != nil || len(list) != 1 || !reflect.DeepEqual(list[0], want) {
				t.Errorf("version 1 gets %+v: %v", list, err)
			}
		case <-time.After(time.Minute):
			t.Error("the gateway of version 1 gets nothing")
		}
		_ = a

		c, err := n.dial(t.Context(), hosts[1], hosts[0])
		if err != nil {
			t.Fatal(err)
		}
		s, err := oldSession(c, testKey(1), true)
		if err == nil {
			err = oldAgree(s, 1)
		}
		if err == nil {
			r := record(2)
			err = s.write(appendRecord([]byte{typeRecords}, &r, 1))
		}
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		from.mu.Lock()
		if _, ok := from.received[record(2).Client]; !ok {
			t.Error("a record of version 1 is not entered")
		}
		from.mu.Unlock()
		c.Close()
		l.Close()
	})
}

// Two gateways of version 2 cannot be led to version 1: the agreement, which is sealed, says what they understand.
func TestNoneIsLedToAnOlderVersion(t *testing.T) {
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	result := make(chan error, 1)
	go func() {
		s, err := newSession(b, testKey(1), false, version)
		if err == nil {
			err = s.agree(Agreement{Index: 1})
		}
		b.Close()
		result <- err
	}()
	s, err := newSession(a, testKey(1), true, 1) // as if the answer had said 1
	if err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = s.read() }()
	go func() { _ = s.write([]byte{typeConfig, speaksLater, 0, 0, 0, 0, 0, 0}) }()
	if err := <-result; !errors.Is(err, ErrVersion) {
		t.Errorf("the listener: %v", err)
	}
}

// A peer is in step while it is heard and has sent all, and not before or after.
func TestAPeerIsInStepWhileItIsHeard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer(Config{Table: newModel(0), Key: testKey(1)}, nil)
		x, y := net.Pipe()
		ended := make(chan error, 1)
		go func() {
			s, err := newSession(y, testKey(1), false, version)
			if err == nil {
				err = p.receiveFrom(s)
			}
			ended <- err
		}()
		s, err := newSession(x, testKey(1), true, version)
		if err != nil {
			t.Fatal(err)
		}
		beat := func(done byte) {
			if err := s.write(append([]byte{typeHeartbeat, done}, make([]byte, 8)...)); err != nil {
				t.Fatal(err)
			}
			if _, err := s.read(); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		for _, step := range []struct {
			done byte
			want bool
		}{{0, false}, {1, true}, {0, false}, {1, true}} {
			if beat(step.done); p.InStep() != step.want {
				t.Errorf("after a heartbeat with %d: in step is %v", step.done, p.InStep())
			}
		}
		time.Sleep(lateAfter - time.Millisecond)
		if !p.InStep() {
			t.Error("not in step before two heartbeats are missing")
		}
		time.Sleep(2 * time.Millisecond)
		if p.InStep() {
			t.Error("a silent peer is in step")
		}
		beat(1)
		x.Close()
		if <-ended; p.InStep() {
			t.Error("in step without a stream")
		}
	})
}

package vhostuser

import (
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"golang.org/x/sys/unix"
)

// pipe returns two ends of a connection.
func pipe(t testing.TB) (raw *net.UnixConn, c *Conn) {
	t.Helper()
	dir, err := os.MkdirTemp("", "vu")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	addr := &net.UnixAddr{Name: filepath.Join(dir, "s"), Net: "unix"}
	l, err := net.ListenUnix("unix", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if raw, err = net.DialUnix("unix", nil, addr); err != nil {
		t.Fatal(err)
	}
	far, err := l.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { raw.Close(); far.Close() })
	return raw, NewConn(far)
}

// TestMessagesArriveAsTheyWereSent sends one of each form.
func TestMessagesArriveAsTheyWereSent(t *testing.T) {
	raw, c := pipe(t)
	out := NewConn(raw)
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	regions := []MemRegion{{1, 2, 3, 4}, {5, 6, 7, 8}}
	addr := VringAddr{1, 0, 2, 3, 4, 5}
	for _, m := range []Message{
		{Request: GetFeatures},
		{Request: SetFeatures, Payload: U64Payload(1 << 63), NeedReply: true},
		{Request: SetMemTable, Payload: MemTablePayload(regions), FDs: []int{fd, fd}},
		{Request: AddMemReg, Payload: MemRegPayload(regions[0]), FDs: []int{fd}},
		{Request: SetVringAddr, Payload: addr.Append(nil)},
		{Request: SetVringNum, Payload: VringState{1, 256}.Append(nil)},
		{Request: SetVringKick, Payload: U64Payload(3), FDs: []int{fd}},
		{Request: SetVringCall, Payload: U64Payload(3 | 1<<8)},
		{Request: GetVringBase, Reply: true, Payload: VringState{0, 7}.Append(nil)},
	} {
		if err := out.Send(&m); err != nil {
			t.Fatal(err)
		}
		got, err := c.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if got.Request != m.Request || got.Reply != m.Reply || got.NeedReply != m.NeedReply || string(got.Payload) != string(m.Payload) || len(got.FDs) != len(m.FDs) {
			t.Errorf("%v: %+v", m.Request, got)
		}
		check := func(v any, err error, want any) {
			if err != nil || !reflect.DeepEqual(v, want) {
				t.Errorf("%v: %+v, %v", m.Request, v, err)
			}
		}
		switch m.Request {
		case SetFeatures:
			v, err := got.U64()
			check(v, err, uint64(1<<63))
		case SetMemTable:
			v, err := got.MemTable()
			check(v, err, regions)
		case AddMemReg:
			v, err := got.MemReg()
			check(v, err, regions[0])
		case SetVringAddr:
			v, err := got.VringAddr()
			check(v, err, addr)
		case SetVringNum:
			v, err := got.VringState()
			check(v, err, VringState{1, 256})
		case SetVringKick:
			v, err := got.VringFD()
			check(v, err, VringFD{3, got.FDs[0]})
		case SetVringCall:
			v, err := got.VringFD()
			check(v, err, VringFD{3, -1})
		}
		got.CloseFDs()
	}
	raw.Close()
	if _, err := c.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("at the end: %v", err)
	}
}

// TestWrongMessages sends what breaks the protocol: an error, and no file stays open.
func TestWrongMessages(t *testing.T) {
	head := func(request, flags, size byte) []byte { return []byte{request, 0, 0, 0, flags, 0, 0, 0, size, 0, 0, 0} }
	for what, c := range map[string]struct {
		data  []byte
		files int
	}{
		"half a header":        {head(1, 1, 0)[:7], 0},
		"half a payload":       {append(head(2, 1, 8), 1, 2, 3), 1},
		"another version":      {head(1, 2, 0), 1},
		"a long payload":       {[]byte{1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1, 0}, 1},
		"too many descriptors": {head(1, 1, 0), 9},
	} {
		raw, conn := pipe(t)
		before := open(t)
		var fds []int
		for range c.files {
			fds = append(fds, 0)
		}
		var oob []byte
		if len(fds) > 0 {
			oob = unix.UnixRights(fds...)
		}
		if _, _, err := raw.WriteMsgUnix(c.data, oob, nil); err != nil {
			t.Fatal(err)
		}
		if err := raw.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if m, err := conn.Recv(); !errors.Is(err, ErrProtocol) {
			t.Errorf("%s: %+v, %v", what, m, err)
		}
		if after := open(t); after != before {
			t.Errorf("%s: %d files are open, and %d were", what, after, before)
		}
	}
	fds := []int{3}
	for what, err := range map[string]error{
		"a table without its descriptors": second(&Message{Payload: MemTablePayload(make([]MemRegion, 1))}, (*Message).MemTable),
		"a table that is cut":             second(&Message{FDs: fds, Payload: MemTablePayload(make([]MemRegion, 1))[:39]}, (*Message).MemTable),
		"nine regions":                    second(&Message{FDs: make([]int, 9), Payload: MemTablePayload(make([]MemRegion, 9))}, (*Message).MemTable),
		"an empty table":                  second(&Message{}, (*Message).MemTable),
		"a region that is cut":            second(&Message{FDs: fds, Payload: make([]byte, 39)}, (*Message).MemReg),
		"a short number":                  second(&Message{Payload: make([]byte, 7)}, (*Message).U64),
		"a long state":                    second(&Message{Payload: make([]byte, 9)}, (*Message).VringState),
		"a short address":                 second(&Message{Payload: make([]byte, 39)}, (*Message).VringAddr),
		"a file that is missing":          second(&Message{Payload: U64Payload(1)}, (*Message).VringFD),
		"a file too many":                 second(&Message{FDs: fds, Payload: U64Payload(1 << 8)}, (*Message).VringFD),
		"other bits":                      second(&Message{FDs: fds, Payload: U64Payload(1 << 9)}, (*Message).VringFD),
	} {
		if !errors.Is(err, ErrProtocol) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func second[T any](m *Message, f func(*Message) (T, error)) error {
	_, err := f(m)
	return err
}

func open(t testing.TB) int {
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// FuzzParse parses any payload as that of each request, with any number of files.
func FuzzParse(f *testing.F) {
	f.Add(byte(1), MemTablePayload([]MemRegion{{1, 2, 3, 4}}))
	f.Add(byte(0), U64Payload(1<<8))
	f.Fuzz(func(t *testing.T, files byte, p []byte) {
		m := &Message{Request: SetMemTable, Payload: p, FDs: make([]int, files%10)}
		if list, err := m.MemTable(); err == nil && (len(list) != len(m.FDs) || len(p) < 8+32*len(list)) {
			t.Errorf("%d regions of %d bytes", len(list), len(p))
		}
		if r, err := m.MemReg(); err == nil && string(MemRegPayload(r))[8:] != string(p[8:]) {
			t.Error(r)
		}
		if v, err := m.U64(); err == nil && string(U64Payload(v)) != string(p) {
			t.Error(v)
		}
		if v, err := m.VringState(); err == nil && string(v.Append(nil)) != string(p) {
			t.Error(v)
		}
		if v, err := m.VringAddr(); err == nil && string(v.Append(nil)) != string(p) {
			t.Error(v)
		}
		if v, err := m.VringFD(); err == nil && (v.Index > 255 || (v.FD < 0) != (len(m.FDs) == 0)) {
			t.Error(v)
		}
	})
}

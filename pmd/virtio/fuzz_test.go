package virtio

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/pmd/virtio/vhostuser"
)

// secret fills the page of the guest's file that is not in its region, as memory of others would lie beside it.
const secret = 0xC5

// FuzzGuest runs a guest that writes anything to its rings and buffers between calls of Rx and Tx. Each step of the input is an
// operation, two bytes of where and a byte of what. The process lives, no frame is lost, nothing outside of the region is read
// or written, and an error is that the link is down.
func FuzzGuest(f *testing.F) {
	f.Add([]byte{0, 1, 0, 0, 60, 2, 0, 0, 0})
	f.Add([]byte{1, 1, 0, 0, 60, 3, 0, 0, 60, 0, 0, 14, 0xff, 2, 0, 0, 0})
	f.Add([]byte{2, 0, 4, 2, 9, 2, 0, 0, 0, 5, 0, 0, 0, 4, 0, 0, 80, 3, 0, 0, 80})
	f.Add([]byte{3, 6, 0, 0, 1, 2, 0, 0, 0, 3, 0, 0, 9})
	f.Fuzz(func(t *testing.T, in []byte) {
		if len(in) == 0 || len(in) > 1<<10 {
			return
		}
		features := uint64(featureIndirect)
		if in[0]&1 != 0 {
			features |= featurePacked
		}
		if in[0]&2 != 0 {
			features |= featureMrgRxbuf | featureEventIdx
		}
		if in[0]&4 != 0 {
			features |= featuresToDevice | featuresToDriver
		}
		g := newGuest(t, features)
		canary := g.mem[testMem:]
		for i := range canary {
			canary[i] = secret
		}
		for in = in[1:]; len(in) >= 4; in = in[4:] {
			g.step(in[0], int(binary.BigEndian.Uint16(in[1:])), in[3])
		}
		for _, c := range canary {
			if c != secret {
				t.Fatal("memory outside of the region was written")
			}
		}
		if n := g.pool.Free(); n != g.pool.Size() {
			t.Fatalf("%d of %d frames are free", n, g.pool.Size())
		}
	})
}

// step does one operation of the fuzzed guest.
func (g *guest) step(op byte, at int, v byte) {
	switch op % 8 {
	case 0: // a byte of the ring to the driver
		g.mem[g.offs[0]+at%4096] = v
	case 1: // a good packet
		if d := g.drivers[fromDriverRing]; d.Free() >= 2 {
			g.offer(fromDriverRing, item(testBufs+at, 12), item(testBufs+at, int(v)))
		}
	case 2:
		list, err := g.rx()
		g.expected(err)
		for _, p := range list {
			if bytes.Count(p, []byte{secret}) > len(p)/2 && g.mem[testMem] == secret {
				g.t.Fatalf("a packet of memory outside of the region: %x", p)
			}
		}
	case 3:
		_, err := g.tx(bytes.Repeat([]byte{v}, at%9000))
		g.expected(err)
	case 4: // a good buffer
		if d := g.drivers[toDriverRing]; d.Free() >= 1 {
			g.offer(toDriverRing, item(testBufs+at, 1+16*int(v)))
		}
	case 5: // a byte of the ring from the driver
		g.mem[g.offs[1]+at%4096] = v
	case 6: // a descriptor: anywhere near the ends of the region
		d := g.mem[g.offs[at%2]+16*(at/2%testSize):]
		addr := uint64(testGuest+testMem) + uint64(int8(v))*1021
		binary.LittleEndian.PutUint64(d, addr)
		binary.LittleEndian.PutUint32(d[8:], uint32(at)*7)
	default: // a buffer's bytes: headers and indirect tables
		if v == secret {
			v = 0
		}
		g.mem[testBufs+at%4096] = v
	}
}

func (g *guest) expected(err error) {
	if err != nil && !errors.Is(err, pmd.ErrDown) {
		g.t.Fatal(err)
	}
}

// FuzzSession sends anything as messages of a front end: requests with files that fit them or do not. The session ends with an error or
// goes on; afterwards no file is open that was not before.
func FuzzSession(f *testing.F) {
	f.Add([]byte{byte(vhostuser.SetFeatures), 0, 8, 0, 0, 0, 0, 1, 0, 0, 0})
	f.Add([]byte{byte(vhostuser.SetMemTable), 1, 40, 1, 0, 0, 0})
	f.Add([]byte{byte(vhostuser.SetVringKick), 2, 8, 0, 0, 0, 0, 0, 0, 0, 0, byte(vhostuser.GetVringBase), 0, 8})
	f.Fuzz(func(t *testing.T, in []byte) {
		if len(in) > 1<<12 {
			return
		}
		g := newGuest(t, featurePacked)
		files := []int{g.fd}
		for range 2 {
			e, err := newEventfd()
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, e)
			defer unix.Close(e)
		}
		before := openFiles(t)
		s, far := g.connect()
		var ends sync.WaitGroup
		ends.Add(2)
		go func() { // beside the session: neither waits for the other's buffer
			defer ends.Done()
			for len(in) >= 3 {
				m := vhostuser.Message{Request: vhostuser.Request(in[0] % 48), NeedReply: in[1]&0x80 != 0}
				for range in[1] % 10 {
					m.FDs = append(m.FDs, files[int(in[2])%len(files)])
				}
				n := min(int(in[2]), len(in)-3)
				m.Payload = in[3:][:n]
				in = in[3+n:]
				if far.send(&m) != nil {
					break
				}
			}
			_ = far.sock.CloseWrite()
		}()
		go func() {
			defer ends.Done()
			_, _ = io.Copy(io.Discard, far.sock)
		}()
		err := s.run()
		s.end(err)
		if err == nil {
			t.Error("a session ends without an error")
		}
		_ = s.conn.Close()
		ends.Wait()
		far.sock.Close()
		if after := openFiles(t); after != before {
			t.Errorf("%d files are open, and %d were (%v)", after, before, err)
		}
	})
}

// farEnd is the socket of a front end.
type farEnd struct {
	sock *net.UnixConn
	conn *vhostuser.Conn
}

func (f *farEnd) send(m *vhostuser.Message) error { return f.conn.Send(m) }

// connect makes a session of the guest's device over a pair of sockets.
func (g *guest) connect() (*session, *farEnd) {
	g.t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		g.t.Fatal(err)
	}
	var ends [2]*net.UnixConn
	for i, fd := range fds {
		file := os.NewFile(uintptr(fd), "pair")
		c, err := net.FileConn(file)
		file.Close()
		if err != nil {
			g.t.Fatal(err)
		}
		ends[i] = c.(*net.UnixConn)
	}
	return newSession(g.b, vhostuser.NewConn(ends[0])), &farEnd{ends[1], vhostuser.NewConn(ends[1])}
}

func openFiles(t testing.TB) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

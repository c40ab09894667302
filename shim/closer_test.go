package shim

import (
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// slowToClose returns a descriptor whose last close takes some seconds: a connection with unsent data and SO_LINGER.
func slowToClose(t *testing.T, seconds int) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	at := l.Addr().(*net.TCPAddr)
	if err := unix.Connect(fd, &unix.SockaddrInet4{Port: at.Port, Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	for err == nil { // nobody reads
		_, err = unix.SendmsgN(fd, make([]byte, 1<<20), nil, nil, unix.MSG_DONTWAIT)
	}
	if err := unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1, Linger: int32(seconds)}); err != nil {
		t.Fatal(err)
	}
	return fd
}

// threads returns how many threads the process has.
func threads(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// TestSlowCloses: descriptors whose close takes long take one thread of the node, and count for the user's channels. Others are
// served meanwhile, and Close does not wait.
func TestSlowCloses(t *testing.T) {
	const passed = 24
	b := newBed(t, nil)
	_, token := b.another(70001)
	var channels []*client
	var fds []int
	for range passed {
		channels = append(channels, b.as(t, token))
		fds = append(fds, slowToClose(t, 3))
	}
	before, start := threads(t), time.Now()
	for i, c := range channels {
		data := []byte(nil) // no request: the channel ends
		if i%2 == 0 {
			var out [requestSize]byte
			q := request{op: opNames, id: 9}
			q.encode(out[:])
			data = out[:]
		}
		if err := unix.Sendmsg(c.fd, data, unix.UnixRights(fds[i]), nil, unix.MSG_NOSIGNAL); err != nil {
			t.Fatal(err)
		}
		unix.Close(fds[i])
	}
	b.works(t)
	if n := b.Stats().Channels; n < passed-1 {
		t.Errorf("%d channels count, of %d", n, passed)
	}
	if n := threads(t); n > before+8 {
		t.Errorf("%d threads for %d descriptors", n-before, passed)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if d := time.Since(start); d > 20*time.Second { // one after the other they take longer
		t.Errorf("Close waited for strangers: %v", d)
	}
}

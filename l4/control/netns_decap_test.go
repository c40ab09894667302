package control_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/internal/testkit/testnet"
)

// decapsulator is the receiving end of tunnels in a namespace: what `ip link add type ipip`, sit,
// ip6tnl and `ip fou add gue` are on kernels that have them. Raw sockets take protocols 4 and 41
// and a UDP socket takes GUE, so that the kernel's own IP and UDP verify the outer headers; the inner
// packets go into a tun device, whose kernel verifies them.
type decapsulator struct {
	tun   *os.File
	inner atomic.Int64
}

// receiveTunnels starts a decapsulator in ns.
func receiveTunnels(t *testing.T, ns *testnet.Namespace, guePort int) *decapsulator {
	t.Helper()
	d := &decapsulator{}
	err := ns.Do(func() (err error) {
		if d.tun, err = openTun("decap0"); err != nil {
			return err
		}
		for _, network := range []string{"ip4:4", "ip4:41", "ip6:4", "ip6:41"} {
			c, err := net.ListenPacket(network, "")
			if err != nil {
				return err
			}
			d.pump(t, c, 0)
		}
		c, err := net.ListenPacket("udp", fmt.Sprintf(":%d", guePort))
		if err != nil {
			return err
		}
		d.pump(t, c, 4)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.tun.Close() })
	if err := ns.Up("decap0"); err != nil {
		t.Fatal(err)
	}
	return d
}

// pump moves packets from c, skip bytes after the outer header, into the tun device.
func (d *decapsulator) pump(t *testing.T, c net.PacketConn, skip int) {
	t.Cleanup(func() { c.Close() })
	if b, ok := c.(interface{ SetReadBuffer(int) error }); ok {
		b.SetReadBuffer(8 << 20)
	}
	go func() {
		b := make([]byte, 65536)
		for {
			n, _, err := c.ReadFrom(b)
			if err != nil {
				return
			}
			if n > skip {
				d.inner.Add(1)
				d.tun.Write(b[skip:n])
			}
		}
	}()
}

// openTun makes a tun device in the namespace of the calling thread.
func openTun(name string) (*os.File, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	var req struct {
		name  [unix.IFNAMSIZ]byte
		flags uint16
		_     [22]byte
	}
	copy(req.name[:], name)
	req.flags = unix.IFF_TUN | unix.IFF_NO_PI
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.TUNSETIFF, uintptr(unsafe.Pointer(&req))); errno != 0 {
		unix.Close(fd)
		return nil, fmt.Errorf("make %s: %w", name, errno)
	}
	return os.NewFile(uintptr(fd), name), nil
}

// capture is tcpdump on an interface.
type capture struct {
	t    *testing.T
	cmd  *exec.Cmd
	file string
}

// record starts a capture of ns's interface dev.
func record(t *testing.T, ns *testnet.Namespace, dev string, filter ...string) *capture {
	t.Helper()
	c := &capture{t: t, file: filepath.Join(t.TempDir(), ns.Name+"-"+dev+".pcap")}
	c.cmd = exec.Command("tcpdump", append([]string{"-i", dev, "-n", "-U", "-s", "0", "-B", "65536", "-w", c.file}, filter...)...)
	if err := ns.Start(c.cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.cmd.Process.Kill() })
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if st, err := os.Stat(c.file); err == nil && st.Size() >= 24 {
			return c
		}
		if time.Now().After(end) {
			t.Fatal("tcpdump does not start")
		}
	}
}

// stop ends the capture and returns its file.
func (c *capture) stop() string {
	c.t.Helper()
	time.Sleep(50 * time.Millisecond) // what the kernel still holds
	c.cmd.Process.Signal(syscall.SIGINT)
	if err := c.cmd.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		c.t.Error(err)
	}
	return c.file
}

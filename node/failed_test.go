package node

import (
	"errors"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/internal/testkit/testnet"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd/device"
)

// A driver that ends while its interface is up is noticed, reported and opened again, under whatever name the interface
// has: a file that is no packet socket takes the place of the driver's.
func TestADriverThatEndsIsOpenedAgain(t *testing.T) {
	nets := testnet.For(t, "mr-failed")
	a, b := nets.Namespace("a"), nets.Namespace("b")
	if err := errors.Join(nets.Link(a, "eth0", b, "eth0"), a.Up("eth0"), b.Up("eth0", "198.18.0.1/24")); err != nil {
		t.Fatal(err)
	}
	var log testnet.Log
	var n *Node
	err := a.Do(func() (err error) {
		n, err = Open(Config{
			Loops: 1, Devices: []Device{{Name: "eth0", Driver: device.AFPacket, All: true}},
			Log: slog.New(slog.NewTextHandler(&log, nil)),
		})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Add(Service{Name: "a", Handlers: handlers(1, packet.DropRule)}); err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() { done <- n.Run(t.Context()) }()
	defer func() {
		n.Stop()
		if err := errors.Join(<-done, n.Close()); err != nil {
			t.Error(err)
		}
	}()
	logged := func(text string) {
		t.Helper()
		for end := time.Now().Add(20 * time.Second); !strings.Contains(log.String(), text); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("not logged: %s\n%s", text, log.String())
			}
		}
	}
	receives := func() {
		t.Helper()
		before := n.Stats().Received
		for end := time.Now().Add(20 * time.Second); n.Stats().Received == before; time.Sleep(5 * time.Millisecond) {
			if err := b.Do(func() error { return shout("198.18.0.255:9") }); err != nil || time.Now().After(end) {
				t.Fatal("nothing is received", err)
			}
		}
	}
	receives()
	if out, err := a.Run("ip", "link", "set", "eth0", "name", "other0"); err != nil {
		t.Fatal(out, err)
	}
	logged("renamed=other0")
	receives()
	breakDriver(t, n)
	logged(`state="not receiving"`)
	logged("level=ERROR msg=device name=eth0 error=")
	logged("msg=link device=eth0 state=up")
	receives()
	if l := n.Links()[0]; l.State != LinkUp || l.Name != "eth0" {
		t.Errorf("%+v", l)
	}
	if err := n.driverError(0); err != nil {
		t.Errorf("the new driver has the error of the old one: %v", err)
	}
}

// breakDriver puts another file in the place of the driver's socket.
func breakDriver(t *testing.T, n *Node) {
	t.Helper()
	fd, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Dup3(fd, n.Info(0).FD, unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
}

// shout sends a datagram to a broadcast address.
func shout(to string) error {
	c, err := net.Dial("udp", to)
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = c.Write([]byte("datagram"))
	return err
}

// TestDevicesAreSuspendedForAnotherProcess closes the devices and opens them again; another node has them meanwhile, which ends late.
func TestDevicesAreSuspendedForAnotherProcess(t *testing.T) {
	nets := testnet.For(t, "mr-suspended")
	a, b := nets.Namespace("a"), nets.Namespace("b")
	if err := errors.Join(nets.Link(a, "eth0", b, "eth0"), a.Up("eth0"), b.Up("eth0", "198.18.0.1/24")); err != nil {
		t.Fatal(err)
	}
	var log testnet.Log
	open := func(before func() error) *Node {
		t.Helper()
		var n *Node
		err := a.Do(func() (err error) {
			n, err = Open(Config{
				Loops: 1, Devices: []Device{{Name: "eth0", Driver: device.AFXDP, All: true}}, BeforeDevices: before,
				Log: slog.New(slog.NewTextHandler(&log, nil)),
			})
			return err
		})
		if err == nil {
			err = n.Add(Service{Name: "a", Handlers: handlers(1, packet.DropRule)})
		}
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	run := func(n *Node) (end func()) {
		done := make(chan error, 1)
		go func() { done <- n.Run(t.Context()) }()
		return func() {
			t.Helper()
			n.Stop()
			if err := errors.Join(<-done, n.Close()); err != nil {
				t.Error(err)
			}
		}
	}
	receives := func(n *Node) {
		t.Helper()
		before := n.Stats().Received
		for end := time.Now().Add(20 * time.Second); n.Stats().Received == before; time.Sleep(5 * time.Millisecond) {
			if err := b.Do(func() error { return shout("198.18.0.255:9") }); err != nil || time.Now().After(end) {
				t.Fatal("nothing is received", err)
			}
		}
	}
	first := open(nil)
	defer run(first)()
	receives(first)
	second := open(first.SuspendDevices)
	endSecond := run(second)
	receives(second)
	before := first.Stats().Received
	time.Sleep(1500 * time.Millisecond) // longer than updateEvery: devices that are suspended are not opened by themselves
	receives(second)
	if n := first.Stats().Received; n != before {
		t.Errorf("a node whose devices are suspended has received %d packets", n-before)
	}
	time.AfterFunc(50*time.Millisecond, endSecond)
	first.ResumeDevices()
	receives(first)
	if strings.Contains(log.String(), "level=ERROR") {
		t.Error(log.String())
	}
}

package stackd

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/testkit/testnet"
)

// TestQuickRestarts ends a host and starts the next with the same configuration at once, 20 times. Every tenth has a client that
// makes it take its time: the next waits for the device and says so.
func TestQuickRestarts(t *testing.T) {
	n := testnet.For(t, "mr-stack-restart")
	linux, ours := n.Namespace("linux"), n.Namespace("ours")
	if err := errors.Join(n.Link(linux, "eth0", ours, "st0"), linux.NoOffload("eth0"), ours.NoOffload("st0"),
		linux.Up("eth0", linux4+"/24"), ours.Up("st0")); err != nil {
		t.Fatal(err)
	}
	v := NewDevice("st0")
	v.Driver, v.Addresses = "afxdp", []netip.Prefix{netip.MustParsePrefix(host4 + "/24")}
	cfg := New()
	cfg.Devices, cfg.Services, cfg.Control.Socket = []Device{v}, AllServices(), t.TempDir()+"/stack.sock"

	s := &site{t: t, linux: linux, ours: ours}
	before := make(chan error, 1) // the end of the host before
	before <- nil
	for i := range 20 {
		var log testnet.Log
		err := ours.Do(func() (err error) {
			s.d, err = Open(cfg, Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
			return err
		})
		if err := errors.Join(err, <-before); err != nil {
			t.Fatalf("restart %d: %v\n%s", i, err, &log)
		}
		waited := strings.Contains(log.String(), "state=busy")
		if i%10 == 6 && !waited { // the others may wait, on a busy machine
			t.Errorf("restart %d did not wait for the host before\n%s", i, &log)
		}
		ctx, stop := context.WithCancel(context.Background())
		ran := make(chan error, 1)
		go func() { ran <- s.d.Run(ctx) }()
		c, err := s.dial("tcp", net.JoinHostPort(host4, "7"))
		if err != nil {
			t.Fatalf("restart %d: %v", i, err)
		}
		if _, err := c.Write([]byte("x")); err != nil {
			t.Error(err)
		}
		if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
			t.Error(err)
		}
		if i%10 == 5 {
			defer c.Close() // the service waits for it
		} else {
			c.Close()
		}
		stop()
		d := s.d
		if err := <-ran; err != nil {
			t.Error(err)
		}
		go func() { before <- d.Close() }()
	}
	if err := <-before; err != nil {
		t.Error(err)
	}
}

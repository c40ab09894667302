package device_test

import (
	"runtime"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/pmd/device"
)

// TestQueuesKeepTheDeviceAttached drops the Device and keeps its queues, as a program may that only polls
// them. What steers packets to the queues must not be collected before they are.
func TestQueuesKeepTheDeviceAttached(t *testing.T) {
	ns := site(t)
	var queues []pmd.Driver
	err := ns.Do(func() error {
		arena, pools, err := device.NewArena(2, device.Config{Name: "eth0"})
		if err != nil {
			return err
		}
		t.Cleanup(func() { _ = arena.Close() })
		d, err := device.Open(device.Config{Name: "eth0", Driver: device.AFXDP, Pools: pools})
		if err == nil {
			queues = d.Queues
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for range 5 {
		runtime.GC()
		time.Sleep(20 * time.Millisecond) // finalizers and cleanups run on a goroutine of their own
	}
	err = ns.Do(func() error {
		link, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		if x := link.Attrs().Xdp; x == nil || !x.Attached {
			t.Error("the XDP program is gone after garbage collection")
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	for _, q := range queues {
		if err := q.Close(); err != nil {
			t.Error(err)
		}
	}
}

package device_test

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/millrace/millrace/internal/testkit/testnet"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/pmd/device"
	"github.com/millrace/millrace/ring"
)

// site is a namespace with a veth eth0 of two queues, whose peer is far away.
func site(t *testing.T) *testnet.Namespace {
	t.Helper()
	n := testnet.For(t, "mr-device")
	here, there := n.Namespace("here"), n.Namespace("there")
	if err := n.LinkQueues(here, "eth0", there, "eth0", 2); err != nil {
		t.Fatal(err)
	}
	if err := here.Up("eth0"); err != nil {
		t.Fatal(err)
	}
	return here
}

// open opens eth0 in the namespace, closes it and audits the frames.
func open(t *testing.T, ns *testnet.Namespace, loops int, cfg device.Config, look func(*device.Device)) error {
	t.Helper()
	return ns.Do(func() error {
		arena, pools, err := device.NewArena(loops, device.Config{Name: "eth0", Ring: cfg.Ring})
		if err != nil {
			return err
		}
		defer arena.Close()
		cfg.Name, cfg.Pools = "eth0", pools
		d, err := device.Open(cfg)
		if err == nil {
			look(d)
			err = d.Close()
		}
		holders := make([]ring.Holder, len(pools))
		for i, p := range pools {
			holders[i] = p
		}
		return errors.Join(err, ring.Audit(arena, holders...))
	})
}

func TestEachDriverOpensOneQueueForEachPool(t *testing.T) {
	ns := site(t)
	for _, name := range []device.Driver{device.AFXDP, device.AFPacket, device.Auto, ""} {
		err := open(t, ns, 2, device.Config{Driver: name, All: true}, func(d *device.Device) {
			want := name
			if name == device.Auto || name == "" {
				want = device.AFXDP
			}
			if d.Driver != want || d.Why != "" || len(d.Queues) != 2 || d.Queues[1].Info().Driver != string(want) {
				t.Errorf("%q: driver %s, why %q, %d queues", name, d.Driver, d.Why, len(d.Queues))
			}
		})
		if err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestModesReachTheKernel(t *testing.T) {
	ns := site(t)
	for _, mode := range []string{"native", "generic"} {
		err := open(t, ns, 2, device.Config{Driver: device.AFXDP, Mode: mode}, func(d *device.Device) {
			if g := d.Queues[0].Info().Negotiated; !strings.HasPrefix(g, mode) {
				t.Errorf("granted %q, want %s", g, mode)
			}
		})
		if err != nil {
			t.Errorf("%s: %v", mode, err)
		}
	}
}

func TestRulesCanBeReplacedWhileOpen(t *testing.T) {
	ns := site(t)
	for _, name := range []device.Driver{device.AFXDP, device.AFPacket} {
		err := open(t, ns, 2, device.Config{Driver: name}, func(d *device.Device) {
			good := pmd.Rule{Addr: netip.MustParseAddr("198.18.0.10"), Proto: 6, PortLo: 80}
			if err := d.Steer(good); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if err := d.Steer(pmd.Rule{}); err == nil {
				t.Errorf("%s: a rule without an address was taken", name)
			}
		})
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestTooFewQueuesAreRejected(t *testing.T) {
	err := open(t, site(t), 1, device.Config{Driver: device.AFXDP}, func(*device.Device) { t.Error("opened") })
	for _, want := range []string{"receives on 2 queues, 1 are to be opened", "ethtool -L eth0 combined 1"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q in it", err, want)
		}
	}
}

func TestUnknownDriversAndModesAreRejected(t *testing.T) {
	for want, cfg := range map[string]device.Config{
		`no driver is called "dpdk"`: {Driver: "dpdk"},
		`XDP mode "fast"`:            {Mode: "fast"},
	} {
		if _, err := device.Open(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
}

func TestAutoHidesNoMissingOrBusyDevice(t *testing.T) {
	ns := site(t)
	err := ns.Do(func() error {
		_, pools, err := device.NewArena(1, device.Config{Name: "nothing"})
		if err != nil {
			return err
		}
		_, err = device.Open(device.Config{Name: "nothing", Pools: pools})
		return err
	})
	if !errors.Is(err, pmd.ErrGone) {
		t.Errorf("missing: %v", err)
	}
	err = open(t, ns, 2, device.Config{Driver: device.AFXDP}, func(*device.Device) {
		again := open(t, ns, 2, device.Config{}, func(d *device.Device) { t.Errorf("opened twice, by %s", d.Driver) })
		if !errors.Is(again, pmd.ErrBusy) {
			t.Errorf("busy: %v", again)
		}
	})
	if err != nil {
		t.Error(err)
	}
}

// TestAutoFallsBackWithoutXDPPermission runs itself with CAP_NET_RAW and CAP_NET_ADMIN only: enough
// for AF_PACKET, not for loading an XDP program.
func TestAutoFallsBackWithoutXDPPermission(t *testing.T) {
	if os.Getenv("MILLRACE_TEST_FALLBACK") != "" {
		fallBack(t)
		return
	}
	testnet.Program(t, "setpriv")
	ns := site(t)
	cmd := exec.Command("setpriv", "--bounding-set=-all,+net_raw,+net_admin", "--inh-caps=-all,+net_raw,+net_admin",
		os.Args[0], "-test.run=^TestAutoFallsBackWithoutXDPPermission$", "-test.v")
	cmd.Env = append(os.Environ(), "MILLRACE_TEST_FALLBACK=1")
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := ns.Start(cmd); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v:\n%s", err, out.String())
	}
}

// fallBack is the part of the test without rights, in the namespace.
func fallBack(t *testing.T) {
	arena, pools, err := device.NewArena(2, device.Config{Name: "eth0"})
	if err != nil {
		t.Fatal(err)
	}
	defer arena.Close()
	d, err := device.Open(device.Config{Name: "eth0", Pools: pools, All: true})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if d.Driver != device.AFPacket || !strings.Contains(d.Why, "CAP_BPF") {
		t.Errorf("driver %s, why %q", d.Driver, d.Why)
	}
}

func TestFramesAreLargeEnoughForTheMTU(t *testing.T) {
	ns := site(t)
	for mtu, want := range map[int]int{1500: 2048, 1501: 4096, 9000: 4096} {
		err := ns.Do(func() error {
			link, err := netlink.LinkByName("eth0")
			if err != nil {
				return err
			}
			if err := netlink.LinkSetMTU(link, mtu); err != nil {
				return err
			}
			arena, pools, err := device.NewArena(2, device.Config{Name: "eth0"}, device.Config{Name: "not there yet", Ring: 4096})
			if err != nil {
				return err
			}
			defer arena.Close()
			if arena.FrameSize() != want || len(pools) != 2 || pools[1].Size() != 6*2048+4096-2048 {
				t.Errorf("MTU %d: frames of %d, %d pools of %d", mtu, arena.FrameSize(), len(pools), pools[1].Size())
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// TestRingReachesTheKernel asks the kernel how much the sockets of each driver can hold.
func TestRingReachesTheKernel(t *testing.T) {
	ns := site(t)
	for _, want := range []int{512, 2048, 32768} {
		cfg := device.Config{Driver: device.AFXDP, All: true, Ring: want}
		if want == device.DefaultRing {
			cfg.Ring = 0
		}
		err := open(t, ns, 2, cfg, func(d *device.Device) {
			maps, err := os.ReadFile("/proc/self/maps")
			if err != nil {
				t.Fatal(err)
			}
			// A ring has a header of less than a page. Descriptors are 16 bytes, the addresses of the fill ring 8.
			if rx, fill := mapped(string(maps), "00000000"), mapped(string(maps), "100000000"); rx != 2*(16*want+4096) || fill != 2*(8*want+4096) {
				t.Errorf("AF_XDP, ring %d: receive rings of %d bytes, fill rings of %d", want, rx, fill)
			}
		})
		if err != nil {
			t.Error(err)
		}
		cfg.Driver = device.AFPacket
		err = open(t, ns, 2, cfg, func(*device.Device) {
			out, err := ns.Run("ss", "-0", "-e")
			if ring := fmt.Sprintf("blk_size:131072,blk_nr:%d,", want*8192/131072); err != nil || strings.Count(out, ring) != 2 {
				t.Errorf("AF_PACKET, ring %d: %v\n%s", want, err, out)
			}
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// mapped returns how many bytes of sockets are mapped from an offset, by /proc/PID/maps.
func mapped(maps, offset string) (bytes int) {
	for line := range strings.Lines(maps) {
		f := strings.Fields(line)
		if len(f) < 6 || f[2] != offset || !strings.HasPrefix(f[5], "socket:") {
			continue
		}
		var from, to int
		if _, err := fmt.Sscanf(f[0], "%x-%x", &from, &to); err == nil {
			bytes += to - from
		}
	}
	return bytes
}

// TestReceiveRingIsFullOfFrames wants every packet of the ring to have a frame, whatever else the pool is for.
func TestReceiveRingIsFullOfFrames(t *testing.T) {
	err := site(t).Do(func() error {
		cfg := device.Config{Name: "eth0", Driver: device.AFXDP, Ring: 8192}
		arena, pools, err := device.NewArena(2, cfg)
		if err != nil {
			return err
		}
		defer arena.Close()
		cfg.Pools = pools
		d, err := device.Open(cfg)
		if err != nil {
			return err
		}
		for i, p := range pools {
			if held := p.Size() - p.Free(); held != 8192 {
				t.Errorf("the kernel holds %d frames of pool %d", held, i)
			}
		}
		return d.Close()
	})
	if err != nil {
		t.Error(err)
	}
}

func TestWrongRingsAreRejected(t *testing.T) {
	for _, n := range []int{-1, 1, 256, 1000, 2047, 65536} {
		want := fmt.Sprintf("a ring of %d packets: want a power of two from 512 to 32768", n)
		cfg := device.Config{Name: "nothing", Ring: n}
		if _, _, err := device.NewArena(1, cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("memory for %d: %v", n, err)
		}
		if _, err := device.Open(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("a device with %d: %v", n, err)
		}
	}
}

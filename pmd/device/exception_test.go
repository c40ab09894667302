package device_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/pmd/device"
	"github.com/millrace/millrace/pmd/dpdk"
	"github.com/millrace/millrace/ring"
)

// TestExceptionPathsThatCannotBe is refused before DPDK is asked, so that it needs none.
func TestExceptionPathsThatCannotBe(t *testing.T) {
	arena, err := ring.NewArena(ring.ArenaConfig{Frames: 64, FrameSize: 4096, Huge: ring.HugeOff})
	if err != nil {
		t.Fatal(err)
	}
	defer arena.Close()
	pool, err := arena.Cut(0)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		cfg  device.Config
		text string
	}{
		{device.Config{Name: "dpdk:net_af_packet0,iface=lo,exception=mr0"}, "take net_af_xdp"},
		{device.Config{Name: "dpdk:net_null0,exception=mr0", All: true}, "leave exception= out"},
		{device.Config{Name: "dpdk:net_af_xdp0,iface=nowhere0,exception=mr0"}, "interface nowhere0"},
		{device.Config{Name: "dpdk:net_null0,exception=mr0", Mode: "native"}, "the name selects the driver"},
	} {
		c.cfg.Pools = []*ring.Pool{pool}
		d, err := device.Open(c.cfg)
		if err == nil {
			t.Errorf("%s: opened", c.cfg.Name)
			d.Close()
			continue
		}
		var op *pmd.OpError
		if !errors.Is(err, dpdk.ErrArguments) || !errors.As(err, &op) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v", c.cfg.Name, err)
		}
	}
}

package daemon

import (
	"testing"

	"github.com/millrace/millrace/l4/datapath"
	"github.com/millrace/millrace/pmd/afpacket"
	"github.com/millrace/millrace/pmd/afxdp"
	"github.com/millrace/millrace/pmd/tap"
)

// The daemon opens every driver with its default headroom.
func TestDriversLeaveRoomForTunnels(t *testing.T) {
	for name, n := range map[string]int{
		"afxdp": afxdp.DefaultHeadroom, "afpacket": afpacket.DefaultHeadroom, "tap": tap.DefaultHeadroom,
	} {
		if n < datapath.Headroom {
			t.Errorf("%s leaves %d bytes, tunnels may need %d", name, n, datapath.Headroom)
		}
	}
}

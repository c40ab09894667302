package role

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"

	"github.com/millrace/millrace/bench/netpeer"
)

// openQUICBulk sends one stream between two UDP conns, both ends in this process. -as is who over what:
// "quic" or "quic-go", "millrace" or "kernel", and "plain" for no offloads, such as "quic millrace plain".
func openQUICBulk(o roleOptions) (roleWork, error) {
	runtime.GOMAXPROCS(1) // of the core that it has, as Go itself does
	who, over, _ := strings.Cut(o.as, " ")
	stack, plain := strings.CutSuffix(over, " plain")
	if plain && stack == "kernel" {
		// quic-go's own switch: the kernel's socket has UDP_SEGMENT by its type.
		if err := os.Setenv("QUIC_GO_DISABLE_GSO", "true"); err != nil {
			return roleWork{}, err
		}
	}
	p, err := netpeer.OpenPackets(stack)
	if err != nil {
		return roleWork{}, err
	}
	c := new(netpeer.Counters)
	ctx, cancel := context.WithCancel(context.Background())
	switch who {
	case "quic":
		err = netpeer.DriveMillraceQUIC(ctx, p, !plain, c)
	case "quic-go":
		err = netpeer.DriveQUIC(ctx, p, c)
	default:
		err = fmt.Errorf("no QUIC %q", who)
	}
	if err != nil {
		cancel()
		return roleWork{}, err
	}
	return profiled(o.profile, roleWork{
		version: buildVersions(),
		counts:  func() (map[string]uint64, error) { return withRuntime(c.Counts()), nil },
		stop:    func() error { cancel(); return nil },
		close:   p.Close,
	}, nil)
}

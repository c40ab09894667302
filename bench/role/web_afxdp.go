package role

import (
	"errors"
	"net/netip"

	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/l7/proxy"
	"github.com/millrace/millrace/l7/transport"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/pmd/device"
	"github.com/millrace/millrace/socket"
	"github.com/millrace/millrace/stack"
	"github.com/millrace/millrace/stack/host"
	"github.com/millrace/millrace/tcp"
)

// overAFXDP is one worker of package l7/proxy on one loop of our stack, over FrontDev with the address front and
// BackDev with back.
func overAFXDP(tree *proxy.Tree, front, back string) (stop func() error, err error) {
	arena, pools, err := device.NewArena(1, device.Config{Name: FrontDev}, device.Config{Name: BackDev})
	if err != nil {
		return nil, err
	}
	undo := []func() error{arena.Close}
	stop = func() error {
		var errs []error
		for i := len(undo) - 1; i >= 0; i-- {
			errs = append(errs, undo[i]())
		}
		return errors.Join(errs...)
	}
	var queues []pmd.Driver
	for _, name := range []string{FrontDev, BackDev} {
		dev, err := device.Open(device.Config{Name: name, Driver: device.AFXDP, Pools: pools, All: true})
		if err != nil {
			return nil, errors.Join(err, stop())
		}
		undo, queues = append(undo, dev.Close), append(queues, dev.Queues[0])
	}
	s, err := socket.New(socket.Config{
		Loops:     []stack.Config{{Devices: queues, Pool: pools[0], Engine: gpukern.NewCPU(gpukern.Config{})}},
		Host:      host.Config{TCP: tcp.Config{Budget: 1 << 30, MaxConns: 1 << 19}},
		Addrs:     []socket.Address{{Prefix: netip.MustParsePrefix(front)}, {Device: 1, Prefix: netip.MustParsePrefix(back)}},
		KeepAlive: -1,
	})
	if err != nil {
		return nil, errors.Join(err, stop())
	}
	undo = append(undo, s.Close)
	loop := transport.NewStackLoop(s.Group().Hosts[0])
	applied := make(chan error, 1)
	loop.Do(func() { applied <- proxy.NewWorker(loop, 0).Apply(tree) })
	if err := <-applied; err != nil {
		return nil, errors.Join(err, stop())
	}
	return stop, nil
}

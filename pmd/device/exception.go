package device

import (
	"errors"
	"fmt"

	"github.com/millrace/millrace/internal/devargs"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/pmd/dpdk"
	"github.com/millrace/millrace/pmd/exception"
)

// openExcepted opens a device of DPDK with an exception path: the kernel gets what no rule claims. Addresses and routes are
// read before DPDK takes the device, and with it perhaps the interface, away.
func openExcepted(cfg Config, iface string) (*Device, error) {
	if cfg.All {
		return nil, &pmd.OpError{
			Op: "open", Device: cfg.Name, Err: fmt.Errorf("every packet is taken, so none is left for exception=%s: %w", iface, dpdk.ErrArguments),
			Remedy: "leave exception= out",
		}
	}
	if a, err := devargs.Parse(cfg.Name); err == nil && a.Kind == "net_af_packet" {
		return nil, &pmd.OpError{
			Op: "open", Device: cfg.Name, Err: fmt.Errorf("the kernel gets every packet of net_af_packet anyway, so exception= would double them: %w", dpdk.ErrArguments),
			Remedy: "take net_af_xdp",
		}
	}
	var networks *exception.Networks
	if from := dpdk.KernelInterface(cfg.Name); from != "" {
		var err error
		if networks, err = exception.SaveNetworks(from); err != nil {
			return nil, &pmd.OpError{Op: "open", Device: cfg.Name, Err: errors.Join(dpdk.ErrArguments, err)}
		}
	}
	dev, err := openDPDKDevice(cfg)
	if err != nil {
		return nil, err
	}
	path, err := exception.Open(exception.Config{
		Device: drivers(dev.Queues), Pools: cfg.Pools, Interface: iface, Networks: networks, CloseDevice: dev.Close, Steer: dev.Steer,
	})
	if err != nil {
		return nil, err
	}
	if err := path.Steer(cfg.Rules...); err != nil {
		return nil, errors.Join(err, path.Close())
	}
	return &Device{Queues: drivers(path.Queues), Driver: DPDK, close: path.Close, steer: path.Steer, inSoftware: dev.InSoftware}, nil
}

// exceptionOf returns the interface of a device's exception path; "" where it has none.
func exceptionOf(name string) string {
	if !devargs.Excepts(name) {
		return ""
	}
	return devargs.Kernel(name)
}

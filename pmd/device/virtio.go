package device

import (
	"github.com/millrace/millrace/internal/devargs"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/pmd/virtio"
)

// socketConfig returns the configuration of a vhost-user socket.
func socketConfig(cfg Config) (virtio.Config, error) {
	s, err := devargs.ParseSocket(cfg.Name)
	if err != nil {
		return virtio.Config{}, &pmd.OpError{Op: "open", Device: cfg.Name, Err: err}
	}
	return virtio.Config{Path: s.Path, Server: s.Server, Pools: cfg.Pools, MTU: s.MTU, MAC: s.MAC, Ring: cfg.ring(), Packed: s.Packed}, nil
}

// openVhost opens the end that a virtual machine connects to. All packets of the machine come to this process, so there is nothing to
// steer.
func openVhost(cfg Config) (*Device, error) {
	c, err := socketConfig(cfg)
	if err != nil {
		return nil, err
	}
	dev, err := virtio.OpenBackend(c)
	if err != nil {
		return nil, err
	}
	return &Device{
		Queues: drivers(dev.Queues), Driver: Vhost, close: dev.Close, offload: dev.SetOffload,
		steer: func(...pmd.Rule) error { return nil },
	}, nil
}

// openVirtio opens the driver's end of a device of another process. It needs an arena of NewArena, which is shared.
func openVirtio(cfg Config) (*Device, error) {
	c, err := socketConfig(cfg)
	if err != nil {
		return nil, err
	}
	dev, err := virtio.OpenFrontend(c)
	if err != nil {
		return nil, err
	}
	return &Device{
		Queues: drivers(dev.Queues), Driver: Virtio, close: dev.Close, offload: dev.SetOffload,
		steer: func(...pmd.Rule) error { return nil },
	}, nil
}

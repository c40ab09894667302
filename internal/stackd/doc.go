// Package stackd runs a host of our own on this machine: it opens the devices that a configuration
// names, gives the host its addresses, starts the built-in services (internal/service) on its sockets,
// answers on a control socket what the host knows, and takes everything down again.
//
//	cfg, err := stackd.Load(file)
//	d, err := stackd.Open(cfg, stackd.Options{Log: log})
//	err = d.Run(ctx) // until ctx ends
//
// The kernel keeps what is not for an address of the host, see Device.Take.
package stackd

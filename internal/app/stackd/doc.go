// Package stackd runs a host in user space as a service of a node: it turns the configuration file into that
// of the node, gives the host its addresses, by DHCP too, starts the built-in services (internal/app/service)
// on its sockets, reloads, and answers the control socket.
//
//	cfg, err := stackd.Load(file)
//	d, err := stackd.Open(cfg, stackd.Options{Log: log})
//	err = d.Run(ctx) // until ctx ends
//
// The kernel keeps all packets that are not for an address of the host; see Device.Take.
package stackd

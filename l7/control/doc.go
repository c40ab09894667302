// Package control runs the listeners of a configuration: a proxy.Worker on each of its loops, the pools that they share,
// the probes of their backends and the files of their certificates.
//
//	s, err := workers.Open(cfg, workers.Options{Log: log})
//	err = s.Run() // until Shutdown
//	err = s.Reload(cfg)
//	s.Shutdown()
//
// Connections of clients and to backends are the loops' (package transport), and requests the workers' (package proxy).
// What a configuration does not change stays as it is: sockets, connections, the state of pools, certificates.
package control

// Package inspection inspects the packets of the gateway's services by rules: it reads the files that a configuration
// names, has an engine of filter/inspect for each policy in each loop, and decides by what the engine finds whether a
// packet leaves.
//
//	i, err := inspection.Open(cfg, inspection.Options{Wall: wall})
//	i.SetLoops(n)
//	handler.SetInspector(i.Loop(k).Inspect)
//	err = i.Reload(cfg) // compiles beside the loops, and swaps
//
// Packets come from datapath.Handler, in the loop that owns their connection and in the form in which the client sees
// them. Alerts go as lines of JSON to a file, their packets to a pcapng, and verdicts to a function of the caller. Both
// files are written by goroutines of their own from bounded queues: a loop never waits for a disk, and what does not fit
// is dropped and counted.
//
// The package does not change packets, and does not inspect what listeners terminate: only packets of services.
package inspection

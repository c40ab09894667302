//go:build race

package fec

// raceEnabled says that the detector runs, which allocates, and has sync.Pool lose things.
const raceEnabled = true

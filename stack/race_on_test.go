//go:build race

package stack

// raceEnabled says that the detector runs, which allocates, and has sync.Pool lose things.
const raceEnabled = true

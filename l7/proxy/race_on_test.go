//go:build race

package proxy

// raceEnabled says that the race detector runs, which allocates.
const raceEnabled = true

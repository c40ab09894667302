//go:build race

package handshake13

// raceEnabled says that the detector runs, which allocates, and has sync.Pool lose things.
const raceEnabled = true

//go:build race

package websocket

// raceEnabled says that the detector runs, which allocates, and has sync.Pool lose things.
const raceEnabled = true

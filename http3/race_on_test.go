//go:build race

package http3_test

// raceEnabled says that the detector runs.
const raceEnabled = true

//go:build race

package main

// raceEnabled says that the race detector runs.
const raceEnabled = true

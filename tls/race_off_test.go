//go:build !race

package tls

const raceEnabled = false
